#include "environment.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "trash_panda/base/file.h"
#include "trash_panda/base/nearest_name.h"

namespace trash_panda::cli {

namespace {

constexpr std::string_view kPrefix = "TRASH_PANDA_";

constexpr const char* kIoVariable = "TRASH_PANDA_IO";
/// That stand for no option. All but the first are read by the Python package only: right in one
/// shell together with ours.
constexpr std::array<std::string_view, 5> kOtherVariables = {
    kIoVariable, "TRASH_PANDA_PINNED_BUFFERS", "TRASH_PANDA_BLOCKS_IN_FLIGHT",
    "TRASH_PANDA_PROFILE", "TRASH_PANDA_LOG"};

}  // namespace

std::string environment_value(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

format::HubCacheEnvironment hub_cache_environment() {
  // As huggingface_hub looks: the older name of the variable, and the desktop's cache folder.
  const std::string hub_cache = environment_value("HF_HUB_CACHE");
  const std::string hf_home = environment_value("HF_HOME");
  const std::string cache_home = environment_value("XDG_CACHE_HOME");
  return {.hub_cache = hub_cache.empty() ? environment_value("HUGGINGFACE_HUB_CACHE") : hub_cache,
          .hf_home = hf_home.empty() && !cache_home.empty() ? cache_home + "/huggingface" : hf_home,
          .home = environment_value("HOME")};
}

Result<runtime::IoBackend> io_backend() {
  const std::string value = environment_value(kIoVariable);
  if (value.empty()) {
    return runtime::IoBackend::kAuto;
  }
  Result<runtime::IoBackend> backend = runtime::parse_io_backend(value);
  return backend ? backend : std::unexpected(std::move(backend).error().with_context(kIoVariable));
}

std::vector<std::string> unknown_variables(const CommandDescriptions& commands) {
  std::vector<std::string_view> known(kOtherVariables.begin(), kOtherVariables.end());
  for (const CommandDescription& command : commands) {
    for (const OptionDescription& option : command.options) {
      if (!option.environment.empty()) {
        known.push_back(option.environment);
      }
    }
  }
  // Compared without the common prefix, which would make every name look near.
  std::vector<std::string_view> rests(known.begin(), known.end());
  for (std::string_view& rest : rests) {
    rest.remove_prefix(kPrefix.size());
  }
  std::vector<std::string> warnings;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::string_view name = text.substr(0, text.find('='));
    if (!name.starts_with(kPrefix) || std::ranges::find(known, name) != known.end()) {
      continue;
    }
    const std::string_view nearest = nearest_name(name.substr(kPrefix.size()), rests);
    warnings.push_back(fmt::format(
        "{} is not a variable of trash-panda{}", printable(name),
        nearest.empty() ? std::string() : fmt::format("; did you mean {}{}?", kPrefix, nearest)));
  }
  return warnings;
}

}  // namespace trash_panda::cli
