#pragma once

#include <cstdint>

namespace trash_panda::plan {

/// What is left of an amount; 0 when more than that is taken.
[[nodiscard]] constexpr std::uint64_t left_of(std::uint64_t amount, std::uint64_t taken) {
  return amount > taken ? amount - taken : 0;
}

}  // namespace trash_panda::plan
