#include "trash_panda/base/printable.h"

#include <fmt/format.h>

namespace trash_panda {

namespace {

/// Longest text that a message quotes: enough to find it again by.
constexpr std::size_t kExcerptBytesMax = 200;

/// The control character of two or three bytes that UTF-8 text begins with, 0 for none: C1
/// controls, line separators, and what turns the direction of writing, so that a terminal would
/// show a name as another one.
unsigned wide_control(std::string_view text) {
  const auto byte = [text](std::size_t at) {
    return at < text.size() ? static_cast<unsigned char>(text[at]) : 0U;
  };
  if (byte(0) == 0xc2 && byte(1) >= 0x80 && byte(1) < 0xa0) {
    return byte(1);
  }
  if (byte(0) == 0xd8 && byte(1) == 0x9c) {
    return 0x061c;
  }
  if (byte(0) != 0xe2 || (byte(1) != 0x80 && byte(1) != 0x81) || (byte(2) & 0xc0U) != 0x80) {
    return 0;
  }
  const unsigned code = 0x2000U | (byte(1) & 0x3fU) << 6U | (byte(2) & 0x3fU);
  const bool is_control = code == 0x200e || code == 0x200f || (code >= 0x2028 && code <= 0x202e) ||
                          (code >= 0x2066 && code <= 0x2069);
  return is_control ? code : 0;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size(); ++at) {
    const auto code = static_cast<unsigned char>(text[at]);
    if (code < 0x20 || code == 0x7f) {
      out += fmt::format("\\x{:02x}", code);
    } else if (const unsigned wide = code < 0x80 ? 0 : wide_control(text.substr(at)); wide != 0) {
      out += fmt::format("\\u{:04x}", wide);
      at += wide < 0x800 ? 1 : 2;
    } else {
      out += text[at];
    }
  }
  return out;
}

std::string printable(const std::filesystem::path& path) {
  return printable(std::string_view(path.native()));
}

std::string excerpt(std::string_view text) {
  if (text.size() <= kExcerptBytesMax) {
    return printable(text);
  }
  std::size_t cut = kExcerptBytesMax;
  while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xc0U) == 0x80) {
    --cut;  // Not within a UTF-8 sequence.
  }
  return fmt::format("{}… ({} bytes)", printable(text.substr(0, cut)), text.size());
}

}  // namespace trash_panda
