#include <string>
#include <string_view>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>

#include <fmt/format.h>

#include "trash_panda/base/file.h"

#include "block_device.h"
#include "disk_probe.h"
#include "mount_info.h"

namespace trash_panda::runtime {

namespace {

std::string device_number(dev_t device) {
  return fmt::format("{}:{}", major(device), minor(device));
}

/// The drive under a file. Filesystems over several drives (btrfs) have a number of their own, so
/// that the mount's source has to tell.
std::optional<BlockDevice> find_device(const struct stat& status, const MountInfo& mount) {
  if (major(status.st_dev) != 0) {
    return describe_block_device("/sys", device_number(status.st_dev));
  }
  struct stat source = {};
  if (mount.source.starts_with('/') && ::stat(mount.source.c_str(), &source) == 0 &&
      S_ISBLK(source.st_mode)) {
    return describe_block_device("/sys", device_number(source.st_rdev));
  }
  return std::nullopt;
}

void append_note(std::string& note, std::string_view addition) {
  note += note.empty() ? "" : "; ";
  note += addition;
}

}  // namespace

plan::DiskInfo describe_disk(const std::filesystem::path& path) {
  plan::DiskInfo disk;
  disk.path = path.native();
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0) {
    disk.note = "not found, or not readable";
    return disk;
  }
  const MountInfo mount = find_mount(path);
  const FilesystemTraits traits = filesystem_traits(mount.filesystem);
  disk.filesystem = mount.filesystem;
  disk.is_network = traits.is_network;
  disk.is_read_only = mount.is_read_only;
  disk.note = traits.advice;
  if (const std::optional<BlockDevice> device = find_device(status, mount)) {
    disk.device = device->name;
    disk.model = device->model;
    disk.bus = device->bus;
    disk.is_rotational = device->is_rotational;
    if (device->is_rotational.value_or(false)) {
      append_note(disk.note, "a hard disk: an SSD streams several times faster");
    }
    if (device->bus == "usb") {
      append_note(disk.note, "on USB: a drive on SATA or NVMe is faster and steadier");
    }
  }
  struct statvfs space = {};
  if (::statvfs(path.c_str(), &space) == 0) {
    disk.total_bytes = static_cast<std::uint64_t>(space.f_blocks) * space.f_frsize;
    disk.free_bytes = static_cast<std::uint64_t>(space.f_bavail) * space.f_frsize;
  }
  return disk;
}

}  // namespace trash_panda::runtime
