#include "trash_panda/base/printable.h"

#include <fmt/format.h>

namespace trash_panda {

std::string printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (code < 0x20 || code == 0x7f) {
      out += fmt::format("\\x{:02x}", code);
    } else {
      out += c;
    }
  }
  return out;
}

std::string printable(const std::filesystem::path& path) {
  return printable(std::string_view(path.native()));
}

}  // namespace trash_panda
