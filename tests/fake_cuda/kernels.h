#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "device_memory.h"

namespace trash_panda::fake_cuda {

/// A kernel that is in our image, compiled for the host from the same source.
struct Kernel {
  const char* name;
  std::size_t arguments_bytes;
  /// Runs all threads, one after the other.
  void (*run)(const void* arguments, std::uint64_t thread_count);
  /// What it reads and writes.
  std::vector<Access> (*accesses)(const void* arguments);
};

[[nodiscard]] std::span<const Kernel> kernels();

}  // namespace trash_panda::fake_cuda
