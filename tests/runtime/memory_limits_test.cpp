#include "memory_limits.h"

#include <filesystem>
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "format/support/checkpoint_builder.h"

namespace trash_panda::runtime {
namespace {

using trash_panda::testing::TempDir;
using trash_panda::testing::write_text;

constexpr const char* kMeminfo16GiB =
    "MemTotal:       16777216 kB\n"
    "MemFree:          524288 kB\n"
    "MemAvailable:   12582912 kB\n"
    "Buffers:           10240 kB\n"
    "HugePages_Total:       0\n";
constexpr const char* kNoLimitV1 = "9223372036854771712\n";

/// A recorded machine: a /proc and a control group tree.
class Machine {
 public:
  Machine() { write(proc_ / "meminfo", kMeminfo16GiB); }

  Machine& cgroup_of_process(const std::string& text) {
    write(proc_ / "self" / "cgroup", text);
    return *this;
  }
  Machine& file(const std::string& path, const std::string& text) {
    write(cgroup_ / path, text);
    return *this;
  }
  [[nodiscard]] plan::Hardware read() const {
    plan::Hardware hardware;
    read_memory_limits(proc_, cgroup_, hardware);
    return hardware;
  }

 private:
  static void write(const std::filesystem::path& path, const std::string& text) {
    std::filesystem::create_directories(path.parent_path());
    write_text(path, text);
  }

  TempDir dir_;
  std::filesystem::path proc_ = dir_ / "proc";
  std::filesystem::path cgroup_ = dir_ / "cgroup";
};

TEST(ReadMemoryLimits, MeminfoIsInKibibytes) {
  const plan::Hardware hardware = Machine().read();
  EXPECT_EQ(hardware.ram_total_bytes, 17'179'869'184U);
  EXPECT_EQ(hardware.ram_available_bytes, 12'884'901'888U);
  EXPECT_EQ(hardware.cgroup_limit_bytes, std::nullopt);
  EXPECT_EQ(hardware.cgroup_path, "");
}

TEST(ReadMemoryLimits, V2Limit) {
  const plan::Hardware hardware = Machine()
                                      .cgroup_of_process("0::/user.slice/job\n")
                                      .file("user.slice/job/memory.max", "2147483648\n")
                                      .file("user.slice/job/memory.current", "1048576\n")
                                      .read();
  EXPECT_EQ(hardware.cgroup_limit_bytes, 2'147'483'648U);
  EXPECT_EQ(hardware.cgroup_used_bytes, 1'048'576U);
  EXPECT_EQ(hardware.cgroup_path, "/user.slice/job");
}

TEST(ReadMemoryLimits, V2MaxIsNoLimit) {
  const plan::Hardware hardware = Machine()
                                      .cgroup_of_process("0::/job\n")
                                      .file("job/memory.max", "max\n")
                                      .file("job/memory.current", "1048576\n")
                                      .read();
  EXPECT_EQ(hardware.cgroup_limit_bytes, std::nullopt);
}

TEST(ReadMemoryLimits, TightestOfNestedGroups) {
  Machine machine;
  machine.cgroup_of_process("0::/outer/middle/inner\n")
      .file("outer/memory.max", "4294967296\n")
      .file("outer/memory.current", "7\n")
      .file("outer/middle/memory.max", "1073741824\n")
      .file("outer/middle/memory.current", "5\n")
      .file("outer/middle/inner/memory.max", "max\n");
  const plan::Hardware hardware = machine.read();
  EXPECT_EQ(hardware.cgroup_limit_bytes, 1'073'741'824U);
  EXPECT_EQ(hardware.cgroup_used_bytes, 5U);
  EXPECT_EQ(hardware.cgroup_path, "/outer/middle");
}

TEST(ReadMemoryLimits, ContainerWhosePathIsNotVisible) {
  // Without a cgroup namespace, the path is the host's, while the mount shows the container's own
  // group as its root.
  const plan::Hardware hardware = Machine()
                                      .cgroup_of_process("0::/docker/0123456789abcdef\n")
                                      .file("memory.max", "536870912\n")
                                      .file("memory.current", "4096\n")
                                      .read();
  EXPECT_EQ(hardware.cgroup_limit_bytes, 536'870'912U);
  EXPECT_EQ(hardware.cgroup_path, "/");
}

TEST(ReadMemoryLimits, RootGroupOfANamespace) {
  const plan::Hardware hardware =
      Machine().cgroup_of_process("0::/\n").file("memory.max", "536870912\n").read();
  EXPECT_EQ(hardware.cgroup_limit_bytes, 536'870'912U);
  EXPECT_EQ(hardware.cgroup_used_bytes, 0U);
}

TEST(ReadMemoryLimits, V1LimitAmongOtherControllers) {
  const plan::Hardware hardware = Machine()
                                      .cgroup_of_process(
                                          "12:cpu,cpuacct:/job\n"
                                          "9:memory:/job\n"
                                          "1:name=systemd:/\n"
                                          "0::/\n")
                                      .file("memory/job/memory.limit_in_bytes", "3221225472\n")
                                      .file("memory/job/memory.usage_in_bytes", "99\n")
                                      .read();
  EXPECT_EQ(hardware.cgroup_limit_bytes, 3'221'225'472U);
  EXPECT_EQ(hardware.cgroup_used_bytes, 99U);
  EXPECT_EQ(hardware.cgroup_path, "/job");
}

TEST(ReadMemoryLimits, V1HugeValueIsNoLimit) {
  const plan::Hardware hardware = Machine()
                                      .cgroup_of_process("9:memory:/job\n")
                                      .file("memory/job/memory.limit_in_bytes", kNoLimitV1)
                                      .file("memory/memory.limit_in_bytes", kNoLimitV1)
                                      .read();
  EXPECT_EQ(hardware.cgroup_limit_bytes, std::nullopt);
}

TEST(ReadMemoryLimits, LimitOfAllRamOrMoreLimitsNothing) {
  Machine machine;
  machine.cgroup_of_process("0::/job\n").file("job/memory.max", "17179869184\n");
  EXPECT_EQ(machine.read().cgroup_limit_bytes, std::nullopt);
  EXPECT_EQ(machine.read().cgroup_path, "");
  machine.file("job/memory.max", "17179869183\n");
  EXPECT_EQ(machine.read().cgroup_limit_bytes, 17'179'869'183U);
}

TEST(ReadMemoryLimits, MachineThatTellsNothing) {
  const TempDir empty;
  plan::Hardware hardware;
  read_memory_limits(empty / "proc", empty / "cgroup", hardware);
  EXPECT_EQ(hardware.ram_total_bytes, 0U);
  EXPECT_EQ(hardware.cgroup_limit_bytes, std::nullopt);
}

TEST(ReadMemoryLimits, GarbageIsNoLimit) {
  const plan::Hardware hardware = Machine()
                                      .cgroup_of_process("nonsense\n0::/job\n")
                                      .file("job/memory.max", "\n")
                                      .file("memory.max", "-5\n")
                                      .read();
  EXPECT_EQ(hardware.cgroup_limit_bytes, std::nullopt);
}

}  // namespace
}  // namespace trash_panda::runtime
