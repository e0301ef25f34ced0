#include "console.h"

#include <array>
#include <cerrno>
#include <cstdlib>
#include <optional>
#include <sys/ioctl.h>
#include <unistd.h>

#include <fmt/format.h>

#include "trash_panda/base/file.h"

#include "environment.h"
#include "exit_code.h"
#include "json_text.h"
#include "table.h"

namespace trash_panda::cli {

namespace {

constexpr std::array<std::string_view, 3> kColorWords = {"auto", "always", "never"};
constexpr std::array<std::string_view, 4> kProgressWords = {"auto", "always", "never", "json"};

/// @see https://no-color.org and https://bixense.com/clicolors
bool shows_color(ColorMode mode, int fd) {
  if (mode != ColorMode::kAuto) {
    return mode == ColorMode::kAlways;
  }
  if (!environment_value("NO_COLOR").empty()) {
    return false;
  }
  const std::string forced = environment_value("CLICOLOR_FORCE");
  if (!forced.empty() && forced != "0") {
    return true;
  }
  const std::string terminal = environment_value("TERM");
  return ::isatty(fd) == 1 && !terminal.empty() && terminal != "dumb";
}

std::string_view escape_code(Style style) {
  switch (style) {
    case Style::kBold:
      return "1";
    case Style::kDim:
      return "2";
    case Style::kGreen:
      return "32";
    case Style::kYellow:
      return "33";
    case Style::kRed:
      return "31";
    case Style::kPlain:
      break;
  }
  return "";
}

std::string paint(Style style, std::string_view text, bool color) {
  if (!color || style == Style::kPlain || text.empty()) {
    return std::string(text);
  }
  return fmt::format("\x1b[{}m{}\x1b[0m", escape_code(style), text);
}

/// Writes all of `text`. @return 0, or the errno of the failure.
int write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written < 0) {
      return errno;
    }
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

/// As much of `text` as one line of the terminal shows: a longer one would scroll at each redraw.
std::string_view cut_to_terminal(std::string_view text) {
  struct winsize size = {};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 2) {
    return text;
  }
  while (display_width(text) >= size.ws_col) {
    text.remove_suffix(1);
  }
  return text;
}

}  // namespace

Result<ConsoleSettings> console_settings(const GlobalOptions& options) {
  ConsoleSettings settings;
  settings.json = options.json;
  settings.verbosity = options.quiet     ? Verbosity::kQuiet
                       : options.verbose ? Verbosity::kVerbose
                                         : Verbosity::kNormal;
  TP_ASSIGN_OR_RETURN(const std::optional<std::size_t> color,
                      choice_of(options.color, kColorWords));
  settings.color = static_cast<ColorMode>(color.value_or(0));
  TP_ASSIGN_OR_RETURN(const std::optional<std::size_t> progress,
                      choice_of(options.progress, kProgressWords));
  settings.progress = static_cast<ProgressMode>(progress.value_or(0));
  return settings;
}

Console::Console(const ConsoleSettings& settings)
    : settings_(settings),
      color_stdout_(shows_color(settings.color, STDOUT_FILENO)),
      color_stderr_(shows_color(settings.color, STDERR_FILENO)),
      stderr_is_terminal_(::isatty(STDERR_FILENO) == 1) {}

std::string Console::styled(Style style, std::string_view text) const {
  return paint(style, text, color_stdout_);
}

Result<void> Console::print(std::string_view text) {
  const std::scoped_lock lock(mutex_);
  const int error = write_all(STDOUT_FILENO, text);
  if (error != 0 && error != EPIPE) {
    return std::unexpected(
        Error::from_errno(error, "can't write the result to stdout", ErrorCode::kOutput));
  }
  return {};
}

void Console::write_line(std::string_view prefix, Style style, std::string_view line) {
  std::string text;
  const std::scoped_lock lock(mutex_);
  if (!status_.empty()) {
    text += "\r\x1b[K";
  }
  text += paint(style, prefix, color_stderr_);
  text += printable(line);
  text += '\n';
  text += status_;
  // Nobody is left to be told when stderr itself fails.
  static_cast<void>(write_all(STDERR_FILENO, text));
}

void Console::warn(std::string_view line) {
  if (settings_.verbosity == Verbosity::kQuiet) {
    return;
  }
  if (settings_.json) {
    write_line({}, Style::kPlain, json_line({{"type", "warning"}, {"message", line}}));
    return;
  }
  write_line("warning: ", Style::kYellow, line);
}

void Console::note(std::string_view line) {
  if (settings_.verbosity != Verbosity::kQuiet && !settings_.json) {
    write_line({}, Style::kPlain, line);
  }
}

void Console::debug(std::string_view line) {
  if (settings_.verbosity == Verbosity::kVerbose && !settings_.json) {
    write_line({}, Style::kPlain, line);
  }
}

void Console::fail(const Error& error, int exit_code) {
  if (!settings_.json) {
    write_line("error: ", Style::kRed, error.to_string());
    return;
  }
  const std::string_view code =
      error.reason().empty() ? error_code_name(error.code()) : error.reason();
  Json line = {{"type", "error"},
               {"code", code},
               {"exit", exit_code},
               {"message", error.message()},
               {"hint", error.hint()}};
  if (error.shortage()) {
    line["needed_bytes"] = error.shortage()->needed_bytes;
    line["budget_bytes"] = error.shortage()->budget_bytes;
  }
  write_line({}, Style::kPlain, json_line(line));
}

void Console::progress_line(std::string_view line) {
  write_line({}, Style::kPlain, line);
}

void Console::set_status(std::string_view text) {
  const std::scoped_lock lock(mutex_);
  if (text.empty() && status_.empty()) {
    return;
  }
  status_ = cut_to_terminal(text);
  static_cast<void>(write_all(STDERR_FILENO, fmt::format("\r{}\x1b[K", status_)));
}

Logger Console::logger() {
  return [this](LogLevel level, std::string_view line) {
    switch (level) {
      case LogLevel::kDebug:
        return debug(line);
      case LogLevel::kInfo:
        return note(line);
      case LogLevel::kWarning:
        return warn(line);
    }
  };
}

}  // namespace trash_panda::cli
