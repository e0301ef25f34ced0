// Writes the manual pages: tp_generate_man PROSE_DIR OUTPUT_DIR. Part of the build.

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include <fmt/format.h>

#include "cli_definitions.h"
#include "man_page.h"

namespace {

/// Text of a file; empty where there is none.
std::string read_optional(const std::filesystem::path& path) {
  const std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  if (in) {
    text << in.rdbuf();
  }
  return text.str();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    fmt::print(stderr, "usage: {} PROSE_DIR OUTPUT_DIR\n", argv[0]);
    return 2;
  }
  const std::filesystem::path prose_dir = argv[1];
  const std::filesystem::path output_dir = argv[2];
  const trash_panda::cli::CommandLine command_line;
  const trash_panda::cli::CommandDescriptions commands = command_line.describe();
  for (const trash_panda::cli::CommandDescription& command : commands) {
    const std::string name = trash_panda::cli::page_name(command);
    const std::filesystem::path path = output_dir / (name + ".1");
    std::ofstream out(path, std::ios::binary | std::ios::trunc);
    out << trash_panda::cli::man_page(commands, command,
                                      read_optional(prose_dir / (name + ".roff")));
    out.close();
    if (!out) {
      fmt::print(stderr, "can't write {}\n", path.native());
      return 1;
    }
  }
  return 0;
}
