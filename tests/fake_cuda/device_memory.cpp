#include "device_memory.h"

#include <cstdlib>
#include <cstring>

namespace trash_panda::fake_cuda {

namespace {

constexpr std::size_t kAlignment = 512;
constexpr int kFreshByte = 0xa5;
constexpr int kFreedByte = 0xdd;

std::string text_of(DeviceRange range) {
  return std::to_string(range.size_bytes) + " bytes at " + std::to_string(range.address);
}

bool overlap(DeviceRange a, DeviceRange b) {
  return a.address < b.address + b.size_bytes && b.address < a.address + a.size_bytes;
}

bool covers(DeviceRange outer, DeviceRange inner) {
  return outer.address <= inner.address &&
         inner.address + inner.size_bytes <= outer.address + outer.size_bytes;
}

}  // namespace

Status DeviceMemory::allocate(int device, std::uint64_t limit_bytes, std::size_t size_bytes,
                              DeviceAddress* address) {
  if (size_bytes == 0) {
    return runtime::cuda::kInvalidValue;
  }
  if (size_bytes > limit_bytes - used_bytes(device)) {
    return runtime::cuda::kOutOfMemory;
  }
  const std::size_t taken_bytes = (size_bytes + kAlignment - 1) / kAlignment * kAlignment;
  std::shared_ptr<std::byte> memory(
      static_cast<std::byte*>(std::aligned_alloc(kAlignment, taken_bytes)), &std::free);
  std::memset(memory.get(), kFreshByte, taken_bytes);
  *address = reinterpret_cast<DeviceAddress>(memory.get());
  allocations_[*address] = {
      .memory = std::move(memory), .size_bytes = size_bytes, .device = device, .past = {}};
  return runtime::cuda::kSuccess;
}

Status DeviceMemory::free(DeviceAddress address, const VectorClock* host_clock) {
  const auto found = allocations_.find(address);
  if (found == allocations_.end() || found->second.is_freed) {
    violations_.push_back("memory is freed that is not allocated");
    return runtime::cuda::kInvalidValue;
  }
  Allocation& allocation = found->second;
  for (const Past& past : allocation.past) {
    if (host_clock != nullptr && host_clock->at(past.actor) < past.count) {
      violations_.push_back("memory is freed while " + past.name +
                            " may use it: " + text_of(past.access.range));
    }
  }
  allocation.is_freed = true;
  allocation.past.clear();
  std::memset(allocation.memory.get(), kFreedByte, allocation.size_bytes);
  return runtime::cuda::kSuccess;
}

DeviceMemory::Allocation* DeviceMemory::find(DeviceRange range) {
  auto after = allocations_.upper_bound(range.address);
  if (after == allocations_.begin()) {
    return nullptr;
  }
  auto& [address, allocation] = *--after;
  return covers({address, allocation.size_bytes}, range) ? &allocation : nullptr;
}

Status DeviceMemory::note(int device, const std::vector<Access>& accesses, const Doer& doer) {
  for (const Access& access : accesses) {
    if (access.range.size_bytes == 0) {
      continue;
    }
    Allocation* allocation = find(access.range);
    if (allocation == nullptr || allocation->is_freed || allocation->device != device) {
      violations_.push_back(
          doer.name + " uses memory that is " +
          (allocation != nullptr && allocation->is_freed ? "freed: " : "not its device's: ") +
          text_of(access.range));
      return kIllegalAddress;
    }
    check(*allocation, access, doer);
  }
  return runtime::cuda::kSuccess;
}

void DeviceMemory::check(Allocation& allocation, const Access& access, const Doer& doer) {
  for (const Past& past : allocation.past) {
    const bool conflicts =
        (past.access.is_write || access.is_write) && overlap(past.access.range, access.range);
    if (conflicts && doer.clock->at(past.actor) < past.count) {
      violations_.push_back(doer.name + (access.is_write ? " writes " : " reads ") +
                            text_of(access.range) + ", not ordered after " + past.name +
                            ", which " + (past.access.is_write ? "writes" : "reads") + " there");
    }
  }
  // What was before a write is ordered before all that comes after the write, or was complained of.
  std::erase_if(allocation.past, [&](const Past& past) {
    return covers(access.range, past.access.range) &&
           (access.is_write || (past.actor == doer.actor && !past.access.is_write));
  });
  allocation.past.push_back({.access = access,
                             .name = doer.name,
                             .actor = doer.actor,
                             .count = doer.clock->at(doer.actor)});
}

std::uint64_t DeviceMemory::used_bytes(int device) const {
  std::uint64_t used_bytes = 0;
  for (const auto& [address, allocation] : allocations_) {
    used_bytes += allocation.device == device && !allocation.is_freed ? allocation.size_bytes : 0;
  }
  return used_bytes;
}

int DeviceMemory::allocation_count() const {
  int count = 0;
  for (const auto& [address, allocation] : allocations_) {
    count += allocation.is_freed ? 0 : 1;
  }
  return count;
}

}  // namespace trash_panda::fake_cuda
