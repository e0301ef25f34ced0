#include "setting.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trash_panda/base/file.h"
#include "trash_panda/base/units.h"

namespace trash_panda::cli {

namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

Error usage_error(const Setting& setting, std::string_view why) {
  return {ErrorCode::kUsage,
          fmt::format("{}: '{}' {}", setting.source, printable(setting.text), why)};
}

}  // namespace

Result<std::optional<std::uint64_t>> size_of(const Setting& setting, std::uint64_t whole_bytes) {
  const std::string word = lower(setting.text);
  if (!setting.given() || word == "auto") {
    return std::nullopt;
  }
  if (word == "max" && whole_bytes != 0) {
    return whole_bytes;
  }
  if ((word == "max" || word.ends_with('%')) && whole_bytes == 0) {
    return std::unexpected(usage_error(setting, "is a part of nothing here; give a size in bytes"));
  }
  Result<std::uint64_t> bytes = parse_bytes(setting.text, whole_bytes);
  if (!bytes) {
    return std::unexpected(std::move(bytes).error().with_context(setting.source));
  }
  return *bytes;
}

Result<std::optional<std::uint64_t>> count_of(const Setting& setting) {
  if (!setting.given() || lower(setting.text) == "auto") {
    return std::nullopt;
  }
  std::uint64_t count = 0;
  const char* end = setting.text.data() + setting.text.size();
  const auto [stop, error] = std::from_chars(setting.text.data(), end, count);
  if (error != std::errc() || stop != end) {
    return std::unexpected(usage_error(setting, "is not a whole number of 0 or more"));
  }
  return count;
}

Result<std::optional<double>> number_of(const Setting& setting) {
  if (!setting.given() || lower(setting.text) == "auto") {
    return std::nullopt;
  }
  double number = 0;
  const char* end = setting.text.data() + setting.text.size();
  const auto [stop, error] = std::from_chars(setting.text.data(), end, number);
  if (error != std::errc() || stop != end || !std::isfinite(number) || number < 0) {
    return std::unexpected(usage_error(setting, "is not a number of 0 or more"));
  }
  return number;
}

Result<std::optional<std::size_t>> choice_of(const Setting& setting,
                                             std::span<const std::string_view> words) {
  if (!setting.given()) {
    return std::nullopt;
  }
  const auto found = std::ranges::find(words, lower(setting.text));
  if (found == words.end()) {
    return std::unexpected(
        usage_error(setting, fmt::format("is none of {}", fmt::join(words, ", "))));
  }
  return static_cast<std::size_t>(found - words.begin());
}

Result<bool> flag_of(const Setting& setting) {
  static constexpr std::array<std::string_view, 8> kWords = {"1", "true",  "yes", "on",
                                                             "0", "false", "no",  "off"};
  TP_ASSIGN_OR_RETURN(const std::optional<std::size_t> index, choice_of(setting, kWords));
  return index.has_value() && *index < kWords.size() / 2;
}

}  // namespace trash_panda::cli
