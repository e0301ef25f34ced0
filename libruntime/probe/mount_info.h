#pragma once

#include <filesystem>
#include <istream>
#include <optional>
#include <string>
#include <string_view>

namespace trash_panda::runtime {

/// The mount that a path lies on.
struct MountInfo {
  std::string filesystem = "unknown";  ///< "ext4", "fuse.sshfs"…
  std::string source = {};             ///< "/dev/nvme0n1p2", "server:/export".
  std::string root = {};               ///< What of the filesystem is mounted.
  bool is_read_only = false;
};

/// Finds the mount of `path`, which exists. "unknown" where the system doesn't tell.
[[nodiscard]] MountInfo find_mount(const std::filesystem::path& path);

/// The mount with this number in a file such as /proc/self/mountinfo. @see proc(5)
[[nodiscard]] std::optional<MountInfo> parse_mount(std::istream& mountinfo, std::string_view id);

/// What is known of a kind of filesystem.
struct FilesystemTraits {
  bool is_network = false;
  std::string_view advice;  ///< Empty: good for streaming.
};

/// @param filesystem  As MountInfo has it.
[[nodiscard]] FilesystemTraits filesystem_traits(std::string_view filesystem);

}  // namespace trash_panda::runtime
