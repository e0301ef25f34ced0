#include "probe/disk_probe.h"

#include <atomic>
#include <filesystem>
#include <string>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trash_panda/base/units.h"

#include "format/support/checkpoint_builder.h"
#include "probe/throughput.h"

namespace trash_panda::runtime {
namespace {

using ::testing::Each;
using ::testing::Field;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using trash_panda::testing::random_bytes;
using trash_panda::testing::TempDir;
using trash_panda::testing::write_text;

void write_bytes(const std::filesystem::path& path, std::uint64_t size_bytes) {
  std::filesystem::create_directories(path.parent_path());
  write_text(path, std::string(size_bytes, '\7'));
}

TEST(FindSampleFile, TheFileItselfWhenLargeEnough) {
  const TempDir folder;
  write_bytes(folder / "a.anything", 64 * kMiB);
  write_bytes(folder / "b.safetensors", 64 * kMiB - 1);
  EXPECT_EQ(find_sample_file(folder / "a.anything"), folder / "a.anything");
  EXPECT_EQ(find_sample_file(folder / "b.safetensors"), std::nullopt);
  EXPECT_EQ(find_sample_file(folder.path()), std::nullopt) << "a file of any other name";
}

TEST(FindSampleFile, TheLargestCheckpointOfAFolderOrAnIndex) {
  const TempDir folder;
  write_bytes(folder / "unet/model-1.safetensors", 65 * kMiB);
  write_bytes(folder / "model.safetensors", 64 * kMiB);
  write_text(folder / "model.safetensors.index.json", "{}");
  EXPECT_EQ(find_sample_file(folder.path()), folder / "unet/model-1.safetensors");
  EXPECT_EQ(find_sample_file(folder / "model.safetensors.index.json"),
            folder / "unet/model-1.safetensors");
}

TEST(FindSampleFile, FollowsTheLinksOfACache) {
  const TempDir folder;
  write_bytes(folder / "blobs/0123", 64 * kMiB);
  std::filesystem::create_directories(folder / "snapshots");
  std::filesystem::create_symlink("../blobs/0123", folder / "snapshots/model.safetensors");
  EXPECT_EQ(find_sample_file(folder / "snapshots"), folder / "snapshots/model.safetensors");
}

TEST(FindSampleFile, NoHolesAreRead) {
  const TempDir folder;
  write_text(folder / "holes.safetensors", "x");
  std::filesystem::resize_file(folder / "holes.safetensors", 1 * kGiB);
  EXPECT_EQ(find_sample_file(folder / "holes.safetensors"), std::nullopt);
}

TEST(DescribeDisk, KnowsWhereATemporaryFolderLies) {
  const TempDir folder;
  const plan::DiskInfo disk = describe_disk(folder.path());
  EXPECT_EQ(disk.path, folder.path().native());
  EXPECT_FALSE(disk.filesystem.empty());
  EXPECT_GT(disk.total_bytes, 0U);
  EXPECT_LE(disk.free_bytes, disk.total_bytes);
  EXPECT_FALSE(disk.is_read_only);
}

TEST(DescribeDisk, WhatIsNotThereIsSaid) {
  EXPECT_THAT(describe_disk("/nowhere/at/all").note, HasSubstr("not found"));
}

TEST(MeasureDisk, ReadsTheCheckpointsOwnBytes) {
  const TempDir folder;
  write_text(folder / "model.safetensors", random_bytes(64 * kMiB, 1));
  plan::DiskInfo disk = describe_disk(folder.path());
  const auto measured = measure_disk(
      folder.path(), {.effort = ProbeEffort::kBrief, .memory_bytes_max = 128 * kMiB}, disk);
  ASSERT_TRUE(measured);
  EXPECT_EQ(disk.sample, "checkpoint");
  EXPECT_GT(disk.read_bytes_per_s, 0U);
  EXPECT_GT(disk.buffered_bytes_per_s, 0U);
  if (disk.reads_direct) {
    EXPECT_GT(disk.direct_alignment_bytes, 0U);
    EXPECT_THAT(disk.direct, Each(Field(&plan::DiskRate::read_bytes_per_s, Gt(0U))));
    EXPECT_GT(disk.latency_ns_p50, 0U);
    EXPECT_GE(disk.latency_ns_p99, disk.latency_ns_p50);
  } else {
    EXPECT_THAT(disk.note, HasSubstr("direct reads"));
  }
}

TEST(MeasureDisk, ASettingThatNeedsTooMuchMemoryIsLeftOut) {
  const TempDir folder;
  write_text(folder / "model.safetensors", random_bytes(64 * kMiB, 1));
  plan::DiskInfo disk = describe_disk(folder.path());
  ASSERT_TRUE(measure_disk(folder / "model.safetensors",
                           {.effort = ProbeEffort::kBrief, .memory_bytes_max = 2 * kMiB}, disk));
  EXPECT_EQ(disk.read_queue_depth, 1U);
  EXPECT_EQ(disk.read_request_bytes, 2 * kMiB);
  if (disk.reads_direct) {
    EXPECT_THAT(disk.direct, SizeIs(1));
  }
}

TEST(MeasureDisk, WritesNothingUnlessItMay) {
  const TempDir folder;
  plan::DiskInfo disk = describe_disk(folder.path());
  ASSERT_TRUE(measure_disk(
      folder.path(),
      {.effort = ProbeEffort::kQuick, .may_write = false, .memory_bytes_max = 8 * kMiB}, disk));
  EXPECT_EQ(disk.read_bytes_per_s, std::nullopt);
  EXPECT_THAT(disk.note, HasSubstr("not measured: no checkpoint file"));
}

TEST(MeasureDisk, StoppedItLeavesNothing) {
  const TempDir folder;
  const std::atomic<bool> stop = true;
  plan::DiskInfo disk = describe_disk(folder.path());
  const auto measured = measure_disk(
      folder.path(), {.effort = ProbeEffort::kQuick, .memory_bytes_max = 8 * kMiB, .stop = &stop},
      disk);
  ASSERT_FALSE(measured);
  EXPECT_EQ(measured.error().code(), ErrorCode::kInterrupted);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(MeasureHardware, StoppedItEndsAndSaysSo) {
  const std::atomic<bool> stop = true;
  plan::Hardware hardware = probe_hardware();
  describe_hardware({}, hardware);
  const auto measured = measure_hardware({.stop = &stop}, hardware);
  ASSERT_FALSE(measured);
  EXPECT_EQ(measured.error().code(), ErrorCode::kInterrupted);
  EXPECT_EQ(hardware.measured_at, "");
}

TEST(MeasureHardware, MeasuresRamAndExpansion) {
  plan::Hardware hardware = probe_hardware();
  describe_hardware({}, hardware);
  std::vector<std::string> steps;
  ASSERT_TRUE(
      measure_hardware({.effort = ProbeEffort::kBrief,
                        .on_step = [&](std::string_view step) { steps.emplace_back(step); }},
                       hardware));
  EXPECT_GT(hardware.ram_copy_one_thread_bytes_per_s, 0U);
  EXPECT_GT(hardware.ram_copy_bytes_per_s, 0U);
  EXPECT_GT(hardware.cpu.expand_one_thread.fp8_bytes_per_s, 0U);
  EXPECT_GT(hardware.cpu.expand.fp8_bytes_per_s, 0U);
  EXPECT_GT(hardware.cpu.expand_one_thread.exponent_bytes_per_s, 0U);
  EXPECT_GT(hardware.cpu.expand.exponent_bytes_per_s, 0U);
  EXPECT_GT(hardware.cpu.expand_one_thread.zstd_bytes_per_s, 0U);
  EXPECT_GT(hardware.cpu.expand.zstd_bytes_per_s, 0U);
  EXPECT_GE(hardware.cpu.core_count, 1U);
  EXPECT_THAT(hardware.measured_at, ::testing::MatchesRegex("20..-..-..T..:..:..Z"));
  EXPECT_THAT(steps, ::testing::Contains("RAM and CPU"));
}

TEST(DescribeHardware, TheFingerprintIsOfTheMachine) {
  plan::Hardware first = probe_hardware();
  describe_hardware({}, first);
  plan::Hardware second = probe_hardware();
  describe_hardware({"/"}, second);
  EXPECT_THAT(first.fingerprint, SizeIs(16));
  EXPECT_EQ(first.fingerprint, second.fingerprint);
  EXPECT_THAT(first.disks, IsEmpty());
  EXPECT_THAT(second.disks, SizeIs(1));
  second.cpu.model += "x";
  describe_hardware({}, second);
  EXPECT_NE(first.fingerprint, second.fingerprint);
}

TEST(Throughput, CountsTheWorkOfAllThreads) {
  std::array<std::atomic<int>, 3> calls = {};
  const auto rate = throughput(3, Seconds(0.005), [&](std::size_t index) {
    ++calls.at(index);
    return std::uint64_t{1000};
  });
  ASSERT_TRUE(rate);
  EXPECT_GT(*rate, 0);
  for (const auto& count : calls) {
    EXPECT_GE(count, 1);
  }
}

}  // namespace
}  // namespace trash_panda::runtime
