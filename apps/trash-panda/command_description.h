#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trash_panda::cli {

/// What help, manual pages and completion say about one option. Taken from the parser itself, so
/// that none of them can differ from what is accepted.
struct OptionDescription {
  std::string short_name;  ///< "-o", or empty.
  std::string long_name;   ///< "--output".
  std::string value_name;  ///< "FILE"; empty for a flag.
  std::string help;
  std::string group;                 ///< Heading: "Options", "Budgets", "Global options".
  std::string environment;           ///< "TRASH_PANDA_MAX_RAM", or empty.
  std::vector<std::string> choices;  ///< The words that it takes, where there are few.
};

struct PositionalDescription {
  std::string name;  ///< "MODEL".
  std::string help;
  bool required = true;
};

struct Example {
  std::string command;
  std::string explanation;
};

/// One command; the program itself has an empty name.
struct CommandDescription {
  std::string name;
  std::string summary;      ///< One line, no full stop.
  std::string description;  ///< Sentences; paragraphs are separated by an empty line.
  std::vector<PositionalDescription> positionals;
  std::vector<OptionDescription> options;  ///< By group, in the order of definition.
  std::vector<Example> examples;
};

/// The program first, then each command in the order of the manual.
using CommandDescriptions = std::vector<CommandDescription>;

/// @return The command of that name, or null.
[[nodiscard]] const CommandDescription* find_command(const CommandDescriptions& commands,
                                                     std::string_view name);

/// "trash-panda plan [OPTIONS] MODEL".
[[nodiscard]] std::string usage_line(const CommandDescription& command);

struct ExitCodeDescription {
  int code;
  std::string_view meaning;
};

/// Every exit code, for the manual.
[[nodiscard]] const std::vector<ExitCodeDescription>& exit_code_descriptions();

}  // namespace trash_panda::cli
