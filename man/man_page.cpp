#include "man_page.h"

#include <cctype>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "version_info.h"

namespace trash_panda::cli {

namespace {

/// Text that roff shows as it is. Hyphens become minus signs, which can be copied into a shell.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '\\':
        out += "\\e";
        break;
      case '-':
        out += "\\-";
        break;
      case '\'':
        out += "\\(aq";
        break;
      case '"':
        out += "\\(dq";
        break;
      default:
        out += c;
    }
  }
  // A line that begins with a dot would be a request.
  return out.starts_with('.') ? "\\&" + out : out;
}

void append_synopsis(std::string& out, const CommandDescription& command) {
  const std::string usage = usage_line(command);
  const std::size_t name_end = usage.find(" [OPTIONS]");
  out += fmt::format(".SH SYNOPSIS\n.B {}\n{}\n", escaped(usage.substr(0, name_end)),
                     escaped(usage.substr(name_end + 1)));
}

void append_option(std::string& out, const OptionDescription& option) {
  std::string names = option.short_name.empty()
                          ? std::string()
                          : fmt::format("\\fB{}\\fR, ", escaped(option.short_name));
  names += fmt::format("\\fB{}\\fR", escaped(option.long_name));
  if (!option.value_name.empty()) {
    names += fmt::format(" \\fI{}\\fR", escaped(option.value_name));
  }
  out += fmt::format(".TP\n{}\n{}\n", names, escaped(option.help));
  if (!option.environment.empty()) {
    out += fmt::format(".br\nEnvironment: \\fB{}\\fR\n", escaped(option.environment));
  }
}

void append_options(std::string& out, const CommandDescription& command) {
  std::string_view group;
  out += ".SH OPTIONS\n";
  for (const OptionDescription& option : command.options) {
    if (option.group != group) {
      group = option.group;
      out += group == "Options" ? "" : fmt::format(".SS {}\n", escaped(group));
    }
    append_option(out, option);
  }
}

void append_exit_status(std::string& out) {
  out += ".SH EXIT STATUS\n";
  for (const ExitCodeDescription& code : exit_code_descriptions()) {
    out += fmt::format(".TP\n.B {}\n{}\n", code.code, escaped(code.meaning));
  }
}

void append_environment(std::string& out, const CommandDescription& command) {
  std::vector<std::string> names;
  for (const OptionDescription& option : command.options) {
    if (!option.environment.empty()) {
      names.push_back(fmt::format(".TP\n.B {}\nAs \\fB{}\\fR.\n", escaped(option.environment),
                                  escaped(option.long_name)));
    }
  }
  out += ".SH ENVIRONMENT\nAn option on the command line beats its variable.\n";
  out += fmt::format("{}", fmt::join(names, ""));
  out +=
      ".TP\n.BR HF_HUB_CACHE \", \" HF_HOME \", \" XDG_CACHE_HOME\nWhere models named "
      "\\fIorg/name\\fR are looked up: as huggingface_hub does, in this order.\n"
      ".TP\n.BR NO_COLOR \", \" CLICOLOR_FORCE\nNo colours, or colours in pipes too.\n";
}

void append_examples(std::string& out, const CommandDescription& command) {
  if (command.examples.empty()) {
    return;
  }
  out += ".SH EXAMPLES\n";
  for (const Example& example : command.examples) {
    std::string explanation = example.explanation;
    explanation.front() = static_cast<char>(std::toupper(explanation.front()));
    const bool is_question = explanation.ends_with('?');
    out += fmt::format(".PP\n{}{}\n.PP\n.RS\n.EX\n{}\n.EE\n.RE\n", escaped(explanation),
                       is_question ? "" : ":", escaped(example.command));
  }
}

void append_see_also(std::string& out, const CommandDescriptions& commands,
                     const CommandDescription& command) {
  std::vector<std::string> pages;
  for (const CommandDescription& entry : commands) {
    if (entry.name != command.name) {
      pages.push_back(fmt::format(".BR {} (1)", escaped(page_name(entry))));
    }
  }
  // A comma joins the "(1)" before it: .BR sets its arguments without space between them.
  out += fmt::format(".SH SEE ALSO\n{}\n", fmt::join(pages, ",\n"));
}

}  // namespace

std::string page_name(const CommandDescription& command) {
  return command.name.empty() ? "trash-panda" : "trash-panda-" + command.name;
}

std::string man_page(const CommandDescriptions& commands, const CommandDescription& command,
                     std::string_view prose) {
  const std::string name = page_name(command);
  std::string title = escaped(name);
  for (char& c : title) {
    c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  // No date: the same source gives the same page.
  std::string out =
      fmt::format(".TH {} 1 \"\" \"trash\\-panda {}\" \"trash\\-panda manual\"\n", title, kVersion);
  out += fmt::format(".SH NAME\n{} \\- {}\n", escaped(name), escaped(command.summary));
  append_synopsis(out, command);
  out += fmt::format(".SH DESCRIPTION\n{}\n", escaped(command.description));
  if (command.name.empty()) {
    out += ".SH COMMANDS\n";
    for (const CommandDescription& entry : commands) {
      if (!entry.name.empty()) {
        out +=
            fmt::format(".TP\n.BR {} (1)\n{}\n", escaped(page_name(entry)), escaped(entry.summary));
      }
    }
  }
  for (const PositionalDescription& positional : command.positionals) {
    out += fmt::format(".TP\n.I {}\n{}\n", escaped(positional.name), escaped(positional.help));
  }
  append_options(out, command);
  out += prose;
  append_exit_status(out);
  append_environment(out, command);
  append_examples(out, command);
  append_see_also(out, commands, command);
  return out;
}

}  // namespace trash_panda::cli
