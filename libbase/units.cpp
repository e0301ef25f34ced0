#include "trash_panda/base/units.h"

#include <array>
#include <cctype>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

namespace trash_panda {

namespace {

struct Unit {
  std::string_view name;  // lower case
  double bytes;
};

constexpr double kKilo = 1e3;
constexpr double kKibi = 1024.0;

constexpr std::array<Unit, 15> kUnits = {{
    {"", 1},
    {"b", 1},
    {"kb", kKilo},
    {"mb", kKilo* kKilo},
    {"gb", kKilo* kKilo* kKilo},
    {"tb", kKilo* kKilo* kKilo* kKilo},
    {"k", kKibi},
    {"m", kKibi* kKibi},
    {"g", kKibi* kKibi* kKibi},
    {"t", kKibi* kKibi* kKibi* kKibi},
    {"kib", kKibi},
    {"mib", kKibi* kKibi},
    {"gib", kKibi* kKibi* kKibi},
    {"tib", kKibi* kKibi* kKibi* kKibi},
    {"bytes", 1},
}};

std::string_view trim(std::string_view text) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && is_space(text.front())) {
    text.remove_prefix(1);
  }
  while (!text.empty() && is_space(text.back())) {
    text.remove_suffix(1);
  }
  return text;
}

Error not_a_size(std::string_view text) {
  return Error(ErrorCode::kUsage, fmt::format("\"{}\" is not a size", text))
      .with_hint("write bytes or a number with a unit: 12GB, 1.5GiB, 800M");
}

}  // namespace

Result<std::uint64_t> round_up(std::uint64_t value, std::uint64_t alignment) {
  TP_ASSERT(alignment > 0);
  const std::uint64_t rest = value % alignment;
  if (rest == 0) {
    return value;
  }
  if (value > UINT64_MAX - (alignment - rest)) {
    return std::unexpected(
        Error(ErrorCode::kCorrupt,
              fmt::format("{} bytes can't be rounded up to {}", value, alignment))
            .with_reason("overflow"));
  }
  return value + (alignment - rest);
}

Result<std::uint64_t> parse_bytes(std::string_view text, std::uint64_t whole_bytes) {
  const std::string_view trimmed = trim(text);
  double number = 0;
  const auto [end, status] = std::from_chars(trimmed.data(), trimmed.data() + trimmed.size(),
                                             number, std::chars_format::fixed);
  if (status != std::errc() || !std::isfinite(number) || number < 0 || trimmed.front() == '-') {
    return std::unexpected(not_a_size(text));
  }
  std::string unit(trim(trimmed.substr(static_cast<std::size_t>(end - trimmed.data()))));
  for (char& c : unit) {
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  double factor = -1;
  if (unit == "%" && whole_bytes > 0) {
    factor = static_cast<double>(whole_bytes) / 100;
  }
  for (const Unit& known : kUnits) {
    if (unit == known.name) {
      factor = known.bytes;
    }
  }
  if (factor < 0) {
    return std::unexpected(not_a_size(text));
  }
  // Plain integers keep all 64 bits, which a double would not.
  std::uint64_t whole = 0;
  const auto [whole_end, whole_status] =
      std::from_chars(trimmed.data(), trimmed.data() + trimmed.size(), whole);
  if (whole_status == std::errc() && whole_end == end && factor == 1) {
    return whole;
  }
  const double bytes = number * factor;
  if (bytes >= 0x1p64) {
    return std::unexpected(
        Error(ErrorCode::kUsage, fmt::format("\"{}\" is 2^64 bytes or more", text)));
  }
  return static_cast<std::uint64_t>(bytes);
}

std::string format_bytes(std::uint64_t bytes) {
  constexpr std::array<std::string_view, 7> kNames = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  // 999.5 would print as 1000: the next unit takes over there.
  while (value >= 999.5 && unit + 1 < kNames.size()) {
    value /= 1000;
    ++unit;
  }
  if (unit == 0) {
    return fmt::format("{} B", bytes);
  }
  const int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f} {}", value, decimals, kNames[unit]);
}

std::string format_count(std::uint64_t count) {
  std::string digits = fmt::format("{}", count);
  for (std::ptrdiff_t at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3) {
    digits.insert(static_cast<std::size_t>(at), ",");
  }
  return digits;
}

}  // namespace trash_panda
