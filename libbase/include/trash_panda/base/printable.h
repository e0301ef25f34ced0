#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace trash_panda {

/// Path for messages: non-printable bytes escaped, so that one message stays one line.
std::string printable(const std::filesystem::path& path);
/// The same for a name or any text that came from a file.
std::string printable(std::string_view text);
/// Else a std::string would be as near to a path as to a view.
inline std::string printable(const std::string& text) {
  return printable(std::string_view(text));
}
inline std::string printable(const char* text) {
  return printable(std::string_view(text));
}

}  // namespace trash_panda
