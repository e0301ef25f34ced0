#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "commands.h"

namespace trash_panda::cli {

namespace {

std::string spaced_options(const CommandDescription& command) {
  std::string words;
  for (const OptionDescription& option : command.options) {
    words += option.short_name.empty() ? "" : option.short_name + " ";
    words += option.long_name + " ";
  }
  return words;
}

std::string command_names(const CommandDescriptions& commands) {
  std::string names;
  for (const CommandDescription& command : commands) {
    names += command.name.empty() ? "" : command.name + " ";
  }
  return names;
}

std::string bash_script(const CommandDescriptions& commands) {
  std::string cases;
  for (const CommandDescription& command : commands) {
    cases += fmt::format("    {}) words=\"{}\" ;;\n", command.name.empty() ? "''" : command.name,
                         spaced_options(command));
  }
  return fmt::format(R"(# bash completion of trash-panda
_trash_panda() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" command='' word words
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case "$word" in -*) ;; *) command="$word"; break ;; esac
  done
  case "$command" in
{}  esac
  if [[ -z "$command" ]]; then words+="{}"; fi
  if [[ "$current" == -* || -z "$command" ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
  fi
}}
complete -o default -o filenames -F _trash_panda trash-panda
)",
                     cases, command_names(commands));
}

std::string quoted(std::string text) {
  for (std::size_t at = text.find('\''); at != std::string::npos; at = text.find('\'', at + 4)) {
    text.replace(at, 1, "'\\''");
  }
  return "'" + text + "'";
}

std::string fish_script(const CommandDescriptions& commands) {
  std::string out = "# fish completion of trash-panda\n";
  for (const CommandDescription& command : commands) {
    const std::string condition =
        command.name.empty() ? "__fish_use_subcommand"
                             : fmt::format("'__fish_seen_subcommand_from {}'", command.name);
    if (!command.name.empty()) {
      out += fmt::format("complete -c trash-panda -n __fish_use_subcommand -f -a {} -d {}\n",
                         command.name, quoted(command.summary));
    }
    for (const OptionDescription& option : command.options) {
      out +=
          fmt::format("complete -c trash-panda -n {} -l {}", condition, option.long_name.substr(2));
      out += option.short_name.empty() ? "" : fmt::format(" -s {}", option.short_name.substr(1));
      out += option.value_name.empty() ? "" : " -r";
      out +=
          option.choices.empty() ? "" : fmt::format(" -f -a '{}'", fmt::join(option.choices, " "));
      out += fmt::format(" -d {}\n", quoted(option.help));
    }
  }
  return out;
}

std::string zsh_script(const CommandDescriptions& commands) {
  std::string cases;
  for (const CommandDescription& command : commands) {
    std::string specs;
    for (const OptionDescription& option : command.options) {
      std::string help = option.help;
      for (std::size_t at = help.find_first_of("[]:\\"); at != std::string::npos;
           at = help.find_first_of("[]:\\", at + 2)) {
        help.insert(at, "\\");
      }
      const std::string value =
          option.value_name.empty() ? ""
          : option.choices.empty()
              ? fmt::format(":{}:_files", option.value_name)
              : fmt::format(":{}:({})", option.value_name, fmt::join(option.choices, " "));
      specs += fmt::format(" \\\n        {}",
                           quoted(fmt::format("{}[{}]{}", option.long_name, help, value)));
    }
    cases += fmt::format("    {})\n      _arguments{} \\\n        '*:file:_files' ;;\n",
                         command.name.empty() ? "''" : command.name, specs);
  }
  std::string names;
  for (const CommandDescription& command : commands) {
    names += command.name.empty()
                 ? ""
                 : fmt::format(" {}", quoted(fmt::format("{}:{}", command.name, command.summary)));
  }
  return fmt::format(R"(#compdef trash-panda
_trash_panda() {{
  local command='' word
  local -a commands=({})
  for word in "${{(@)words[2,CURRENT-1]}}"; do
    case "$word" in -*) ;; *) command="$word"; break ;; esac
  done
  if [[ -z "$command" && "$words[CURRENT]" != -* ]]; then
    _describe command commands
    return
  fi
  case "$command" in
{}  esac
}}
if [[ "$funcstack[1]" == _trash_panda ]]; then
  _trash_panda
else
  compdef _trash_panda trash-panda
fi
)",
                     names, cases);
}

}  // namespace

Result<void> run_completion(const CompletionOptions& options, const CommandDescriptions& commands,
                            Console& console) {
  const std::string& shell = options.shell.text;
  if (shell == "bash") {
    return console.print(bash_script(commands));
  }
  if (shell == "zsh") {
    return console.print(zsh_script(commands));
  }
  if (shell == "fish") {
    return console.print(fish_script(commands));
  }
  return std::unexpected(Error(ErrorCode::kUsage, fmt::format("no completion for '{}'", shell))
                             .with_hint("bash, zsh and fish are known"));
}

}  // namespace trash_panda::cli
