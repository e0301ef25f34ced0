#include "probe/block_device.h"

#include <filesystem>
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "base/support/temp_dir.h"

namespace trash_panda::runtime {
namespace {

using trash_panda::testing::TempDir;
using trash_panda::testing::write_text;

/// A recorded /sys with drives.
class Sysfs {
 public:
  /// @param place  Below devices/, such as "pci0000:00/nvme/nvme0/nvme0n1".
  void add(const std::string& number, const std::string& place, const std::string& rotational = "",
           const std::string& model = "") {
    const std::filesystem::path device = root_ / "devices" / place;
    std::filesystem::create_directories(device / "queue");
    if (!rotational.empty()) {
      write_text(device / "queue/rotational", rotational + "\n");
    }
    if (!model.empty()) {
      std::filesystem::create_directories(device / "device");
      write_text(device / "device/model", model + "   \n");
      write_text(device / "device/serial", "S3CR3TSERIAL\n");
    }
    link(number, device);
  }
  void add_partition(const std::string& number, const std::string& place) {
    const std::filesystem::path device = root_ / "devices" / place;
    std::filesystem::create_directories(device);
    write_text(device / "partition", "1\n");
    link(number, device);
  }
  void add_slave(const std::string& place, const std::string& slave_place) {
    const std::filesystem::path slaves = root_ / "devices" / place / "slaves";
    std::filesystem::create_directories(slaves);
    const std::filesystem::path slave = root_ / "devices" / slave_place;
    std::filesystem::create_directory_symlink(slave, slaves / slave.filename());
  }
  [[nodiscard]] std::optional<BlockDevice> describe(const std::string& number) const {
    return describe_block_device(root_.path(), number);
  }

 private:
  void link(const std::string& number, const std::filesystem::path& device) {
    const std::filesystem::path links = root_ / "dev/block";
    std::filesystem::create_directories(links);
    std::filesystem::create_directory_symlink(device, links / number);
  }

  TempDir root_;
};

TEST(DescribeBlockDevice, PartitionOfAnNvmeDrive) {
  Sysfs sysfs;
  sysfs.add("259:0", "pci0/nvme/nvme0/nvme0n1", "0", "WD_BLACK SN850X 2000GB");
  sysfs.add_partition("259:2", "pci0/nvme/nvme0/nvme0n1/nvme0n1p2");
  const auto device = sysfs.describe("259:2");
  ASSERT_TRUE(device);
  EXPECT_EQ(device->name, "nvme0n1");
  EXPECT_EQ(device->bus, "nvme");
  EXPECT_EQ(device->model, "WD_BLACK SN850X 2000GB");
  EXPECT_EQ(device->is_rotational, false);
}

TEST(DescribeBlockDevice, TellsBusesApart) {
  Sysfs sysfs;
  sysfs.add("8:0", "pci0/ata1/host0/sda", "1", "ST4000DM004");
  sysfs.add("8:16", "pci0/usb2/2-1/host6/sdb", "0");
  sysfs.add("254:0", "pci0/virtio1/block/vda", "1");
  sysfs.add("179:0", "platform/mmc0/block/mmcblk0", "0");
  EXPECT_EQ(sysfs.describe("8:0")->bus, "sata");
  EXPECT_EQ(sysfs.describe("8:0")->is_rotational, true);
  EXPECT_EQ(sysfs.describe("8:16")->bus, "usb");
  EXPECT_EQ(sysfs.describe("179:0")->bus, "mmc");
  EXPECT_EQ(sysfs.describe("254:0")->bus, "virtio");
  EXPECT_EQ(sysfs.describe("254:0")->is_rotational, std::nullopt) << "the kernel only guesses";
}

TEST(DescribeBlockDevice, FollowsMappedDevicesToTheirDrives) {
  Sysfs sysfs;
  sysfs.add("8:0", "pci0/ata1/host0/sda", "1", "Old disk");
  sysfs.add("259:0", "pci0/nvme/nvme0/nvme0n1", "0", "New drive");
  sysfs.add_partition("259:3", "pci0/nvme/nvme0/nvme0n1/nvme0n1p3");
  sysfs.add("253:0", "virtual/block/dm-0");
  sysfs.add("253:1", "virtual/block/dm-1");
  sysfs.add_slave("virtual/block/dm-1", "virtual/block/dm-0");
  sysfs.add_slave("virtual/block/dm-0", "pci0/nvme/nvme0/nvme0n1/nvme0n1p3");
  EXPECT_EQ(sysfs.describe("253:1")->name, "dm-1 (nvme0n1)");
  EXPECT_EQ(sysfs.describe("253:1")->bus, "nvme");
  EXPECT_EQ(sysfs.describe("253:1")->is_rotational, false);

  sysfs.add_slave("virtual/block/dm-0", "pci0/ata1/host0/sda");
  EXPECT_EQ(sysfs.describe("253:1")->name, "dm-1 (sda, nvme0n1)");
  EXPECT_EQ(sysfs.describe("253:1")->is_rotational, true) << "as slow as its slowest part";
}

TEST(DescribeBlockDevice, SurvivesADeviceThatIsMadeOfItself) {
  Sysfs sysfs;
  sysfs.add("253:0", "virtual/block/dm-0");
  sysfs.add_slave("virtual/block/dm-0", "virtual/block/dm-0");
  EXPECT_TRUE(sysfs.describe("253:0"));
}

TEST(DescribeBlockDevice, UnknownNumber) {
  EXPECT_EQ(Sysfs().describe("8:99"), std::nullopt);
}

}  // namespace
}  // namespace trash_panda::runtime
