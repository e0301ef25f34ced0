#pragma once

#include <cstddef>
#include <vector>

namespace trash_panda::plan {

/// 0, n/2, n/4, 3n/4…: any number of first ones lies spread over all `count`.
[[nodiscard]] std::vector<std::size_t> spread_order(std::size_t count);

}  // namespace trash_panda::plan
