#include "pack_target.h"

#include <array>
#include <cstdio>
#include <fcntl.h>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trash_panda/base/file.h"
#include "trash_panda/base/file_system.h"

#include "output_file.h"
#include "pack_folder.h"

namespace trash_panda::cli {

namespace {

namespace fs = std::filesystem;

/// Added to the staged name where a pack waits for its removal.
constexpr std::string_view kOldSuffix = ".old";

/// "model.safetensors", "model.safetensors.index.json" and "model.ckpt" → "model".
std::string stem_of(const fs::path& path) {
  std::string name = path.filename().native();
  const auto take_off = [&name](std::string_view suffix) {
    const bool ends_so = name.size() > suffix.size() && name.ends_with(suffix);
    name.resize(name.size() - (ends_so ? suffix.size() : 0));
    return ends_so;
  };
  take_off(".index.json");
  constexpr std::array<std::string_view, 5> kEndings = {".safetensors", ".bin", ".pt", ".pth",
                                                        ".ckpt"};
  for (const std::string_view ending : kEndings) {
    if (take_off(ending)) {
      break;
    }
  }
  return name;
}

/// "models/flux/", "models/flux/." and "." as paths that end with the folder's own name; a link
/// keeps the name that the user sees.
fs::path with_own_name(fs::path path) {
  while (path.has_parent_path() && (!path.has_filename() || path.filename() == ".") &&
         path != path.root_path()) {
    path = path.parent_path();
  }
  if (path.filename() == "." || path.filename() == "..") {
    std::error_code error;
    const fs::path real = fs::canonical(path, error);
    return error ? path : real;
  }
  return path;
}

fs::path default_target(const Setting& model, const fs::path& model_path) {
  std::error_code error;
  if (!fs::exists(model.text, error)) {
    // org/name[@rev][:subfolder], found in the cache.
    std::string name = model.text.substr(0, model.text.find_first_of("@:"));
    name = name.substr(name.rfind('/') + 1);
    return name + ".panda";
  }
  const fs::path path = with_own_name(model_path);
  return path.parent_path() / (stem_of(path) + ".panda");
}

/// What the file of the disk tier's shard is to be called, up to what the library adds.
Result<fs::path> disk_prefix(const Setting& disk_dir, const fs::path& target) {
  if (!disk_dir.given()) {
    return fs::path();
  }
  TP_RETURN_IF_ERROR(check_output_folder(disk_dir.text, "--disk-dir"));
  std::error_code error;
  const fs::path folder = fs::canonical(disk_dir.text, error);
  if (error) {
    return std::unexpected(Error::from_errno(
        error.value(), fmt::format("can't find {}", printable(fs::path(disk_dir.text)))));
  }
  return folder / target.filename();
}

/// Takes over the pack that is to be replaced, and clears away what an interrupted run left.
Result<std::unique_ptr<DirectoryLock>> lock_replaced(const PackTarget& target, Console& console) {
  FileSystem& files = FileSystem::posix();
  TP_ASSIGN_OR_RETURN(std::unique_ptr<DirectoryLock> lock, lock_pack(target.final, console));
  fs::path old = target.staged;
  old += kOldSuffix;
  for (const fs::path& left : {target.staged, old}) {
    if (files.exists(left)) {
      TP_RETURN_IF_ERROR(remove_pack(left, console.logger()));
      console.note(fmt::format("removed {}, which an interrupted run left", printable(left)));
    }
  }
  return lock;
}

}  // namespace

Result<std::unique_ptr<DirectoryLock>> lock_pack(const fs::path& pack, Console& console) {
  Result<std::unique_ptr<DirectoryLock>> locked = FileSystem::posix().lock_directory(pack);
  if (!locked && locked.error().code() == ErrorCode::kUnsupported) {
    console.warn(
        fmt::format("{}: make sure that nothing else replaces it", locked.error().message()));
    return nullptr;
  }
  return locked;
}

Result<PackTarget> choose_target(const RepackOptions& options, const fs::path& model_path,
                                 TargetUse use, Console& console) {
  PackTarget target;
  target.final = options.output.given() ? with_own_name(options.output.text)
                                        : default_target(options.model, model_path);
  target.staged = target.final;
  const fs::path folder = folder_of(target.final);
  TP_RETURN_IF_ERROR(check_output_folder(folder, "-o"));
  TP_ASSIGN_OR_RETURN(target.disk_prefix, disk_prefix(options.disk_dir, target.final));
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
  TP_ASSIGN_OR_RETURN(const std::vector<fs::path> old, list_replaceable_pack(target.final));
  target.replaces = true;
  // Always the same name: what an interrupted run left there is found by the next one.
  target.staged = folder / fmt::format(".{}.new", target.final.filename().native());
  if (use == TargetUse::kWrite) {
    TP_ASSIGN_OR_RETURN(target.lock, lock_replaced(target, console));
  }
  return target;
}

Result<void> publish_pack(const PackTarget& target, Console& console) {
  if (!target.replaces) {
    return {};
  }
  FileSystem& files = FileSystem::posix();
  // What was put into the old pack while the new one was written is a reason to stop.
  TP_ASSIGN_OR_RETURN(const std::vector<fs::path> replaceable, list_replaceable_pack(target.final));
  fs::path old = target.staged;
  // One step where the filesystem can: there is a complete pack under the name at any moment.
  if (::renameat2(AT_FDCWD, target.staged.c_str(), AT_FDCWD, target.final.c_str(),
                  RENAME_EXCHANGE) != 0) {
    old += kOldSuffix;
    TP_RETURN_IF_ERROR(files.rename(target.final, old));
    TP_RETURN_IF_ERROR(files.rename(target.staged, target.final));
  }
  TP_RETURN_IF_ERROR(files.sync_directory(fs::absolute(target.final).parent_path()));
  if (const Result<void> removed = remove_pack(old, console.logger()); !removed) {
    // The new pack is in place: that is what was asked for.
    console.warn(
        fmt::format("the old pack is left in {}: {}", printable(old), removed.error().message()));
  }
  return {};
}

}  // namespace trash_panda::cli
