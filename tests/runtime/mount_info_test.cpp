#include "probe/mount_info.h"

#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trash_panda::runtime {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kMounts =
    "24 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw,errors=remount-ro\n"
    "36 24 0:30 /@models /data\\040disk rw,noatime - btrfs /dev/sd\\134a1 rw,subvolid=5\n"
    "37 24 0:31 / /mnt/share ro,relatime master:2 shared:9 - nfs4 nas:/export rw,vers=4.2\n"
    "38 24 0:32 / /media/cd rw,relatime - iso9660 /dev/sr0 ro\n"
    "garbage\n"
    "39 24 0:33 / /mnt/no-separator rw ext4 /dev/sdb rw\n";

MountInfo mount_of(const char* id) {
  std::istringstream text(kMounts);
  return parse_mount(text, id).value_or(MountInfo{.filesystem = "none"});
}

TEST(ParseMount, FindsTheMountByItsNumber) {
  EXPECT_EQ(mount_of("24").filesystem, "ext4");
  EXPECT_EQ(mount_of("24").source, "/dev/nvme0n1p2");
  EXPECT_EQ(mount_of("37").filesystem, "nfs4");
  EXPECT_EQ(mount_of("37").source, "nas:/export");
  EXPECT_EQ(mount_of("3").filesystem, "none");
  EXPECT_EQ(mount_of("39").filesystem, "none");
}

TEST(ParseMount, UndoesEscapes) {
  EXPECT_EQ(mount_of("36").source, "/dev/sd\\a1");
  EXPECT_EQ(mount_of("36").root, "/@models");
}

TEST(ParseMount, ReadOnlyIsTheMountOrTheFilesystem) {
  EXPECT_FALSE(mount_of("24").is_read_only) << "remount-ro is no ro";
  EXPECT_FALSE(mount_of("36").is_read_only);
  EXPECT_TRUE(mount_of("37").is_read_only);
  EXPECT_TRUE(mount_of("38").is_read_only);
}

TEST(FindMount, KnowsProcfs) {
  EXPECT_EQ(find_mount("/proc").filesystem, "proc");
  EXPECT_EQ(find_mount("/nowhere/at/all").filesystem, "unknown");
}

TEST(FilesystemTraits, NamesWhatIsSlowAndWhatHelps) {
  for (const char* network : {"nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "9p", "virtiofs"}) {
    EXPECT_TRUE(filesystem_traits(network).is_network) << network;
    EXPECT_FALSE(filesystem_traits(network).advice.empty()) << network;
  }
  for (const char* local : {"ext4", "xfs", "btrfs", "ntfs3", "unknown"}) {
    EXPECT_FALSE(filesystem_traits(local).is_network) << local;
    EXPECT_THAT(filesystem_traits(local).advice, IsEmpty()) << local;
  }
  EXPECT_THAT(filesystem_traits("fuseblk").advice, HasSubstr("ntfs3"));
  EXPECT_THAT(filesystem_traits("9p").advice, HasSubstr("WSL"));
  EXPECT_THAT(filesystem_traits("overlay").advice, HasSubstr("container"));
  EXPECT_THAT(filesystem_traits("tmpfs").advice, HasSubstr("RAM"));
  EXPECT_THAT(filesystem_traits("fuse.anything").advice, HasSubstr("FUSE"));
}

}  // namespace
}  // namespace trash_panda::runtime
