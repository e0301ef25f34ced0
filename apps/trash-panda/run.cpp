#include "run.h"

#include <cerrno>
#include <exception>
#include <fcntl.h>
#include <new>
#include <span>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "cli_definitions.h"
#include "commands.h"
#include "console.h"
#include "environment.h"
#include "exit_code.h"
#include "help_text.h"
#include "signals.h"

namespace trash_panda::cli {

namespace {

/// Runs a command whose answer is no exit code.
Result<void> run_plain_command(const Invocation& invocation, const CommandDescriptions& commands,
                               Console& console) {
  const std::string& command = invocation.command;
  if (command == "inspect") {
    return run_inspect(invocation.inspect, console);
  }
  if (command == "plan") {
    return run_plan(invocation.plan, console);
  }
  if (command == "simulate") {
    return run_simulate(invocation.simulate, console);
  }
  if (command == "explain") {
    return run_explain(invocation.explain, console);
  }
  if (command == "repack") {
    return run_repack(invocation.repack, console);
  }
  if (command == "verify") {
    return run_verify(invocation.verify, console);
  }
  if (command == "unpack") {
    return run_unpack(invocation.unpack, console);
  }
  if (command == "hwreport") {
    return run_hwreport(invocation.hwreport, console);
  }
  if (command == "bench") {
    return run_bench(invocation.bench, console);
  }
  if (command == "report") {
    return run_report(invocation.report, console);
  }
  if (command == "version") {
    return run_version(console);
  }
  if (command == "completion") {
    return run_completion(invocation.completion, commands, console);
  }
  TP_ASSERT(command == "help");
  return run_help(invocation.help, commands, console);
}

/// @return The exit code of a command that did not fail.
Result<int> run_command(const Invocation& invocation, const CommandDescriptions& commands,
                        Console& console) {
  if (invocation.command == "diff") {
    return run_diff(invocation.diff, console);
  }
  TP_RETURN_IF_ERROR(run_plain_command(invocation, commands, console));
  return kExitOk;
}

Result<int> run_invocation(const CommandLine& command_line, const CommandDescriptions& commands,
                           Console& console) {
  const Invocation& invocation = command_line.invocation();
  if (invocation.global.version) {
    TP_RETURN_IF_ERROR(run_version(console));
    return kExitOk;
  }
  if (invocation.global.help) {
    TP_RETURN_IF_ERROR(run_help({.command = {.text = invocation.command, .source = "COMMAND"}},
                                commands, console));
    return kExitOk;
  }
  if (invocation.command.empty()) {
    return std::unexpected(
        Error(ErrorCode::kUsage, "a command is missing").with_hint("see trash-panda --help"));
  }
  for (const std::string& warning : unknown_variables(commands)) {
    console.warn(warning);
  }
  return run_command(invocation, commands, console);
}

int finish(const Result<int>& result, Console& console) {
  if (result) {
    return *result;
  }
  const int code = exit_code(result.error().code());
  console.fail(result.error(), code);
  return code;
}

/// Gives the standard streams a file where the caller closed them: else the next file that is
/// opened, such as a shard, gets their number and all that is said. Writes to them go on failing.
void fill_standard_streams() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) == -1 && errno == EBADF) {
      // The lowest free number is this one.
      static_cast<void>(::open("/dev/null", O_RDONLY));
    }
  }
}

/// Runs what was asked for; libraries that throw end as any other failure does.
Result<int> run_guarded(const CommandLine& command_line, Console& console) {
  try {
    return run_invocation(command_line, command_line.describe(), console);
  } catch (const std::bad_alloc&) {
    return std::unexpected(
        Error(ErrorCode::kFailed, "not enough memory for the program itself")
            .with_reason("out_of_memory")
            .with_hint("a memory limit (ulimit -v, a control group) may be too low"));
  } catch (const std::exception& exception) {
    return std::unexpected(
        Error(ErrorCode::kFailed, fmt::format("unexpected: {}", exception.what())));
  }
}

}  // namespace

int run(int argc, char** argv) {
  fill_standard_streams();
  ignore_signals_of_writes();
  const std::span<char*> words(argv, static_cast<std::size_t>(argc));
  const std::vector<std::string> arguments(words.empty() ? words.begin() : words.begin() + 1,
                                           words.end());
  CommandLine command_line;
  const Result<void> parsed = command_line.parse(arguments);
  const GlobalOptions& options = command_line.invocation().global;
  const Result<ConsoleSettings> settings = console_settings(options);
  Console console(settings ? *settings : ConsoleSettings{.json = options.json});
  if (!parsed) {
    return finish(std::unexpected(parsed.error()), console);
  }
  if (!settings) {
    return finish(std::unexpected(settings.error()), console);
  }
  return finish(run_guarded(command_line, console), console);
}

}  // namespace trash_panda::cli
