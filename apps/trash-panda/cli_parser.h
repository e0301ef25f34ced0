#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

#include "command_description.h"
#include "setting.h"

namespace trash_panda::cli {

/// One defined option: the parser's and what the parser does not keep.
struct BoundOption {
  CLI::App* app = nullptr;
  CLI::Option* option = nullptr;
  OptionDescription description;
  Setting* setting = nullptr;  ///< Where its value goes; null for flags and lists.
  bool* flag = nullptr;
};

struct BoundPositional {
  CLI::App* app = nullptr;
  PositionalDescription description;
  const Setting* setting = nullptr;
};

/// Collects the definition of one command. Options that follow a group() call belong to it.
class CommandDefinition {
 public:
  CommandDefinition(CLI::App& app, CommandDescription& description,
                    std::vector<BoundOption>& options, std::vector<BoundPositional>& positionals)
      : app_(app), description_(description), options_(options), positionals_(positionals) {}

  CommandDefinition& describe(std::string_view description);
  CommandDefinition& group(std::string_view title);
  CommandDefinition& positional(const std::string& name, Setting& target, std::string help);
  CommandDefinition& optional_positional(const std::string& name, Setting& target,
                                         std::string help);
  /// @param names  "-o,--output" or "--output".
  CommandDefinition& flag(const std::string& names, bool& target, std::string help);
  CommandDefinition& value(const std::string& names, const std::string& value_name, Setting& target,
                           std::string help);
  /// May be given several times, with one value each.
  CommandDefinition& list(const std::string& names, const std::string& value_name,
                          std::vector<std::string>& target, std::string help);
  /// Lets TRASH_PANDA_<NAME> set the option just defined.
  CommandDefinition& from_environment();
  /// Words that the option just defined takes, for completion.
  CommandDefinition& choices(std::vector<std::string> words);
  CommandDefinition& example(std::string_view command, std::string_view explanation);

 private:
  void bind(CLI::Option* option, const std::string& names, const std::string& value_name,
            std::string help, Setting* setting, bool* flag);
  void bind_positional(const std::string& name, Setting& target, std::string help, bool required);

  CLI::App& app_;
  CommandDescription& description_;
  std::vector<BoundOption>& options_;
  std::vector<BoundPositional>& positionals_;
  std::string group_ = "Options";
};

}  // namespace trash_panda::cli
