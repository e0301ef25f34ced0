#include "host_device.h"

#include <algorithm>
#include <utility>

#include "trash_panda/base/aligned_buffer.h"
#include "trash_panda/base/units.h"

#include "tensor_maker.h"
#include "tensor_workers.h"

namespace trash_panda::runtime {

namespace {

/// Results that are worth a thread's start.
constexpr std::uint64_t kBytesPerThread = 8 * kMiB;

}  // namespace

Result<DeviceMemory> HostDevice::allocate(std::uint64_t size_bytes) {
  TP_ASSIGN_OR_RETURN(AlignedBuffer buffer, AlignedBuffer::create(size_bytes));
  const std::span<std::byte> bytes = buffer.span().first(size_bytes);
  return DeviceMemory{.bytes = bytes, .owner = std::make_shared<AlignedBuffer>(std::move(buffer))};
}

Result<void> HostDevice::copy(std::span<std::byte> target, std::span<const std::byte> source) {
  TP_ASSERT(target.size() == source.size());
  std::ranges::copy(source, target.begin());
  return {};
}

Result<std::vector<TensorView>> HostDevice::place(const TensorLayout& layout,
                                                  std::span<std::byte> stored,
                                                  std::span<std::byte> compute,
                                                  StreamHandle /*stream*/) {
  TensorMaker maker;
  TP_RETURN_IF_ERROR(maker.begin(layout, stored, compute));
  const std::size_t helper_count =
      std::min<std::uint64_t>(maker.target_bytes() / kBytesPerThread, tensor_thread_count() - 1);
  TensorWorkers helpers(helper_count, {});
  helpers.help(maker);
  TensorMaker::Scratch scratch;
  TP_RETURN_IF_ERROR(maker.finish(scratch));
  std::vector<TensorView> views;
  view_tensors(layout, stored, compute, views);
  return views;
}

}  // namespace trash_panda::runtime
