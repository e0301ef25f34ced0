#include "cli_parser.h"

#include <algorithm>
#include <cctype>
#include <utility>

namespace trash_panda::cli {

namespace {

/// "--max-ram" → "TRASH_PANDA_MAX_RAM".
std::string environment_name(std::string_view long_name) {
  std::string name = "TRASH_PANDA_";
  for (const char c : long_name.substr(2)) {
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

}  // namespace

CommandDefinition& CommandDefinition::describe(std::string_view description) {
  description_.description = description;
  return *this;
}

CommandDefinition& CommandDefinition::group(std::string_view title) {
  group_ = title;
  return *this;
}

void CommandDefinition::bind_positional(const std::string& name, Setting& target, std::string help,
                                        bool required) {
  app_.add_option_function<std::string>(
      name, [&target, name](const std::string& text) { target = {.text = text, .source = name}; },
      help);
  PositionalDescription positional{.name = name, .help = std::move(help), .required = required};
  positionals_.push_back({.app = &app_, .description = positional, .setting = &target});
  description_.positionals.push_back(std::move(positional));
}

CommandDefinition& CommandDefinition::positional(const std::string& name, Setting& target,
                                                 std::string help) {
  bind_positional(name, target, std::move(help), /*required=*/true);
  return *this;
}

CommandDefinition& CommandDefinition::optional_positional(const std::string& name, Setting& target,
                                                          std::string help) {
  bind_positional(name, target, std::move(help), /*required=*/false);
  return *this;
}

void CommandDefinition::bind(CLI::Option* option, const std::string& names,
                             const std::string& value_name, std::string help, Setting* setting,
                             bool* flag) {
  const std::size_t comma = names.find(',');
  OptionDescription description{
      .short_name = comma == std::string::npos ? std::string() : names.substr(0, comma),
      .long_name = comma == std::string::npos ? names : names.substr(comma + 1),
      .value_name = value_name,
      .help = std::move(help),
      .group = group_,
      .environment = {},
      .choices = {}};
  options_.push_back({.app = &app_,
                      .option = option,
                      .description = std::move(description),
                      .setting = setting,
                      .flag = flag});
}

CommandDefinition& CommandDefinition::flag(const std::string& names, bool& target,
                                           std::string help) {
  CLI::Option* option = app_.add_flag(names, target, help);
  option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  bind(option, names, {}, std::move(help), nullptr, &target);
  return *this;
}

CommandDefinition& CommandDefinition::value(const std::string& names, const std::string& value_name,
                                            Setting& target, std::string help) {
  const std::string long_name = names.substr(names.find("--"));
  CLI::Option* option = app_.add_option_function<std::string>(
      names,
      [&target, long_name](const std::string& text) {
        target = {.text = text, .source = long_name};
      },
      help);
  // The last one wins, so that an alias or a script's default can be overridden.
  option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)->type_name(value_name);
  bind(option, names, value_name, std::move(help), &target, nullptr);
  return *this;
}

CommandDefinition& CommandDefinition::list(const std::string& names, const std::string& value_name,
                                           std::vector<std::string>& target, std::string help) {
  CLI::Option* option = app_.add_option(names, target, help);
  option->allow_extra_args(false)->type_name(value_name);
  bind(option, names, value_name, std::move(help), nullptr, nullptr);
  return *this;
}

CommandDefinition& CommandDefinition::from_environment() {
  OptionDescription& description = options_.back().description;
  description.environment = environment_name(description.long_name);
  return *this;
}

CommandDefinition& CommandDefinition::choices(std::vector<std::string> words) {
  options_.back().description.choices = std::move(words);
  return *this;
}

CommandDefinition& CommandDefinition::example(std::string_view command,
                                              std::string_view explanation) {
  description_.examples.push_back(
      {.command = std::string(command), .explanation = std::string(explanation)});
  return *this;
}

}  // namespace trash_panda::cli
