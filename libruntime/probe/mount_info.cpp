#include "mount_info.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <fcntl.h>
#include <fstream>
#include <sstream>
#include <sys/stat.h>
#include <utility>

#include <fmt/format.h>

#include "trash_panda/base/file.h"

namespace trash_panda::runtime {

namespace {

/// Octal escapes of mountinfo: space, tab, line end and backslash.
std::string unescape_mount(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const std::string_view code = text.substr(at, 4);
    const bool is_escape =
        code.size() == 4 && code[0] == '\\' && std::ranges::all_of(code.substr(1), [](char digit) {
          return digit >= '0' && digit <= '7';
        });
    if (is_escape) {
      out += static_cast<char>((code[1] - '0') * 64 + (code[2] - '0') * 8 + (code[3] - '0'));
      at += 3;
    } else {
      out += text[at];
    }
  }
  return out;
}

constexpr std::string_view kNetworkAdvice =
    "a network filesystem: put models on a local drive for streaming";
constexpr std::string_view kFuseAdvice =
    "a FUSE filesystem: reads pass through another process; put models on a native one";

struct NamedTraits {
  std::string_view name;
  FilesystemTraits traits;
};

constexpr std::array kTraits = {
    NamedTraits{"9p",
                {true,
                 "9p is slow: under WSL keep models inside the Linux filesystem (~), "
                 "in a virtual machine on a disk of its own"}},
    NamedTraits{"drvfs",
                {true,
                 "a Windows drive seen from WSL is slow: keep models inside the "
                 "Linux filesystem (~)"}},
    NamedTraits{"virtiofs", {true, "shared by the host: a virtual disk is faster"}},
    NamedTraits{"nfs", {true, kNetworkAdvice}},
    NamedTraits{"nfs4", {true, kNetworkAdvice}},
    NamedTraits{"cifs", {true, kNetworkAdvice}},
    NamedTraits{"smb3", {true, kNetworkAdvice}},
    NamedTraits{"smbfs", {true, kNetworkAdvice}},
    NamedTraits{"ceph", {true, kNetworkAdvice}},
    NamedTraits{"glusterfs", {true, kNetworkAdvice}},
    NamedTraits{"lustre", {true, kNetworkAdvice}},
    NamedTraits{"gpfs", {true, kNetworkAdvice}},
    NamedTraits{"beegfs", {true, kNetworkAdvice}},
    NamedTraits{"afs", {true, kNetworkAdvice}},
    NamedTraits{"fuse.sshfs", {true, kNetworkAdvice}},
    NamedTraits{"fuse.rclone", {true, kNetworkAdvice}},
    NamedTraits{"fuse.glusterfs", {true, kNetworkAdvice}},
    NamedTraits{"fuse.s3fs", {true, kNetworkAdvice}},
    NamedTraits{"fuse.gcsfuse", {true, kNetworkAdvice}},
    NamedTraits{"fuseblk",
                {false,
                 "NTFS-3g or another driver in user space: mount the drive with "
                 "the kernel's (ntfs3), or put models on ext4 or xfs"}},
    NamedTraits{"overlay",
                {false,
                 "a container's layers: mount a folder of the host into the "
                 "container for models"}},
    NamedTraits{"tmpfs", {false, "in RAM already: weights that stream from here take RAM twice"}},
    NamedTraits{"ramfs", {false, "in RAM already: weights that stream from here take RAM twice"}},
    NamedTraits{"ecryptfs", {false, "encrypted per file, which is slow: put models outside of it"}},
};

/// Number of the mount, which also tells bind mounts and the subvolumes of btrfs apart. Kernels
/// before 5.8 don't have it.
std::string mount_id(const std::filesystem::path& path) {
#ifdef STATX_MNT_ID
  struct statx status = {};
  if (::statx(AT_FDCWD, path.c_str(), 0, STATX_MNT_ID, &status) == 0 &&
      (status.stx_mask & STATX_MNT_ID) != 0) {
    return fmt::format("{}", status.stx_mnt_id);
  }
#else
  static_cast<void>(path);
#endif
  return {};
}

}  // namespace

std::optional<MountInfo> parse_mount(std::istream& mountinfo, std::string_view id) {
  // 36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw
  std::string line;
  while (std::getline(mountinfo, line)) {
    std::istringstream fields(line);
    std::string found_id;
    std::string skipped;
    std::string root;
    std::string options;
    fields >> found_id >> skipped >> skipped >> root >> skipped >> options;
    const std::size_t separator = line.find(" - ");
    if (found_id != id || separator == std::string::npos) {
      continue;
    }
    std::istringstream rest(line.substr(separator + 3));
    MountInfo mount;
    std::string super_options;
    rest >> mount.filesystem >> mount.source >> super_options;
    mount.source = unescape_mount(mount.source);
    mount.root = unescape_mount(root);
    mount.is_read_only =
        (options + ",").starts_with("ro,") || (super_options + ",").starts_with("ro,");
    return mount;
  }
  return std::nullopt;
}

MountInfo find_mount(const std::filesystem::path& path) {
  if (const std::string id = mount_id(path); !id.empty()) {
    std::ifstream mountinfo("/proc/self/mountinfo");
    if (std::optional<MountInfo> mount = parse_mount(mountinfo, id)) {
      return *std::move(mount);
    }
  }
  return {.filesystem = filesystem_name(path), .source = {}, .root = {}, .is_read_only = false};
}

FilesystemTraits filesystem_traits(std::string_view filesystem) {
  const auto found = std::ranges::find(kTraits, filesystem, &NamedTraits::name);
  if (found != kTraits.end()) {
    return found->traits;
  }
  if (filesystem == "fuse" || filesystem.starts_with("fuse.")) {
    return {.is_network = false, .advice = kFuseAdvice};
  }
  return {};
}

}  // namespace trash_panda::runtime
