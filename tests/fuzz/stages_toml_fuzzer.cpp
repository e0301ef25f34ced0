// The text of a file of --stages.

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "trash_panda/plan/stages_toml.h"

#include "fuzz_target.h"

namespace trash_panda::fuzz {

namespace {

bool fuzz_stages_toml(std::string_view input) {
  constexpr std::array<std::string_view, 3> kOptionNames = {"max_ram", "no_disk", "assign"};
  const Result<std::vector<plan::StageEntry>> parsed =
      plan::parse_stages_toml(input, "stages.toml", kOptionNames);
  if (!parsed) {
    check_refusal(parsed.error());
    return false;
  }
  TP_ASSERT(!parsed->empty());
  for (const plan::StageEntry& stage : *parsed) {
    // It names a file: of one folder, and not a hidden one.
    TP_ASSERT(!stage.name.empty() && stage.name.front() != '.');
    TP_ASSERT(stage.name.find('/') == std::string::npos);
    TP_ASSERT(stage.step_count >= 1);
    for (const auto& [key, text] : stage.options) {
      TP_ASSERT(std::ranges::find(kOptionNames, key) != kOptionNames.end());
    }
  }
  return true;
}

[[maybe_unused]] const bool kStagesTomlAdded = add_target("stages_toml", fuzz_stages_toml);

}  // namespace

}  // namespace trash_panda::fuzz
