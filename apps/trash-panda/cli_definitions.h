#pragma once

#include <memory>
#include <span>
#include <string>

#include "trash_panda/base/error.h"

#include "command_description.h"
#include "command_options.h"

namespace trash_panda::cli {

/// The commands and options of the program: the one place that defines them. The parser behind it
/// stays in the source file, since it is slow to compile.
class CommandLine {
 public:
  CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;
  ~CommandLine();

  /// Reads the arguments (without the program's name), then the environment for what they left
  /// open. What was read so far is in invocation() even on failure.
  ///
  /// @retval kUsage  An unknown command or option (the hint has the nearest one), a missing value
  ///                 or argument.
  Result<void> parse(std::span<const std::string> arguments);

  [[nodiscard]] const Invocation& invocation() const { return invocation_; }
  [[nodiscard]] CommandDescriptions describe() const;

 private:
  struct Parser;

  Result<void> run_parser(std::span<const std::string> arguments);
  Result<void> check_leftovers() const;
  Result<void> check_positionals() const;
  Result<void> read_environment();

  Invocation invocation_;
  std::unique_ptr<Parser> parser_;
};

}  // namespace trash_panda::cli
