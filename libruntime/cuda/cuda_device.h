#pragma once

#include <memory>
#include <string>

#include "cuda/context.h"
#include "cuda/expansion.h"
#include "device.h"

namespace trash_panda::runtime::cuda {

/// A GPU through the driver's interface, in its primary context.
///
/// When the driver fails the self-test, or pins nothing, the device is synchronous: the CPU waits
/// for every copy and for every event that a stream would have waited for. Results are the same.
class CudaDevice final : public runtime::Device {
 public:
  /// @see open_cuda_device()
  static Result<std::shared_ptr<CudaDevice>> open(const CudaDeviceOptions& options);
  CudaDevice() = default;
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;
  ~CudaDevice() override;

  [[nodiscard]] std::string description() const override;
  [[nodiscard]] bool is_host() const override { return false; }
  [[nodiscard]] std::optional<int> cuda_ordinal() const override { return ordinal_; }
  [[nodiscard]] PinLedger* pins() override { return pins_.get(); }
  Result<DeviceMemory> allocate(std::uint64_t size_bytes) override;
  [[nodiscard]] Result<DeviceMemoryLeft> memory_left() override;
  Result<DeviceEvent> make_event() override;
  [[nodiscard]] StreamHandle copy_stream() const override;
  Result<void> copy(std::span<std::byte> target, std::span<const std::byte> source) override;
  Result<void> record(const DeviceEvent& event, StreamHandle stream) override;
  Result<void> wait(StreamHandle stream, const DeviceEvent& event) override;
  [[nodiscard]] Result<bool> has_passed(const DeviceEvent& event) override;
  Result<void> synchronize(const DeviceEvent& event) override;
  Result<void> synchronize(StreamHandle stream) override;
  [[nodiscard]] Result<void> check_decoded() const override { return expansion_->check_decoded(); }
  [[nodiscard]] Result<std::vector<TensorView>> place(const TensorLayout& layout,
                                                      std::span<std::byte> stored,
                                                      std::span<std::byte> compute,
                                                      StreamHandle stream) override;
  Result<void> pin(std::span<std::byte> memory) override;
  Result<void> unpin(std::span<std::byte> memory) override;

 private:
  int ordinal_ = 0;
  std::shared_ptr<PrimaryContext> context_;
  std::unique_ptr<Expansion> expansion_;
  Stream copy_stream_ = nullptr;
  bool is_synchronous_ = false;
  std::shared_ptr<PinLedger> pins_;  ///< Null when synchronous.
};

}  // namespace trash_panda::runtime::cuda
