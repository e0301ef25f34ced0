#include "trash_panda/format/tensor_record.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace trash_panda::format {

std::string to_string(const Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace trash_panda::format
