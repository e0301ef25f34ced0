#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "trash_panda/base/error.h"
#include "trash_panda/runtime/streamer.h"

#include "tensor_layout.h"

namespace trash_panda::runtime {

/// The CPU as the device that computes: an extent's tensors are used where they were read, and
/// those that are coded or change their dtype are made in a compute buffer beside it.
class HostDevice {
 public:
  /// Makes the tensors of an extent.
  ///
  /// @param stored   The extent's bytes; tensors in place point into it.
  /// @param compute  At least layout.compute_bytes, on a multiple of format::kTensorAlignment.
  /// @return Views in the order of the layout, valid as long as both memories are left alone.
  /// @retval kCorrupt  The code of a tensor is damaged.
  [[nodiscard]] static Result<std::vector<TensorView>> place(const TensorLayout& layout,
                                                             std::span<std::byte> stored,
                                                             std::span<std::byte> compute);
};

}  // namespace trash_panda::runtime
