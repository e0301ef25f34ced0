#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <sys/types.h>
#include <vector>

namespace trash_panda::testing {

/// How a run of the program ended and what it said.
struct RunResult {
  int exit_code = -1;  ///< As a shell reports it: 128 + n for a process that signal n ended.
  std::string out;
  std::string err;
  std::uint64_t peak_bytes = 0;  ///< Of its memory; that of this program where that is more.
};

struct RunOptions {
  std::filesystem::path folder = "/";              ///< Working folder.
  std::map<std::string, std::string> environment;  ///< Beside PATH, HOME and TMPDIR.
  std::string program;                             ///< Empty: trash-panda.
};

/// A program that runs beside the test. Its output goes to files, so that it never blocks.
class RunningProgram {
 public:
  RunningProgram(const std::vector<std::string>& arguments, const RunOptions& options);
  RunningProgram(const RunningProgram&) = delete;
  RunningProgram& operator=(const RunningProgram&) = delete;
  /// Kills it if it still runs.
  ~RunningProgram();

  void send(int signal) const;
  /// What it has said on stderr up to now.
  [[nodiscard]] std::string err_so_far() const;
  /// Waits for its end. Throws when that takes longer.
  RunResult wait(std::chrono::milliseconds limit = std::chrono::seconds(60));

 private:
  std::filesystem::path folder_;  ///< Of the output files.
  pid_t pid_ = -1;
};

/// Runs trash-panda to its end.
RunResult run_program(const std::vector<std::string>& arguments, const RunOptions& options = {});

/// Runs a shell command to its end; "$TP" is the program.
RunResult run_shell(const std::string& command, const RunOptions& options = {});

}  // namespace trash_panda::testing
