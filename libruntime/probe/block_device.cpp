#include "block_device.h"

#include <algorithm>
#include <fstream>
#include <string_view>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace trash_panda::runtime {

namespace {

/// Devices are stacked a few deep (partition on LUKS on LVM on RAID); a loop must not hang us.
constexpr int kStackDepthMax = 8;

std::string sysfs_line(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  line.erase(line.find_last_not_of(" \t") + 1);
  return line;
}

std::string bus_of(const std::filesystem::path& device, std::string_view name) {
  const std::string& place = device.native();
  if (place.find("/usb") != std::string::npos) {
    return "usb";
  }
  if (name.starts_with("nvme")) {
    return "nvme";
  }
  if (name.starts_with("mmcblk")) {
    return "mmc";
  }
  if (place.find("/ata") != std::string::npos) {
    return "sata";
  }
  if (name.starts_with("vd") || place.find("/virtio") != std::string::npos) {
    return "virtio";
  }
  return {};
}

/// The whole drive that a partition belongs to.
std::filesystem::path whole_device(const std::filesystem::path& device) {
  std::error_code error;
  return std::filesystem::exists(device / "partition", error) ? device.parent_path() : device;
}

/// Devices that `device` is made of; itself when of none.
void collect_drives(const std::filesystem::path& device, int depth,
                    std::vector<std::filesystem::path>& drives) {
  const std::filesystem::path whole = whole_device(device);
  std::error_code error;
  bool is_made_of_others = false;
  if (depth < kStackDepthMax) {
    for (std::filesystem::directory_iterator slave(whole / "slaves", error), end;
         !error && slave != end; slave.increment(error)) {
      is_made_of_others = true;
      std::error_code gone;
      const std::filesystem::path device_path = std::filesystem::canonical(slave->path(), gone);
      collect_drives(gone ? slave->path() : device_path, depth + 1, drives);
    }
  }
  if (!is_made_of_others && std::ranges::find(drives, whole) == drives.end()) {
    drives.push_back(whole);
  }
}

std::optional<bool> rotational_of(const std::filesystem::path& drive, std::string_view bus) {
  const std::string flag = sysfs_line(drive / "queue" / "rotational");
  if (flag.empty() || bus == "virtio") {
    return std::nullopt;
  }
  return flag == "1";
}

}  // namespace

std::optional<BlockDevice> describe_block_device(const std::filesystem::path& sysfs,
                                                 const std::string& number) {
  std::error_code error;
  const std::filesystem::path device =
      std::filesystem::canonical(sysfs / "dev" / "block" / number, error);
  if (error) {
    return std::nullopt;
  }
  std::vector<std::filesystem::path> drives;
  collect_drives(device, 0, drives);
  std::ranges::sort(drives);
  std::vector<std::string> names;
  for (const std::filesystem::path& drive : drives) {
    names.push_back(drive.filename().native());
  }
  const std::string whole_name = whole_device(device).filename().native();
  BlockDevice described;
  described.name = names.size() == 1 && names.front() == whole_name
                       ? whole_name
                       : fmt::format("{} ({})", whole_name, fmt::join(names, ", "));
  // What is made of several drives is described by the first: they are alike in any sane set.
  const std::filesystem::path& drive = drives.front();
  described.bus = bus_of(drive, names.front());
  described.model = sysfs_line(drive / "device" / "model");
  for (const std::filesystem::path& part : drives) {
    const std::optional<bool> rotational =
        rotational_of(part, bus_of(part, part.filename().native()));
    if (rotational && (!described.is_rotational || *rotational)) {
      described.is_rotational = rotational;
    }
  }
  return described;
}

}  // namespace trash_panda::runtime
