#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trash_panda::cli {

/// Which tensors `inspect` tells of one by one.
struct TensorListing {
  std::optional<std::string> match;  ///< Glob that names must match.
  /// The largest only, so many of them; nothing: all, in the order of the files.
  std::optional<std::uint64_t> largest;
  std::string prefix = {};  ///< What names begin with before they are matched: a component's.

  [[nodiscard]] bool matches(std::string_view name) const;

  /// Chooses among `count` tensors. @return Their positions, in the order to list them.
  template <class NameAt, class SizeAt>
  [[nodiscard]] std::vector<std::size_t> choose(std::size_t count, NameAt name_at,
                                                SizeAt size_bytes_at) const {
    std::vector<std::size_t> chosen;
    for (std::size_t i = 0; i < count; ++i) {
      if (!match || matches(name_at(i))) {
        chosen.push_back(i);
      }
    }
    if (largest) {
      // Equal ones in the order of the files.
      const auto is_before = [&](std::size_t a, std::size_t b) {
        return size_bytes_at(a) != size_bytes_at(b) ? size_bytes_at(a) > size_bytes_at(b) : a < b;
      };
      const std::size_t listed = std::min<std::uint64_t>(*largest, chosen.size());
      const auto middle = chosen.begin() + static_cast<std::ptrdiff_t>(listed);
      std::ranges::partial_sort(chosen, middle, is_before);
      chosen.resize(listed);
    }
    return chosen;
  }
};

}  // namespace trash_panda::cli
