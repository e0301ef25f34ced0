#include "hardware_cache.h"

#include <chrono>
#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/support/temp_dir.h"

namespace trash_panda::cli {
namespace {

using ::testing::SizeIs;
using trash_panda::testing::must;
using trash_panda::testing::read_text;
using trash_panda::testing::TempDir;
using trash_panda::testing::write_text;

/// 2026-03-01T12:00:00Z.
const auto kMeasured = std::chrono::system_clock::from_time_t(1'772'366'400);
constexpr const char* kMeasuredText = "2026-03-01T12:00:00Z";

plan::DiskInfo disk_on(const std::string& device, const std::string& path) {
  plan::DiskInfo disk;
  disk.path = path;
  disk.filesystem = "ext4";
  disk.device = device;
  disk.total_bytes = 1000;
  disk.free_bytes = 500;
  return disk;
}

/// A machine that was not measured, with a drive and a GPU.
plan::Hardware described() {
  plan::Hardware hardware;
  hardware.fingerprint = "0123456789abcdef";
  hardware.ram_available_bytes = 7;
  hardware.disks = {disk_on("sda", "/data")};
  hardware.gpus = {{.name = "GPU", .uuid = "GPU-1", .total_bytes = 8, .free_bytes = 4}};
  return hardware;
}

plan::Hardware measured() {
  plan::Hardware hardware = described();
  hardware.measured_at = kMeasuredText;
  hardware.ram_available_bytes = 1;
  hardware.ram_copy_bytes_per_s = 11;
  hardware.cpu.expand.fp8_bytes_per_s = 12;
  hardware.disks[0].measured_at = kMeasuredText;
  hardware.disks[0].read_bytes_per_s = 13;
  hardware.disks[0].free_bytes = 1;
  hardware.gpus[0].h2d_pinned_bytes_per_s = 14;
  hardware.gpus[0].free_bytes = 1;
  return hardware;
}

class HardwareCache : public ::testing::Test {
 protected:
  [[nodiscard]] plan::Hardware applied(
      plan::Hardware hardware, std::chrono::system_clock::time_point now = kMeasured) const {
    const Result<void> done = apply_cached_rates(folder_.path(), hardware, now);
    EXPECT_TRUE(done) << done.error().to_string();
    return hardware;
  }
  void save(const plan::Hardware& hardware) {
    const Result<void> saved = save_rates(folder_.path(), hardware, kMeasured);
    ASSERT_TRUE(saved) << saved.error().to_string();
  }
  [[nodiscard]] std::filesystem::path file() const {
    return folder_ / "hardware-0123456789abcdef.json";
  }

  TempDir folder_;
};

TEST_F(HardwareCache, GivesRatesBackAndNothingThatChangesByTheHour) {
  save(measured());
  const plan::Hardware hardware = applied(described());
  EXPECT_EQ(hardware.measured_at, kMeasuredText);
  EXPECT_EQ(hardware.ram_copy_bytes_per_s, 11U);
  EXPECT_EQ(hardware.cpu.expand.fp8_bytes_per_s, 12U);
  EXPECT_EQ(hardware.disks[0].read_bytes_per_s, 13U);
  EXPECT_EQ(hardware.gpus[0].h2d_pinned_bytes_per_s, 14U);
  EXPECT_EQ(hardware.ram_available_bytes, 7U);
  EXPECT_EQ(hardware.disks[0].free_bytes, 500U);
  EXPECT_EQ(hardware.gpus[0].free_bytes, 4U);
}

TEST_F(HardwareCache, NoCacheIsNoError) {
  EXPECT_EQ(applied(described()), described());
  plan::Hardware hardware = described();
  EXPECT_TRUE(apply_cached_rates({}, hardware, kMeasured));
  EXPECT_TRUE(save_rates({}, hardware, kMeasured));
}

TEST_F(HardwareCache, ForgetsAfterThirtyDays) {
  save(measured());
  const auto last_moment = kMeasured + kMeasurementLifetime - std::chrono::seconds(1);
  EXPECT_EQ(applied(described(), last_moment).disks[0].read_bytes_per_s, 13U);
  const auto too_late = kMeasured + kMeasurementLifetime;
  EXPECT_EQ(applied(described(), too_late), described());
  EXPECT_EQ(applied(described(), kMeasured - std::chrono::hours(1)), described())
      << "a measurement of the future is none";
}

TEST_F(HardwareCache, IsOfOneMachineAndItsDrives) {
  save(measured());
  plan::Hardware other_machine = described();
  other_machine.fingerprint = "fedcba9876543210";
  EXPECT_EQ(applied(other_machine), other_machine);
  plan::Hardware other_drive = described();
  other_drive.disks[0].device = "sdb";
  EXPECT_EQ(applied(other_drive).disks[0].read_bytes_per_s, std::nullopt);
  EXPECT_EQ(applied(other_drive).ram_copy_bytes_per_s, 11U);
  plan::Hardware same_drive = described();
  same_drive.disks[0].path = "/data/models";
  EXPECT_EQ(applied(same_drive).disks[0].read_bytes_per_s, 13U);
  EXPECT_EQ(applied(same_drive).disks[0].path, "/data/models");
  plan::Hardware other_gpu = described();
  other_gpu.gpus[0].uuid = "GPU-2";
  EXPECT_EQ(applied(other_gpu).gpus[0].h2d_pinned_bytes_per_s, std::nullopt);
}

TEST_F(HardwareCache, AFilesystemWithoutADriveIsKnownByItsPath) {
  plan::Hardware network = measured();
  network.disks[0].device = "";
  save(network);
  plan::Hardware same = described();
  same.disks[0].device = "";
  EXPECT_EQ(applied(same).disks[0].read_bytes_per_s, 13U);
  same.disks[0].path = "/other";
  EXPECT_EQ(applied(same).disks[0].read_bytes_per_s, std::nullopt);
}

TEST_F(HardwareCache, KeepsOtherDrivesAndTheNewerMeasurementOfOne) {
  save(measured());
  plan::Hardware second = measured();
  second.disks = {disk_on("sdb", "/more"), disk_on("sdc", "/unmeasured")};
  second.disks[0].measured_at = kMeasuredText;
  second.disks[0].read_bytes_per_s = 21;
  save(second);
  second.disks[0].read_bytes_per_s = 22;
  save(second);
  plan::Hardware both = described();
  both.disks = {disk_on("sda", "/data"), disk_on("sdb", "/more"), disk_on("sdc", "/unmeasured")};
  both = applied(both);
  ASSERT_THAT(both.disks, SizeIs(3));
  EXPECT_EQ(both.disks[0].read_bytes_per_s, 13U);
  EXPECT_EQ(both.disks[1].read_bytes_per_s, 22U);
  EXPECT_EQ(both.disks[2].read_bytes_per_s, std::nullopt);
}

TEST_F(HardwareCache, WhatCannotBeReadIsSaidAndReplaced) {
  for (const char* damage :
       {"", "{", "[]", "{\"schema\":\"trash-panda/hardware/1\",\"disks\":7}"}) {
    write_text(file(), damage);
    plan::Hardware hardware = described();
    EXPECT_FALSE(apply_cached_rates(folder_.path(), hardware, kMeasured)) << damage;
    EXPECT_EQ(hardware, described());
    save(measured());
    EXPECT_EQ(applied(described()).disks[0].read_bytes_per_s, 13U);
  }
}

TEST_F(HardwareCache, LeavesOneFile) {
  save(measured());
  save(measured());
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
    EXPECT_EQ(entry.path(), file());
    ++count;
  }
  EXPECT_EQ(count, 1U);
}

TEST_F(HardwareCache, AFolderThatCannotBeMadeIsAnError) {
  write_text(folder_ / "file", "");
  const Result<void> saved = save_rates(folder_ / "file/folder", measured(), kMeasured);
  ASSERT_FALSE(saved);
  EXPECT_EQ(saved.error().code(), ErrorCode::kOutput);
}

TEST(MeasurementAge, InTheUnitThatFits) {
  EXPECT_EQ(measurement_age(kMeasuredText, kMeasured), "0 min old");
  EXPECT_EQ(measurement_age(kMeasuredText, kMeasured + std::chrono::minutes(59)), "59 min old");
  EXPECT_EQ(measurement_age(kMeasuredText, kMeasured + std::chrono::hours(47)), "47 h old");
  EXPECT_EQ(measurement_age(kMeasuredText, kMeasured + std::chrono::hours(48)), "2 d old");
  EXPECT_EQ(measurement_age("yesterday", kMeasured), "");
}

}  // namespace
}  // namespace trash_panda::cli
