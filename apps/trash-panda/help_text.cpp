#include "help_text.h"

#include <algorithm>

#include <fmt/format.h>

namespace trash_panda::cli {

namespace {

constexpr std::size_t kWidth = 80;  // What every terminal and pager shows.
constexpr std::size_t kHelpColumn = 28;

std::string option_names(const OptionDescription& option) {
  std::string names = option.short_name.empty() ? "    " : option.short_name + ", ";
  names += option.long_name;
  if (!option.value_name.empty()) {
    names += " " + option.value_name;
  }
  return names;
}

/// "  NAME    text", the text wrapped within its column.
void append_entry(std::string& out, std::string_view name, std::string_view text) {
  std::string line = fmt::format("  {}", name);
  const std::vector<std::string> lines = wrap(text, kWidth - kHelpColumn);
  if (line.size() + 2 > kHelpColumn) {
    out += line + "\n";
    line.clear();
  }
  for (const std::string& part : lines) {
    out += fmt::format("{:<{}}{}\n", line, kHelpColumn, part);
    line.clear();
  }
}

void append_options(std::string& out, const CommandDescription& command) {
  std::string_view group;
  for (const OptionDescription& option : command.options) {
    if (option.group != group) {
      group = option.group;
      out += fmt::format("\n{}:\n", group);
    }
    const std::string environment =
        option.environment.empty() ? "" : fmt::format(" [{}]", option.environment);
    append_entry(out, option_names(option), option.help + environment);
  }
}

}  // namespace

std::vector<std::string> wrap(std::string_view text, std::size_t width) {
  std::vector<std::string> lines(1);
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!lines.back().empty() && lines.back().size() + 1 + word.size() > width) {
      lines.emplace_back();
    }
    lines.back() += (lines.back().empty() ? "" : " ") + std::string(word);
  }
  return lines;
}

std::string help_text(const CommandDescriptions& commands, const CommandDescription& command) {
  std::string out = fmt::format("Usage: {}\n\n", usage_line(command));
  for (const std::string& line : wrap(command.description, kWidth)) {
    out += line + "\n";
  }
  if (command.name.empty()) {
    out += "\nCommands:\n";
    for (const CommandDescription& entry : commands) {
      if (!entry.name.empty()) {
        append_entry(out, entry.name, entry.summary);
      }
    }
  }
  if (!command.positionals.empty()) {
    out += "\nArguments:\n";
  }
  for (const PositionalDescription& positional : command.positionals) {
    append_entry(out, positional.name, positional.help);
  }
  append_options(out, command);
  if (!command.examples.empty()) {
    out += "\nExamples:\n";
  }
  for (const Example& example : command.examples) {
    out += fmt::format("  # {}\n  {}\n", example.explanation, example.command);
  }
  return out;
}

}  // namespace trash_panda::cli
