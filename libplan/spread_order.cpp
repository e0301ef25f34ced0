#include "trash_panda/plan/spread_order.h"

#include <algorithm>
#include <bit>

namespace trash_panda::plan {

std::vector<std::size_t> spread_order(std::size_t count) {
  const std::size_t rounded = std::bit_ceil(std::max<std::size_t>(count, 2));
  const int width = std::countr_zero(rounded);
  std::vector<std::size_t> order;
  for (std::size_t step = 0; step < rounded; ++step) {
    std::size_t reversed = 0;
    for (int bit = 0; bit < width; ++bit) {
      reversed = reversed * 2 + (step >> bit) % 2;
    }
    if (reversed < count) {
      order.push_back(reversed);
    }
  }
  return order;
}

}  // namespace trash_panda::plan
