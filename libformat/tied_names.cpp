#include "tied_names.h"

#include <cstddef>
#include <string_view>

#include <fmt/format.h>

#include "trash_panda/base/file.h"

namespace trash_panda::format {

namespace {

/// A remark such as {"format": "pt"} is no tie, even where a tensor is named pt.
bool may_be_tie(std::string_view dropped, std::string_view kept) {
  return dropped != "__metadata__" && (dropped.contains('.') || kept.contains('.'));
}

/// Of a tie whose target is gone only the look of the two names tells.
bool looks_like_parameter(std::string_view name) {
  return (name.ends_with(".weight") || name.ends_with(".bias")) &&
         name.find_first_of(" \t\r\n\"{[") == std::string_view::npos;
}

}  // namespace

Result<std::map<std::string, std::string>> find_tied_names(const Checkpoint& checkpoint) {
  std::map<std::string, std::string> remarks;
  for (const CheckpointFile& file : checkpoint.files()) {
    remarks.insert(file.metadata.begin(), file.metadata.end());
  }
  std::map<std::string, std::string> ties;
  for (const auto& [dropped, target] : remarks) {
    if (checkpoint.find(dropped)) {
      continue;
    }
    const std::string* kept = &target;
    // As many steps as there are remarks at most, so that a circle ends.
    for (std::size_t step = 0; step < remarks.size() && !checkpoint.find(*kept); ++step) {
      const auto next = remarks.find(*kept);
      if (next == remarks.end()) {
        break;
      }
      kept = &next->second;
    }
    if (checkpoint.find(*kept) && may_be_tie(dropped, *kept)) {
      ties.insert({dropped, *kept});
    } else if (looks_like_parameter(dropped) && looks_like_parameter(target)) {
      return std::unexpected(
          Error(ErrorCode::kCorrupt,
                fmt::format("{} is tied to {} in __metadata__, but neither is stored",
                            printable(dropped), printable(target)))
              .with_reason("missing_tensor"));
    }
  }
  return ties;
}

}  // namespace trash_panda::format
