#pragma once

#include "device.h"

namespace trash_panda::runtime {

/// The CPU as the device that computes: an extent's tensors are used where they were read, and
/// those that are coded or change their dtype are made in a compute buffer beside it. Everything is
/// done when the call returns, so every event has passed.
class HostDevice : public Device {
 public:
  [[nodiscard]] std::string description() const override { return "CPU"; }
  [[nodiscard]] bool is_host() const override { return true; }
  [[nodiscard]] std::optional<int> cuda_ordinal() const override { return std::nullopt; }
  [[nodiscard]] PinLedger* pins() override { return nullptr; }
  Result<DeviceMemory> allocate(std::uint64_t size_bytes) override;
  [[nodiscard]] Result<DeviceMemoryLeft> memory_left() override {
    return DeviceMemoryLeft{.free_bytes = UINT64_MAX, .total_bytes = UINT64_MAX};
  }
  Result<DeviceEvent> make_event() override { return DeviceEvent(); }
  [[nodiscard]] StreamHandle copy_stream() const override { return 0; }
  Result<void> copy(std::span<std::byte> target, std::span<const std::byte> source) override;
  Result<void> record(const DeviceEvent&, StreamHandle) override { return {}; }
  Result<void> wait(StreamHandle, const DeviceEvent&) override { return {}; }
  [[nodiscard]] Result<bool> has_passed(const DeviceEvent&) override { return true; }
  Result<void> synchronize(const DeviceEvent&) override { return {}; }
  Result<void> synchronize(StreamHandle) override { return {}; }
  [[nodiscard]] Result<std::vector<TensorView>> place(const TensorLayout& layout,
                                                      std::span<std::byte> stored,
                                                      std::span<std::byte> compute,
                                                      StreamHandle stream) override;
  [[nodiscard]] Result<void> check_decoded() const override { return {}; }
  Result<void> pin(std::span<std::byte>) override { return {}; }
  Result<void> unpin(std::span<std::byte>) override { return {}; }
};

}  // namespace trash_panda::runtime
