#include "trash_panda/base/nearest_name.h"

#include <algorithm>
#include <vector>

namespace trash_panda {
namespace {

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

bool equal(char a, char b) {
  return lower(a) == lower(b);
}

bool starts_with(std::string_view text, std::string_view beginning) {
  return text.size() >= beginning.size() &&
         std::ranges::equal(text.substr(0, beginning.size()), beginning, equal);
}

}  // namespace

std::size_t edit_distance(std::string_view from, std::string_view to) {
  // Rows of the usual table; a swap of neighbours looks two rows back.
  std::vector<std::size_t> before(to.size() + 1);
  std::vector<std::size_t> above(to.size() + 1);
  std::vector<std::size_t> row(to.size() + 1);
  for (std::size_t column = 0; column <= to.size(); ++column) {
    above[column] = column;
  }
  for (std::size_t i = 1; i <= from.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= to.size(); ++j) {
      const std::size_t replaced = above[j - 1] + (equal(from[i - 1], to[j - 1]) ? 0 : 1);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && equal(from[i - 1], to[j - 2]) && equal(from[i - 2], to[j - 1])) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    std::swap(before, above);
    std::swap(above, row);
  }
  return above[to.size()];
}

std::string_view nearest_name(std::string_view typed, std::span<const std::string_view> known) {
  /// Beginnings shorter than this would match by chance.
  constexpr std::size_t kBeginningMin = 3;
  /// Longer input is no slip of the finger, and the table grows with it.
  constexpr std::size_t kTypedMax = 128;

  std::string_view nearest;
  if (typed.empty() || typed.size() > kTypedMax) {
    return nearest;
  }
  std::size_t distance_min = 0;
  for (const std::string_view name : known) {
    const std::size_t distance = edit_distance(typed, name);
    const std::size_t allowed = std::max<std::size_t>(1, std::max(typed.size(), name.size()) / 3);
    if (distance <= allowed && (nearest.empty() || distance < distance_min)) {
      nearest = name;
      distance_min = distance;
    }
  }
  if (nearest.empty() && typed.size() >= kBeginningMin) {
    const auto found = std::ranges::find_if(
        known, [typed](std::string_view name) { return starts_with(name, typed); });
    nearest = found == known.end() ? std::string_view() : *found;
  }
  return nearest;
}

}  // namespace trash_panda
