#include "table.h"

#include <algorithm>

namespace trash_panda::cli {

std::size_t display_width(std::string_view text) {
  // Continuation bytes are 10xxxxxx.
  return static_cast<std::size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

std::string format_table(std::string_view alignment,
                         const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths(alignment.size(), 0);
  for (const std::vector<std::string>& row : rows) {
    for (std::size_t i = 0; i < std::min(row.size(), widths.size()); ++i) {
      widths[i] = std::max(widths[i], display_width(row[i]));
    }
  }
  std::string out;
  for (const std::vector<std::string>& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < std::min(row.size(), widths.size()); ++i) {
      const std::string space(widths[i] - display_width(row[i]), ' ');
      line += i == 0 ? "" : "  ";
      line += alignment[i] == 'r' ? space + row[i] : row[i] + space;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

}  // namespace trash_panda::cli
