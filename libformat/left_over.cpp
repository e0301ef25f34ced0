#include "left_over.h"

#include <algorithm>
#include <optional>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include "trash_panda/base/printable.h"
#include "trash_panda/format/linked_shard.h"
#include "trash_panda/format/manifest.h"
#include "trash_panda/format/pack_writer.h"
#include "trash_panda/format/tier.h"

namespace trash_panda::format {

namespace {

Error not_ours(const std::filesystem::path& staging, std::string_view why) {
  return Error(ErrorCode::kOutput,
               fmt::format("{} exists and is not what an interrupted repack left: {}",
                           printable(staging), why))
      .with_hint("move it away or choose another output");
}

/// "gpu-00001.safetensors"; see lay_out_pack().
bool is_shard_name(std::string_view name) {
  constexpr std::string_view kSuffix = ".safetensors";
  constexpr std::size_t kDigits = 5;
  const std::size_t dash = name.find('-');
  if (dash == std::string_view::npos || !parse_tier(name.substr(0, dash))) {
    return false;
  }
  const std::string_view rest = name.substr(dash + 1);
  return rest.size() == kDigits + kSuffix.size() && rest.ends_with(kSuffix) &&
         rest.find_first_not_of("0123456789") == kDigits;
}

}  // namespace

bool is_pack_name(std::string_view name) {
  return name == kManifestName || name == kPackPlanName || is_shard_name(name);
}

Result<void> check_left_over_folder(const std::filesystem::path& staging) {
  struct stat status = {};
  if (::lstat(staging.c_str(), &status) != 0) {
    return std::unexpected(not_ours(staging, "it can't be looked at"));
  }
  if (!S_ISDIR(status.st_mode)) {
    return std::unexpected(
        not_ours(staging, S_ISLNK(status.st_mode) ? "it is a symbolic link" : "it is no folder"));
  }
  if (status.st_uid != ::geteuid()) {
    return std::unexpected(not_ours(staging, "it belongs to another user"));
  }
  return {};
}

Result<void> check_left_over_entries(const std::filesystem::path& staging,
                                     const std::vector<std::filesystem::path>& entries,
                                     const SourceWatch& source, OwnName is_own) {
  for (const std::filesystem::path& entry : entries) {
    const std::string name = printable(entry.filename());
    struct stat status = {};
    const std::string file_name = entry.filename().native();
    const bool has_own_name = file_name == kStagingMarkName || is_own(file_name);
    const std::optional<std::filesystem::path> linked = linked_file(entry);
    if (!has_own_name || ::lstat(entry.c_str(), &status) != 0 ||
        (!S_ISREG(status.st_mode) && !linked)) {
      return std::unexpected(not_ours(staging, fmt::format("no such run makes {} in it", name)));
    }
    if (linked && ::stat(linked->c_str(), &status) != 0) {
      continue;  // The link is made first.
    }
    if (source.has_file(status)) {
      return std::unexpected(
          not_ours(staging, fmt::format("{} in it is a file of the source", name)));
    }
  }
  const bool is_marked = std::ranges::any_of(entries, [](const std::filesystem::path& entry) {
    return entry.filename() == kStagingMarkName;
  });
  if (!entries.empty() && !is_marked) {
    return std::unexpected(not_ours(staging, fmt::format("it has no {}", kStagingMarkName)));
  }
  return {};
}

}  // namespace trash_panda::format
