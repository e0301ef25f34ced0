#include "torch_check.h"

#include <nlohmann/json.hpp>

namespace trash_panda::fuzz {

namespace {

/// The element that is farthest from the first, in elements; saturates.
std::uint64_t last_element(const format::TorchTensor& tensor) {
  std::uint64_t last = 0;
  bool overflow = false;
  for (std::size_t i = 0; i < tensor.strides.size(); ++i) {
    std::uint64_t distance = 0;
    overflow = overflow ||
               __builtin_mul_overflow(tensor.shape[i] - 1, tensor.strides[i], &distance) ||
               __builtin_add_overflow(last, distance, &last);
  }
  return overflow ? ~std::uint64_t{0} : last;
}

void check_place(const format::TorchTensor& tensor, std::uint64_t storage_bytes) {
  const std::uint64_t element_bytes = format::dtype_bits(tensor.dtype) / 8;
  if (tensor.size_bytes == 0) {
    return;  // Of no element: wherever that may be.
  }
  std::uint64_t elements = tensor.size_bytes / element_bytes;
  TP_ASSERT(elements * element_bytes == tensor.size_bytes);
  TP_ASSERT(tensor.offset_bytes <= storage_bytes);
  const std::uint64_t room_bytes = storage_bytes - tensor.offset_bytes;
  if (tensor.strides.empty()) {
    TP_ASSERT(tensor.size_bytes <= room_bytes);
  } else {
    TP_ASSERT(tensor.strides.size() == tensor.shape.size());
    TP_ASSERT(last_element(tensor) < room_bytes / element_bytes);
  }
  for (const std::uint64_t dimension : tensor.shape) {
    TP_ASSERT(dimension != 0 && elements % dimension == 0);
    elements /= dimension;
  }
  TP_ASSERT(elements == 1);
}

}  // namespace

void check_torch_state(const format::TorchState& state) {
  for (const format::TorchTensor& tensor : state.tensors) {
    TP_ASSERT(tensor.storage_index < state.storages.size());
    TP_ASSERT(!nlohmann::json(tensor.name).dump().empty());  // Throws for what is no UTF-8.
    check_place(tensor, state.storages[tensor.storage_index].size_bytes);
  }
}

}  // namespace trash_panda::fuzz
