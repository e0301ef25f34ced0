#include "trash_panda/format/linked_shard.h"

#include <array>
#include <cstddef>
#include <fcntl.h>
#include <random>
#include <string>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <system_error>

#include <fmt/format.h>

#include "trash_panda/base/printable.h"

namespace trash_panda::format {

namespace {

constexpr std::size_t kTagDigits = 8;
/// Extended attribute of the file: the link that it was made for.
constexpr const char* kOwnerAttribute = "user.trash_panda.link";

/// Whether another pack has the same link.
bool is_shared(const std::filesystem::path& link) {
  struct stat status = {};
  return ::lstat(link.c_str(), &status) == 0 && status.st_nlink > 1;
}

/// The link that a file was made for; empty where none is known.
std::string recorded_owner(const std::filesystem::path& file) {
  std::array<char, 128> text{};
  const ssize_t size = ::getxattr(file.c_str(), kOwnerAttribute, text.data(), text.size());
  return size < 0 ? std::string() : std::string(text.data(), static_cast<std::size_t>(size));
}

/// Whether no pack but that of the link can need the file.
bool is_removable(const std::filesystem::path& file, const std::filesystem::path& link) {
  const std::string owner = recorded_owner(file);
  std::error_code error;
  // One without an owner is one of a run that was killed right after it had made it.
  return owner.empty() ? std::filesystem::file_size(file, error) == 0 && !error
                       : owner == file_identity(link);
}

}  // namespace

std::string file_identity(const std::filesystem::path& path) {
  struct statx status = {};
  if (::statx(AT_FDCWD, path.c_str(), AT_SYMLINK_NOFOLLOW, STATX_INO | STATX_BTIME, &status) != 0) {
    return {};
  }
  return fmt::format("{} {}.{:09}", status.stx_ino, status.stx_btime.tv_sec,
                     status.stx_btime.tv_nsec);
}

std::filesystem::path new_linked_file(const std::filesystem::path& prefix,
                                      std::string_view shard_name) {
  std::random_device random;
  std::filesystem::path file = prefix;
  file += fmt::format(".{:08x}.{}", random() & 0xffff'ffffU, shard_name);
  return file;
}

std::optional<std::filesystem::path> linked_file(const std::filesystem::path& shard) {
  std::error_code error;
  std::filesystem::path file = std::filesystem::read_symlink(shard, error);
  if (error || !file.is_absolute()) {
    return std::nullopt;
  }
  const std::string name = file.filename().native();
  const std::string ending = "." + shard.filename().native();
  if (!name.ends_with(ending) || name.size() < ending.size() + kTagDigits + 2) {
    return std::nullopt;
  }
  const std::size_t tag = name.size() - ending.size() - kTagDigits;
  const bool is_tagged = name[tag - 1] == '.' && name.find_first_not_of("0123456789abcdef", tag) ==
                                                     name.size() - ending.size();
  return is_tagged ? std::optional(std::move(file)) : std::nullopt;
}

void own_linked_file(const std::filesystem::path& shard) {
  if (const std::optional<std::filesystem::path> file = linked_file(shard)) {
    const std::string owner = file_identity(shard);
    // Where the filesystem has no such attributes, the file is left when its pack is removed.
    ::setxattr(file->c_str(), kOwnerAttribute, owner.data(), owner.size(), 0);
  }
}

Result<void> remove_pack_file(FileSystem& file_system, const std::filesystem::path& path,
                              const Logger& log) {
  // The link last: where this is cut short, it still says what is left.
  if (const std::optional<std::filesystem::path> file = linked_file(path);
      file && !is_shared(path) && file_system.exists(*file)) {
    if (is_removable(*file, path)) {
      TP_RETURN_IF_ERROR(file_system.remove_all(*file));
    } else {
      log(LogLevel::kWarning,
          fmt::format("{} is left: {} is not the link that it was made for, so another pack may "
                      "need it",
                      printable(*file), printable(path)));
    }
  }
  return file_system.remove_all(path);
}

}  // namespace trash_panda::format
