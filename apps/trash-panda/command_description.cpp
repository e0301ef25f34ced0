#include "command_description.h"

#include <algorithm>

namespace trash_panda::cli {

const CommandDescription* find_command(const CommandDescriptions& commands, std::string_view name) {
  const auto found = std::ranges::find(commands, name, &CommandDescription::name);
  return found == commands.end() ? nullptr : &*found;
}

std::string usage_line(const CommandDescription& command) {
  std::string line = "trash-panda";
  if (command.name.empty()) {
    return line + " [OPTIONS] COMMAND ...";
  }
  line += " " + command.name + " [OPTIONS]";
  for (const PositionalDescription& positional : command.positionals) {
    line += positional.required ? " " + positional.name : " [" + positional.name + "]";
  }
  return line;
}

const std::vector<ExitCodeDescription>& exit_code_descriptions() {
  static const std::vector<ExitCodeDescription> codes = {
      {0, "success"},
      {1, "any other failure; of diff: the two differ"},
      {2, "wrong usage: an option, a selector, a size"},
      {3, "an input is missing"},
      {4, "an input is corrupt or of a kind that is not supported"},
      {5, "the model does not fit the budgets"},
      {6, "bytes differ from their checksum"},
      {7, "the output exists or can't be written, or there is no space"},
      {8, "a device or a measurement is not available"},
      {10, "a plan or pack was made for another checkpoint"},
      {11, "another process holds the output"},
      {129, "the terminal went away (SIGHUP)"},
      {130, "interrupted (SIGINT)"},
      {143, "terminated (SIGTERM)"},
  };
  return codes;
}

}  // namespace trash_panda::cli
