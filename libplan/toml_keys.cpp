#include "toml_keys.h"

#include <algorithm>
#include <cstddef>

namespace trash_panda::plan {

std::size_t end_of_toml_string(std::string_view text, std::size_t begin) {
  const char quote = text[begin];
  const bool is_multiline = text.substr(begin).starts_with(quote == '"' ? R"(""")" : "'''");
  std::size_t at = begin + (is_multiline ? 3 : 1);
  while (at < text.size()) {
    if (text[at] == '\\' && quote == '"') {
      at += 2;
      continue;
    }
    if (!is_multiline && (text[at] == quote || text[at] == '\n')) {
      return text[at] == quote ? at + 1 : at;
    }
    if (text[at] == quote) {
      const std::size_t past_quotes = std::min(text.find_first_not_of(quote, at), text.size());
      // Up to two more quotes before the closing three are a part of the text.
      if (past_quotes - at >= 3) {
        return std::min(past_quotes, at + 5);
      }
      at = past_quotes;
      continue;
    }
    ++at;
  }
  return text.size();
}

std::optional<std::uint64_t> find_long_toml_key(std::string_view text) {
  std::uint64_t line = 1;
  unsigned parts = 1;
  for (std::size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c == '"' || c == '\'') {
      const std::size_t end = end_of_toml_string(text, at);
      line += static_cast<std::uint64_t>(std::ranges::count(text.substr(at, end - at), '\n'));
      at = end;
      continue;
    }
    if (c == '#') {
      at = std::min(text.find('\n', at), text.size());
      continue;
    }
    if (c == '.') {
      if (++parts > kTomlKeyPartsMax) {
        return line;
      }
    } else if (std::string_view("\n=,[]{}").contains(c)) {
      parts = 1;
      line += c == '\n' ? 1 : 0;
    }
    ++at;
  }
  return std::nullopt;
}

}  // namespace trash_panda::plan
