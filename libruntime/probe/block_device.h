#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace trash_panda::runtime {

/// A drive, as sysfs describes it.
struct BlockDevice {
  std::string name;   ///< "nvme0n1"; of a mapped device its parts too: "dm-0 (nvme0n1)".
  std::string model;  ///< As the drive calls itself; never its serial number.
  std::string bus;    ///< "nvme", "sata", "usb", "virtio", "mmc"; empty where unknown.
  /// Nothing where the kernel only guesses: virtual disks call themselves rotational.
  std::optional<bool> is_rotational;
};

/// Describes the device with a number, such as a partition.
///
/// @param sysfs   Where sysfs is; a parameter for tests.
/// @param number  "259:2".
[[nodiscard]] std::optional<BlockDevice> describe_block_device(const std::filesystem::path& sysfs,
                                                               const std::string& number);

}  // namespace trash_panda::runtime
