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

void replay_file(Target target, const std::filesystem::path& path) {
  // Said before, so that it is known when the target takes the program down.
  fmt::print("{}\n", path.string());
  std::fflush(stdout);
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  // An allocation of just this size, so that the address sanitizer sees a read past the end.
  const std::vector<char> input(text.begin(), text.end());
  target({input.data(), input.size()});
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
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    for (const std::filesystem::path& path : files_below(arguments[i])) {
      replay_file(target->second, path);
      ++count;
    }
  }
  target->second("");
  fmt::print("{} inputs replayed\n", count + 1);
  return count == 0 ? 1 : 0;
}

}  // namespace

}  // namespace trash_panda::fuzz

int main(int argument_count, char** arguments) {
  return trash_panda::fuzz::replay({arguments + 1, arguments + argument_count});
}
