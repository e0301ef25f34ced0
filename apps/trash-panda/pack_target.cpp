#include "pack_target.h"

#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <unistd.h>

#include <fmt/format.h>

#include "trash_panda/base/file.h"
#include "trash_panda/base/file_system.h"
#include "trash_panda/format/manifest.h"

#include "model_input.h"

namespace trash_panda::cli {

namespace {

namespace fs = std::filesystem;

/// "model.safetensors" and "model.safetensors.index.json" → "model".
std::string stem_of(const fs::path& path) {
  std::string name = path.filename().native();
  for (const std::string_view suffix : {".index.json", ".safetensors"}) {
    if (name.size() > suffix.size() && name.ends_with(suffix)) {
      name.resize(name.size() - suffix.size());
    }
  }
  return name;
}

fs::path default_target(const Setting& model, const fs::path& model_path) {
  std::error_code error;
  if (!fs::exists(model.text, error)) {
    // org/name[@rev][:subfolder], found in the cache.
    std::string name = model.text.substr(0, model.text.find_first_of("@:"));
    name = name.substr(name.rfind('/') + 1);
    return name + ".panda";
  }
  // "models/flux/" and "." get the folder's own name; a link keeps the name that the user sees.
  fs::path path = model_path;
  if (!path.has_filename()) {
    path = path.parent_path();
  }
  if (path.filename() == "." || path.filename() == "..") {
    path = fs::canonical(path, error);
  }
  return path.parent_path() / (stem_of(path) + ".panda");
}

/// A folder is replaced only if everything in it is a pack's: never what someone else put there.
Result<void> check_replaceable(const fs::path& path) {
  if (!is_pack(path)) {
    return std::unexpected(
        Error(ErrorCode::kOutput, fmt::format("{} exists and is no pack", printable(path)))
            .with_hint("choose another name with -o; --force replaces packs only"));
  }
  std::set<std::string> own = {std::string(format::kManifestName),
                               std::string(format::kPackPlanName)};
  if (const Result<format::Manifest> manifest = format::read_manifest(path)) {
    for (const format::PackedShard& shard : manifest->shards) {
      own.insert(shard.name);
    }
  }
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(path, error)) {
    const std::string name = entry.path().filename().native();
    // Shards of a damaged manifest are still recognised by their kind.
    if (!own.contains(name) && entry.path().extension() != ".safetensors") {
      return std::unexpected(
          Error(ErrorCode::kOutput, fmt::format("{} is not replaced: {} is not a part of a pack",
                                                printable(path), printable(entry.path())))
              .with_hint("move it away, or choose another name with -o"));
    }
  }
  return {};
}

Result<void> check_folder(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    return std::unexpected(
        Error(ErrorCode::kOutput, fmt::format("{} is not a folder", printable(folder)))
            .with_hint("make it first, or choose another place with -o"));
  }
  if (::access(folder.c_str(), W_OK | X_OK) != 0) {
    return std::unexpected(Error::from_errno(errno,
                                             fmt::format("can't write to {}", printable(folder)),
                                             ErrorCode::kOutput)
                               .with_hint("choose another place with -o"));
  }
  return {};
}

}  // namespace

Result<PackTarget> choose_target(const RepackOptions& options, const fs::path& model_path,
                                 TargetUse use) {
  PackTarget target;
  target.final = options.output.given() ? fs::path(options.output.text)
                                        : default_target(options.model, model_path);
  if (!target.final.has_filename()) {
    target.final = target.final.parent_path();  // "out/" is "out".
  }
  target.staged = target.final;
  if (use == TargetUse::kNone) {
    return target;
  }
  const fs::path folder =
      target.final.has_parent_path() ? target.final.parent_path() : fs::path(".");
  TP_RETURN_IF_ERROR(check_folder(folder));
  std::error_code error;
  if (!fs::exists(fs::symlink_status(target.final, error))) {
    return target;
  }
  if (!options.force) {
    return std::unexpected(
        Error(ErrorCode::kOutput, fmt::format("{} already exists", printable(target.final)))
            .with_hint(
                "--force replaces a pack once the new one is complete, -o writes elsewhere"));
  }
  TP_RETURN_IF_ERROR(check_replaceable(target.final));
  target.replaces = true;
  target.staged = folder / fmt::format(".{}.new-{}", target.final.filename().native(), ::getpid());
  return target;
}

Result<void> publish_pack(const PackTarget& target) {
  if (!target.replaces) {
    return {};
  }
  FileSystem& files = FileSystem::posix();
  // One step where the filesystem can: there is a complete pack under the name at any moment.
  if (::renameat2(AT_FDCWD, target.staged.c_str(), AT_FDCWD, target.final.c_str(),
                  RENAME_EXCHANGE) == 0) {
    TP_RETURN_IF_ERROR(files.sync_directory(fs::absolute(target.final).parent_path()));
    return files.remove_all(target.staged);
  }
  fs::path old = target.staged;
  old += ".old";
  TP_RETURN_IF_ERROR(files.rename(target.final, old));
  TP_RETURN_IF_ERROR(files.rename(target.staged, target.final));
  TP_RETURN_IF_ERROR(files.sync_directory(fs::absolute(target.final).parent_path()));
  return files.remove_all(old);
}

}  // namespace trash_panda::cli
