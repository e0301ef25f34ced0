#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace trash_panda {

/// Path for messages: control characters escaped, so that one message stays one line and reads
/// in the order of its bytes.
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

/// printable() of a text that may be of any length: cut after 200 bytes, and then with its length.
std::string excerpt(std::string_view text);

}  // namespace trash_panda
