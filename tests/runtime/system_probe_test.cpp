#include "probe/system_probe.h"

#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/support/temp_dir.h"

namespace trash_panda::runtime {
namespace {

using ::testing::ElementsAre;
using trash_panda::testing::TempDir;
using trash_panda::testing::write_text;

/// The files of a recorded machine.
class RecordedRoot {
 public:
  RecordedRoot& file(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    write_text(root_ / path, text);
    return *this;
  }
  [[nodiscard]] plan::Hardware read() const {
    plan::Hardware hardware;
    read_system(root_.path(), hardware);
    return hardware;
  }

 private:
  TempDir root_;
};

TEST(ReadSystem, NamesTheSystem) {
  const plan::Hardware hardware =
      RecordedRoot()
          .file("etc/os-release",
                "NAME=\"Debian\"\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n")
          .file("proc/sys/kernel/osrelease", "6.1.0-18-amd64\n")
          .file("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n")
          .read();
  EXPECT_EQ(hardware.system.os, "Debian GNU/Linux 12 (bookworm)");
  EXPECT_EQ(hardware.system.kernel, "6.1.0-18-amd64");
  EXPECT_EQ(hardware.system.container, "");
  EXPECT_EQ(hardware.system.virtual_machine, "");
  EXPECT_EQ(hardware.transparent_hugepages, "madvise");
}

TEST(ReadSystem, ReadsTheProcessor) {
  const plan::Hardware x86 =
      RecordedRoot()
          .file("proc/cpuinfo",
                "processor\t: 0\nvendor_id\t: GenuineIntel\n"
                "model name\t: 13th Gen Intel(R) Core(TM) i9-13900K\n"
                "flags\t\t: fpu vme sse4_2 bmi2 avx2 avx512_vbmi2 f16c\n\n"
                "processor\t: 1\nmodel name\t: Another\nflags\t\t: avx512f\n")
          .read();
  EXPECT_EQ(x86.cpu.model, "13th Gen Intel(R) Core(TM) i9-13900K");
  EXPECT_THAT(x86.cpu.features, ElementsAre("avx2", "avx512_vbmi2", "bmi2", "f16c", "sse4_2"));
  const plan::Hardware arm =
      RecordedRoot().file("proc/cpuinfo", "Features\t: fp asimd sve2 bf16\n").read();
  EXPECT_THAT(arm.cpu.features, ElementsAre("asimd", "bf16", "sve2"));
}

TEST(ReadSystem, TellsContainers) {
  EXPECT_EQ(RecordedRoot().file(".dockerenv", "").read().system.container, "docker");
  EXPECT_EQ(RecordedRoot().file("run/.containerenv", "").read().system.container, "podman");
  EXPECT_EQ(RecordedRoot().file("run/systemd/container", "lxc\n").read().system.container, "lxc");
  EXPECT_EQ(
      RecordedRoot().file("proc/self/cgroup", "0::/kubepods.slice/pod1\n").read().system.container,
      "kubernetes");
}

TEST(ReadSystem, TellsVirtualMachines) {
  const auto machine_of_kernel = [](const std::string& release) {
    return RecordedRoot().file("proc/sys/kernel/osrelease", release).read().system.virtual_machine;
  };
  EXPECT_EQ(machine_of_kernel("5.15.153.1-microsoft-standard-WSL2\n"), "wsl2");
  EXPECT_EQ(machine_of_kernel("4.4.0-19041-Microsoft\n"), "wsl1");
  EXPECT_EQ(machine_of_kernel("6.1.0-18-amd64\n"), "");
  EXPECT_EQ(RecordedRoot()
                .file("sys/class/dmi/id/sys_vendor", "VMware, Inc.\n")
                .read()
                .system.virtual_machine,
            "vmware");
  EXPECT_EQ(RecordedRoot()
                .file("proc/cpuinfo", "model name : x\nflags : fpu hypervisor\n")
                .read()
                .system.virtual_machine,
            "unknown hypervisor");
}

TEST(ReadSystem, AnEmptyMachineStaysEmpty) {
  const plan::Hardware hardware = RecordedRoot().read();
  EXPECT_EQ(hardware.cpu.model, "");
  EXPECT_EQ(hardware.system.os, "");
  EXPECT_GE(hardware.cpu.thread_count, 1U) << "the affinity mask is asked of the kernel itself";
}

TEST(UsableThreadCount, QuotaOfTheControlGroup) {
  const auto count_with = [](const std::string& path, const std::string& text,
                             const std::string& other_path = "other",
                             const std::string& other_text = "") {
    const TempDir cgroup;
    for (const auto& [file, content] : {std::pair(path, text), std::pair(other_path, other_text)}) {
      std::filesystem::create_directories((cgroup / file).parent_path());
      write_text(cgroup / file, content);
    }
    return usable_thread_count(cgroup.path());
  };
  const std::uint64_t all = usable_thread_count("/nowhere");
  EXPECT_EQ(count_with("cpu.max", "max 100000\n"), all);
  EXPECT_EQ(count_with("cpu.max", "100000 100000\n"), 1U);
  EXPECT_EQ(count_with("cpu.max", "10000 100000\n"), 1U) << "a tenth is still one";
  EXPECT_EQ(count_with("cpu.max", "150000 100000\n"), std::min<std::uint64_t>(all, 2));
  EXPECT_EQ(count_with("cpu/cpu.cfs_quota_us", "-1\n", "cpu/cpu.cfs_period_us", "100000\n"), all);
  EXPECT_EQ(count_with("cpu/cpu.cfs_quota_us", "100000\n", "cpu/cpu.cfs_period_us", "100000\n"),
            1U);
}

}  // namespace
}  // namespace trash_panda::runtime
