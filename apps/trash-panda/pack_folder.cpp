#include "pack_folder.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <unistd.h>

#include <fmt/format.h>

#include "trash_panda/base/file.h"
#include "trash_panda/base/file_system.h"
#include "trash_panda/base/units.h"
#include "trash_panda/format/linked_shard.h"
#include "trash_panda/format/manifest.h"
#include "trash_panda/format/pack_writer.h"

#include "output_file.h"

namespace trash_panda::cli {

namespace {

namespace fs = std::filesystem;

/// The format is the first member of a manifest.
constexpr std::uint64_t kManifestStartBytes = 4 * kKiB;
/// The metadata are the first member of a shard's header, and say first that it is one.
constexpr std::uint64_t kShardStartBytes = 512;
constexpr std::string_view kShardMark = R"("trash_panda":"one shard of a pack )";
/// What libformat reads at most.
constexpr std::uint64_t kManifestBytesMax = kGiB;

/// `"format": "trash-panda/pack"`, whatever the white space between.
bool names_our_format(std::string_view text) {
  const auto skip_space = [&text] {
    while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front())) != 0) {
      text.remove_prefix(1);
    }
  };
  constexpr std::string_view kKey = "\"format\"";
  for (std::size_t at = text.find(kKey); at != std::string_view::npos; at = text.find(kKey)) {
    text.remove_prefix(at + kKey.size());
    skip_space();
    if (!text.starts_with(':')) {
      continue;
    }
    text.remove_prefix(1);
    skip_space();
    if (text.starts_with(fmt::format("\"{}\"", format::kPackFormat))) {
      return true;
    }
  }
  return false;
}

/// The first bytes of a file, at most `size_bytes`; nothing where it can't be read.
std::string read_start(const fs::path& path, std::uint64_t size_bytes) {
  const Result<File> file = File::open(path);
  if (!file) {
    return {};
  }
  std::string text(std::min(file->size_bytes(), size_bytes), '\0');
  return file->read_exact_at(0, std::as_writable_bytes(std::span(text))) ? text : std::string();
}

bool has_shard(const fs::path& folder) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().extension() == ".safetensors" &&
        read_start(entry->path(), kShardStartBytes).contains(kShardMark)) {
      return true;
    }
  }
  return false;
}

Error not_replaced(const fs::path& path, std::string_view why) {
  return Error(ErrorCode::kOutput, fmt::format("{} is not replaced: {}", printable(path), why))
      .with_hint("move it away, or choose another name with -o");
}

Error system_refused(const std::error_code& error, std::string_view what) {
  return Error::from_errno(error.value(), what, ErrorCode::kOutput).with_code(ErrorCode::kOutput);
}

}  // namespace

bool is_pack(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path / format::kManifestName, ignored) &&
         (names_our_format(read_start(path / format::kManifestName, kManifestStartBytes)) ||
          has_shard(path));
}

Result<std::vector<fs::path>> list_replaceable_pack(const fs::path& path) {
  std::error_code error;
  if (fs::is_symlink(fs::symlink_status(path, error)) && is_pack(path)) {
    return std::unexpected(
        Error(ErrorCode::kOutput, fmt::format("{} is a link to a pack", printable(path)))
            .with_hint(
                fmt::format("name the pack itself: {}", printable(fs::canonical(path, error)))));
  }
  if (!fs::is_directory(fs::symlink_status(path, error)) || !is_pack(path)) {
    return std::unexpected(
        Error(ErrorCode::kOutput, fmt::format("{} exists and is no pack", printable(path)))
            .with_hint("choose another name with -o; --force replaces packs only"));
  }
  TP_ASSIGN_OR_RETURN(const std::string text,
                      read_small_file(path / format::kManifestName, kManifestBytesMax));
  const Result<format::Manifest> manifest =
      format::parse_manifest(text, printable(fs::path(format::kManifestName)));
  if (!manifest) {
    return std::unexpected(not_replaced(
        path,
        fmt::format("which files are a part of it can't be told, {}", manifest.error().message())));
  }
  // The mark of a pack in the making is left where a run was killed right after it was whole.
  std::set<std::string> own = {std::string(format::kManifestName),
                               std::string(format::kPackPlanName),
                               std::string(format::kStagingMarkName)};
  std::set<std::string> shards;
  for (const format::PackedShard& shard : manifest->shards) {
    shards.insert(shard.name);
  }
  own.insert(shards.begin(), shards.end());
  std::vector<fs::path> files;
  for (fs::directory_iterator entry(path, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().native();
    const fs::file_status status = fs::symlink_status(entry->path(), error);
    const bool is_file =
        fs::is_regular_file(status) || (fs::is_symlink(status) && shards.contains(name));
    if (!is_file || !own.contains(name)) {
      return std::unexpected(not_replaced(
          path, fmt::format("{} is not a part of the pack", printable(entry->path()))));
    }
    files.push_back(entry->path());
  }
  if (error) {
    return std::unexpected(system_refused(error, fmt::format("can't list {}", printable(path))));
  }
  return files;
}

Result<void> refuse_source_inside(const fs::path& folder, const format::Checkpoint& checkpoint) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    for (const format::CheckpointFile& file : checkpoint.files()) {
      std::error_code ignored;
      if (fs::equivalent(entry->path(), file.path, ignored)) {
        return std::unexpected(not_replaced(
            folder, fmt::format("{} is a part of the model itself", printable(entry->path()))));
      }
    }
  }
  if (error) {
    return std::unexpected(system_refused(error, fmt::format("can't list {}", printable(folder))));
  }
  return {};
}

Result<void> remove_pack(const fs::path& path, const Logger& log) {
  if (::rmdir(path.c_str()) == 0) {
    return {};  // Empty: a removal that was cut short.
  }
  TP_ASSIGN_OR_RETURN(std::vector<fs::path> files, list_replaceable_pack(path));
  // The manifest last: what is left of a removal that was cut short is still known as a pack.
  std::ranges::partition(
      files, [](const fs::path& file) { return file.filename() != format::kManifestName; });
  for (const fs::path& file : files) {
    TP_RETURN_IF_ERROR(format::remove_pack_file(FileSystem::posix(), file, log));
  }
  if (::rmdir(path.c_str()) != 0 && errno != ENOENT) {
    return std::unexpected(Error::from_errno(errno, fmt::format("can't remove {}", printable(path)),
                                             ErrorCode::kOutput));
  }
  return {};
}

}  // namespace trash_panda::cli
