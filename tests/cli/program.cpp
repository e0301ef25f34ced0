#include "program.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <stdexcept>
#include <sys/resource.h>
#include <sys/wait.h>
#include <system_error>
#include <thread>
#include <unistd.h>

#include <spawn.h>

#include "format/support/checkpoint_builder.h"

namespace trash_panda::testing {

namespace {

void check(int error, const char* what) {
  if (error != 0) {
    throw std::system_error(error, std::generic_category(), what);
  }
}

std::string value_of(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

/// A clean environment: the tester's own TRASH_PANDA_* and NO_COLOR must not decide.
std::vector<std::string> environment_of(const RunOptions& options) {
  std::map<std::string, std::string> environment = {
      {"PATH", value_of("PATH")}, {"HOME", "/nonexistent"}, {"TERM", "xterm"}, {"TP", TP_PROGRAM}};
  // Sanitizers read theirs.
  for (const char* name : {"TMPDIR", "ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS"}) {
    if (!value_of(name).empty()) {
      environment[name] = value_of(name);
    }
  }
  for (const auto& [name, value] : options.environment) {
    environment[name] = value;
  }
  std::vector<std::string> entries;
  for (const auto& [name, value] : environment) {
    entries.push_back(std::string(name).append("=").append(value));
  }
  return entries;
}

std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) {
    pointers.push_back(word.data());
  }
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

RunningProgram::RunningProgram(const std::vector<std::string>& arguments,
                               const RunOptions& options) {
  std::string pattern = (std::filesystem::temp_directory_path() / "tp-run-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) {
    throw std::runtime_error("can't make a temporary folder");
  }
  folder_ = pattern;
  const std::string program = options.program.empty() ? TP_PROGRAM : options.program;
  std::vector<std::string> words = {program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<std::string> environment = environment_of(options);

  posix_spawn_file_actions_t actions;
  check(::posix_spawn_file_actions_init(&actions), "init");
  ::posix_spawn_file_actions_addchdir_np(&actions, options.folder.c_str());
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, (folder_ / "out").c_str(),
                                     O_WRONLY | O_CREAT, 0600);
  ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, (folder_ / "err").c_str(),
                                     O_WRONLY | O_CREAT, 0600);
  const int error = ::posix_spawn(&pid_, program.c_str(), &actions, nullptr,
                                  pointers_to(words).data(), pointers_to(environment).data());
  ::posix_spawn_file_actions_destroy(&actions);
  check(error, program.c_str());
}

RunningProgram::~RunningProgram() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

void RunningProgram::send(int signal) const {
  ::kill(pid_, signal);
}

std::string RunningProgram::err_so_far() const {
  return read_text(folder_ / "err");
}

RunResult RunningProgram::wait(std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  int status = 0;
  struct rusage usage = {};
  while (true) {
    const pid_t ended = ::wait4(pid_, &status, WNOHANG, &usage);
    if (ended == pid_) {
      break;
    }
    if (ended < 0 && errno != EINTR) {
      check(errno, "wait4");
    }
    if (std::chrono::steady_clock::now() > deadline) {
      throw std::runtime_error("the program did not end within " + std::to_string(limit.count()) +
                               " ms");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  pid_ = -1;
  return {.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status),
          .out = read_text(folder_ / "out"),
          .err = read_text(folder_ / "err"),
          .peak_bytes = static_cast<std::uint64_t>(usage.ru_maxrss) * 1024};
}

RunResult run_program(const std::vector<std::string>& arguments, const RunOptions& options) {
  return RunningProgram(arguments, options).wait();
}

RunResult run_shell(const std::string& command, const RunOptions& options) {
  RunOptions shell = options;
  shell.program = "/bin/sh";
  return RunningProgram({"-c", command}, shell).wait();
}

}  // namespace trash_panda::testing
