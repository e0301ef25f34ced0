#pragma once

#include <algorithm>
#include <vector>

#include "trash_panda/base/error.h"

namespace trash_panda::runtime {

/// Middle of at least one value; of an even number the mean of the two in the middle.
[[nodiscard]] inline double median(std::vector<double> values) {
  TP_ASSERT(!values.empty());
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace trash_panda::runtime
