#include "trash_panda/format/tensor_record.h"

namespace trash_panda::format {

std::string_view type_name(const TensorRecord& tensor) {
  return tensor.ggml_type != nullptr ? tensor.ggml_type->name : dtype_name(tensor.dtype);
}

std::uint64_t element_count(const TensorRecord& tensor) {
  std::uint64_t count = 1;  // Readers have refused what overflows.
  for (const std::uint64_t dimension : tensor.shape) {
    count *= dimension;
  }
  return count;
}

}  // namespace trash_panda::format
