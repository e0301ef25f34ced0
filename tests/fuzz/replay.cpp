// Runs inputs that once broke something, and the seeds, through their target, by the ordinary
// compiler: `tests_fuzz TARGET FOLDER…`.

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "fuzz_target.h"

namespace trash_panda::fuzz {

namespace {

std::vector<std::filesystem::path> files_below(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  if (std::filesystem::is_directory(folder)) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
      if (entry.is_regular_file()) {
        files.push_back(entry.path());
      }
    }
  }
  return files;
}

bool replay_file(Target target, const std::filesystem::path& path) {
  // Said before, so that it is known when the target takes the program down.
  fmt::print("{}\n", path.string());
  std::fflush(stdout);
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  // An allocation of just this size, so that the address sanitizer sees a read past the end.
  const std::vector<char> input(text.begin(), text.end());
  return target({input.data(), input.size()});
}

int replay(const std::vector<std::string>& arguments) {
  const auto target = arguments.empty() ? targets().end() : targets().find(arguments.front());
  if (target == targets().end()) {
    fmt::print(stderr, "usage: tests_fuzz TARGET FOLDER…; targets:\n");
    for (const auto& [name, function] : targets()) {
      fmt::print(stderr, "  {}\n", name);
    }
    return 2;
  }
  std::size_t count = 0;
  std::size_t taken_count = 0;
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    for (const std::filesystem::path& path : files_below(arguments[i])) {
      taken_count += replay_file(target->second, path) ? 1U : 0U;
      ++count;
    }
  }
  TP_ASSERT(!target->second(""));
  fmt::print("{} inputs replayed, {} of them good ones\n", count + 1, taken_count);
  // Seeds that are all refused, as after a change of the format, reach little of a parser.
  return taken_count == 0 ? 1 : 0;
}

}  // namespace

}  // namespace trash_panda::fuzz

int main(int argument_count, char** arguments) {
  return trash_panda::fuzz::replay({arguments + 1, arguments + argument_count});
}
