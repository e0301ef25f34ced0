#include <charconv>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trash_panda/base/printable.h"
#include "trash_panda/format/tier.h"
#include "trash_panda/plan/planner.h"

namespace trash_panda::plan {
namespace {

/// Matches `*` (any run, dots too) and `?` (one byte), everything else literally.
bool glob_matches(std::string_view pattern, std::string_view text) {
  std::size_t p = 0;
  std::size_t t = 0;
  std::size_t star = std::string_view::npos;
  std::size_t star_text = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      star_text = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      // The last star takes one more byte; earlier ones never need to.
      p = star + 1;
      t = ++star_text;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

/// First and last index of an item, as typed: negative ones count from the end.
struct IndexRange {
  std::int64_t first = 0;
  std::int64_t last = 0;
};

/// Reads "7", "-1", "0-7" or "3--1"; nothing when the item is of another form.
std::optional<IndexRange> parse_range(std::string_view item) {
  const char* const begin = item.data();
  const char* const end = begin + item.size();
  IndexRange range;
  const auto first = std::from_chars(begin, end, range.first);
  if (first.ec != std::errc()) {
    return std::nullopt;
  }
  range.last = range.first;
  if (first.ptr == end) {
    return range;
  }
  if (*first.ptr != '-') {
    return std::nullopt;
  }
  const auto last = std::from_chars(first.ptr + 1, end, range.last);
  if (last.ec != std::errc() || last.ptr != end) {
    return std::nullopt;
  }
  return range;
}

Error bad_selector(std::string_view selector, std::string_view why,
                   const std::vector<PlannedBlock>& blocks) {
  Error error(ErrorCode::kUsage, fmt::format("selector {}: {}", printable(selector), why));
  if (blocks.empty()) {
    return std::move(error).with_hint("the model has no blocks");
  }
  return std::move(error).with_hint(fmt::format(
      "indexes go from 0 to {} (-1 is the last), names from {} to {}", blocks.size() - 1,
      printable(blocks.front().name), printable(blocks.back().name)));
}

/// Marks the blocks of one item between commas.
Result<void> select_item(std::string_view item, std::string_view selector,
                         const std::vector<PlannedBlock>& blocks, std::vector<bool>& selected) {
  if (const std::optional<IndexRange> range = parse_range(item)) {
    const auto count = static_cast<std::int64_t>(blocks.size());
    for (const std::int64_t index : {range->first, range->last}) {
      if (index >= count || index < -count) {
        return std::unexpected(
            bad_selector(selector, fmt::format("there is no block {}", index), blocks));
      }
    }
    const std::int64_t first = range->first < 0 ? range->first + count : range->first;
    const std::int64_t last = range->last < 0 ? range->last + count : range->last;
    if (first > last) {
      return std::unexpected(
          bad_selector(selector, fmt::format("{} ends before it begins", printable(item)), blocks));
    }
    for (std::int64_t index = first; index <= last; ++index) {
      selected[static_cast<std::size_t>(index)] = true;
    }
    return {};
  }
  bool matches = false;
  for (std::size_t index = 0; index < blocks.size(); ++index) {
    if (glob_matches(item, blocks[index].name)) {
      selected[index] = true;
      matches = true;
    }
  }
  if (!matches) {
    return std::unexpected(
        bad_selector(selector, fmt::format("{} matches no block", printable(item)), blocks));
  }
  return {};
}

}  // namespace

Result<std::pair<Tier, std::string>> parse_assignment(std::string_view text) {
  const std::size_t equals = text.find('=');
  const std::optional<Tier> tier = format::parse_tier(text.substr(0, equals));
  if (equals == std::string_view::npos || !tier || *tier == Tier::kBase ||
      equals + 1 == text.size()) {
    return std::unexpected(
        Error(ErrorCode::kUsage, fmt::format("'{}' is not TIER=SEL", printable(text)))
            .with_hint("such as gpu=0-7, ram=-1 or disk='blocks.*'"));
  }
  return std::pair(*tier, std::string(text.substr(equals + 1)));
}

std::string block_selector(std::span<const std::size_t> indexes) {
  std::string text;
  for (std::size_t begin = 0; begin < indexes.size();) {
    std::size_t end = begin + 1;
    while (end < indexes.size() && indexes[end] == indexes[end - 1] + 1) {
      ++end;
    }
    text += fmt::format("{}{}", text.empty() ? "" : ",", indexes[begin]);
    text += end - begin > 1 ? fmt::format("-{}", indexes[end - 1]) : std::string();
    begin = end;
  }
  return text;
}

Result<std::vector<std::size_t>> select_blocks(std::string_view selector,
                                               const std::vector<PlannedBlock>& blocks) {
  std::vector<bool> selected(blocks.size(), false);
  std::string_view rest = selector;
  while (true) {
    const std::size_t comma = rest.find(',');
    const std::string_view item = rest.substr(0, comma);
    if (item.empty()) {
      return std::unexpected(bad_selector(selector, "an item is empty", blocks));
    }
    TP_RETURN_IF_ERROR(select_item(item, selector, blocks, selected));
    if (comma == std::string_view::npos) {
      break;
    }
    rest.remove_prefix(comma + 1);
  }
  std::vector<std::size_t> indexes;
  for (std::size_t index = 0; index < selected.size(); ++index) {
    if (selected[index]) {
      indexes.push_back(index);
    }
  }
  return indexes;
}

}  // namespace trash_panda::plan
