// The functions of libcuda that hand out memory, register it, and move or compute what is in it.

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "machine.h"

namespace trash_panda::fake_cuda {

namespace {

constexpr std::uint64_t kPageBytes = 4096;
/// With Fault::kIgnoresWaits: long enough that what should have waited does not see the copy.
constexpr std::chrono::milliseconds kFaultDelay{20};

/// A sum that tells whether bytes have changed.
std::uint64_t sum_of(const void* memory, std::size_t size_bytes) {
  const auto* bytes = static_cast<const unsigned char*>(memory);
  std::uint64_t sum = 14695981039346656037U;  // FNV-1a.
  for (std::size_t at = 0; at < size_bytes; ++at) {
    sum = (sum ^ bytes[at]) * 1099511628211U;
  }
  return sum;
}

}  // namespace

Status Machine::allocate(std::size_t size_bytes, DeviceAddress* address) {
  const int device = current_device();
  return memory_.allocate(device, settings_.vram_bytes - elsewhere_bytes_[device], size_bytes,
                          address);
}

Status Machine::free(DeviceAddress address) {
  // In a context that is broken nothing runs.
  const bool is_broken = sticky_ != runtime::cuda::kSuccess;
  return memory_.free(address, is_broken ? nullptr : &host_);
}

std::uint64_t Machine::free_bytes(int device) {
  return settings_.vram_bytes - elsewhere_bytes_[device] - memory_.used_bytes(device);
}

Status Machine::host_allocate(std::size_t size_bytes, void** memory) {
  std::vector<std::byte> made(size_bytes);
  *memory = made.data();
  registered_[made.data()] = size_bytes;
  host_memory_[made.data()] = std::move(made);
  return runtime::cuda::kSuccess;
}

Status Machine::host_free(void* memory) {
  registered_.erase(static_cast<std::byte*>(memory));
  return host_memory_.erase(static_cast<std::byte*>(memory)) == 1 ? runtime::cuda::kSuccess
                                                                  : runtime::cuda::kInvalidValue;
}

Status Machine::register_host(void* memory, std::size_t size_bytes) {
  if (memory == nullptr || size_bytes == 0) {
    return runtime::cuda::kInvalidValue;
  }
  if (settings_.fault == Fault::kRefusesPins) {
    return runtime::cuda::kOutOfMemory;
  }
  const auto* begin = static_cast<const std::byte*>(memory);
  const std::byte* end = begin + size_bytes;
  if (settings_.fault == Fault::kPinsWholePages) {
    const std::uintptr_t from = reinterpret_cast<std::uintptr_t>(begin) / kPageBytes * kPageBytes;
    const std::uintptr_t to =
        (reinterpret_cast<std::uintptr_t>(end) + kPageBytes - 1) / kPageBytes * kPageBytes;
    for (const auto& [other, other_bytes] : registered_) {
      const auto other_begin = reinterpret_cast<std::uintptr_t>(other);
      if (from < (other_begin + other_bytes + kPageBytes - 1) / kPageBytes * kPageBytes &&
          other_begin < to) {
        return kAlreadyRegistered;
      }
    }
  }
  for (const auto& [other, other_bytes] : registered_) {
    if (begin < other + other_bytes && other < end) {
      return kAlreadyRegistered;
    }
  }
  registered_[begin] = size_bytes;
  return runtime::cuda::kSuccess;
}

Status Machine::unregister_host(void* memory) {
  if (settings_.fault == Fault::kForgetsUnpinning) {
    return kUnknownError;
  }
  return registered_.erase(static_cast<std::byte*>(memory)) == 1 ? runtime::cuda::kSuccess
                                                                 : kNotRegistered;
}

Machine::Pinned Machine::pinned(const void* memory, std::size_t size_bytes) const {
  const auto* begin = static_cast<const std::byte*>(memory);
  for (const auto& [region, region_bytes] : registered_) {
    if (region <= begin && begin + size_bytes <= region + region_bytes) {
      return Pinned::kYes;
    }
    if (begin < region + region_bytes && region < begin + size_bytes) {
      return Pinned::kPartly;
    }
  }
  return Pinned::kNo;
}

Status Machine::copy_to_device(DeviceAddress target, const void* source, std::size_t size_bytes,
                               Stream stream) {
  StreamState* const state = find(stream);
  if (state == nullptr) {
    return kInvalidHandle;
  }
  const Pinned is_pinned = pinned(source, size_bytes);
  if (is_pinned == Pinned::kPartly) {
    complain("a copy from memory of which a part is registered");
    return runtime::cuda::kInvalidValue;
  }
  Work work;
  work.link_bytes = size_bytes;
  auto* to = reinterpret_cast<std::byte*>(target);
  if (is_pinned == Pinned::kNo) {  // Such a source is taken at once, before the call returns.
    const auto* bytes = static_cast<const std::byte*>(source);
    auto taken = std::make_shared<std::vector<std::byte>>(bytes, bytes + size_bytes);
    work.run = [to, taken] { std::memcpy(to, taken->data(), taken->size()); };
  } else {
    if (settings_.fault == Fault::kIgnoresWaits) {
      work.delay = kFaultDelay;
    }
    work.run = [this, to, source, size_bytes, sum = sum_of(source, size_bytes)] {
      if (sum_of(source, size_bytes) != sum) {
        const Lock held = lock();
        complain("the source of a copy changed before the copy was done");
      }
      std::memcpy(to, source, size_bytes);
    };
  }
  return queue(*state, "a copy", {{{target, size_bytes}, true}}, std::move(work));
}

Status Machine::copy_from_device(Lock& lock, void* target, DeviceAddress source,
                                 std::size_t size_bytes, Stream stream) {
  StreamState* const state = find(stream);
  if (state == nullptr) {
    return kInvalidHandle;
  }
  const Pinned is_pinned = pinned(target, size_bytes);
  if (is_pinned == Pinned::kPartly) {
    complain("a copy to memory of which a part is registered");
    return runtime::cuda::kInvalidValue;
  }
  Work work;
  work.run = [target, source, size_bytes] {
    std::memcpy(target, reinterpret_cast<const void*>(source), size_bytes);
  };
  const Status status =
      queue(*state, "a copy back", {{{source, size_bytes}, false}}, std::move(work));
  if (status == runtime::cuda::kSuccess && is_pinned == Pinned::kNo) {
    return synchronize_stream(lock, stream);  // The call returns when the bytes are there.
  }
  return status;
}

Status Machine::copy_on_device(DeviceAddress target, DeviceAddress source, std::size_t size_bytes,
                               Stream stream) {
  StreamState* const state = find(stream);
  if (state == nullptr) {
    return kInvalidHandle;
  }
  Work work;
  work.run = [target, source, size_bytes] {
    std::memcpy(reinterpret_cast<void*>(target), reinterpret_cast<const void*>(source), size_bytes);
  };
  return queue(*state, "a copy within the device",
               {{{target, size_bytes}, true}, {{source, size_bytes}, false}}, std::move(work));
}

Status Machine::load_module(const void* image, runtime::cuda::Module* module) {
  constexpr std::uint32_t kFatBinaryMagic = 0xba55ed50;
  std::uint32_t magic = 0;
  std::memcpy(&magic, image, sizeof magic);
  if (magic != kFatBinaryMagic) {
    return kInvalidImage;
  }
  auto made = std::make_unique<int>(current_device());
  *module = reinterpret_cast<runtime::cuda::Module>(made.get());
  modules_[*module] = std::move(made);
  return runtime::cuda::kSuccess;
}

Status Machine::unload_module(runtime::cuda::Module module) {
  return modules_.erase(module) == 1 ? runtime::cuda::kSuccess : kInvalidHandle;
}

Status Machine::launch(const Kernel* kernel, std::uint64_t thread_count, Stream stream,
                       void** arguments) {
  StreamState* const state = find(stream);
  if (state == nullptr) {
    return kInvalidHandle;
  }
  // Arguments are copied by the call.
  const auto* bytes = static_cast<const std::byte*>(arguments[0]);
  auto taken = std::make_shared<std::vector<std::byte>>(bytes, bytes + kernel->arguments_bytes);
  Work work;
  work.run = [kernel, taken, thread_count] { kernel->run(taken->data(), thread_count); };
  return queue(*state, kernel->name, kernel->accesses(taken->data()), std::move(work));
}

}  // namespace trash_panda::fake_cuda
