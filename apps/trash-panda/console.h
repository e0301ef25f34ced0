#pragma once

#include <mutex>
#include <string>
#include <string_view>

#include "trash_panda/base/error.h"
#include "trash_panda/base/log.h"

#include "command_options.h"

namespace trash_panda::cli {

/// How a stretch of text looks on a terminal that shows colours.
enum class Style { kPlain, kBold, kDim, kGreen, kYellow, kRed };

/// How the program talks, decided once: what is silent, what is coloured, what is JSON.
struct ConsoleSettings {
  bool json = false;
  Verbosity verbosity = Verbosity::kNormal;
  ProgressMode progress = ProgressMode::kAuto;
  ColorMode color = ColorMode::kAuto;
};

/// Reads the global options. @retval kUsage  A word that --color or --progress does not know.
Result<ConsoleSettings> console_settings(const GlobalOptions& options);

/// The two output streams: the result on stdout, everything else on stderr.
///
/// Thread-safe: a progress bar draws from its own thread.
class Console {
 public:
  explicit Console(const ConsoleSettings& settings);

  [[nodiscard]] bool json() const { return settings_.json; }
  [[nodiscard]] const ConsoleSettings& settings() const { return settings_; }
  /// Whether stderr is a terminal that can redraw a line.
  [[nodiscard]] bool stderr_is_terminal() const { return stderr_is_terminal_; }

  /// `text` in a style, for stdout; unchanged where stdout shows no colours.
  [[nodiscard]] std::string styled(Style style, std::string_view text) const;

  /// Writes the result to stdout. A reader that went away is no error.
  /// @retval kOutput  stdout can't be written, e.g. its drive is full.
  Result<void> print(std::string_view text);

  /// Lines on stderr; dropped when quiet. With --json a warning is a JSON object and a note is
  /// dropped.
  void warn(std::string_view line);
  void note(std::string_view line);
  /// Only when verbose.
  void debug(std::string_view line);
  /// The failure that ends the program.
  void fail(const Error& error, int exit_code);
  /// A line on stderr whatever the verbosity: progress has its own switch.
  void progress_line(std::string_view line);

  /// Draws `text` over the status line of a terminal, "" clears it.
  void set_status(std::string_view text);

  /// For libraries: warnings and notes as above.
  [[nodiscard]] Logger logger();

 private:
  void write_line(std::string_view prefix, Style style, std::string_view line);

  ConsoleSettings settings_;
  bool color_stdout_;
  bool color_stderr_;
  bool stderr_is_terminal_;
  std::mutex mutex_;
  std::string status_;
};

}  // namespace trash_panda::cli
