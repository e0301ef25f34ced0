#include "trash_panda/format/pack_verify.h"

#include <atomic>
#include <filesystem>
#include <random>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "format/support/checkpoint_builder.h"
#include "format/support/golden.h"
#include "format/support/sample_pack.h"

namespace trash_panda::format {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::must;
using testing::read_text;
using testing::SamplePack;
using ::testing::StartsWith;

void flip_bit(const std::filesystem::path& path, std::size_t bit) {
  std::string bytes = read_text(path);
  bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
  testing::write_text(path, bytes);
}

TEST(VerifyPack, ReadsEveryByteOfEveryShard) {
  SamplePack sample;
  const Manifest manifest = must(sample.write());
  Progress last;
  const VerifyReport report = must(verify_pack(
      sample.target(), {.progress = [&](const Progress& progress) { last = progress; }}));
  EXPECT_THAT(report.mismatches, IsEmpty());
  EXPECT_EQ(report.extent_count, manifest.extents.size());
  EXPECT_EQ(report.verified_bytes, pack_size(manifest).total_bytes);
  EXPECT_EQ(last.done_bytes, last.total_bytes);
  EXPECT_EQ(last.total_bytes, pack_size(manifest).total_bytes);
}

TEST(VerifyPack, NamesTheExtentOfAFlippedBit) {
  SamplePack sample;
  const Manifest manifest = must(sample.write());
  const PackedExtent& extent = manifest.extents[4];
  flip_bit(sample.target() / "disk-00001.safetensors", extent.offset_bytes * 8 + 3);
  EXPECT_THAT(must(verify_pack(sample.target(), {})).mismatches,
              ElementsAre(StartsWith("disk-00001.safetensors: extent \"layers.3\" differs")));
}

TEST(VerifyPack, ReadsNoPlanOfAnyLength) {
  SamplePack sample;
  must(sample.write());
  // Sparse: takes no space on the drive, but would in memory.
  std::filesystem::resize_file(sample.target() / kPackPlanName, 70'000'000);
  EXPECT_THAT(must(verify_pack(sample.target(), {})).mismatches,
              ElementsAre("plan.toml has 70000000 bytes, more than the 67108864 of any plan"));
}

TEST(VerifyPack, NamesAllThatDiffers) {
  SamplePack sample;
  must(sample.write());
  flip_bit(sample.target() / "base-00001.safetensors", 100);
  flip_bit(sample.target() / "gpu-00001.safetensors", (4096 + 700) * 8);
  testing::write_text(sample.target() / kPackPlanName, "# another plan\n");
  EXPECT_THAT(must(verify_pack(sample.target(), {})).mismatches,
              ElementsAre(StartsWith("plan.toml differs"),
                          StartsWith("base-00001.safetensors: its header differs"),
                          StartsWith("gpu-00001.safetensors: extent \"layers.0\" differs")));
}

TEST(VerifyPack, FindsEverySampledBitFlipInEveryFile) {
  const testing::TempDir dir;
  std::filesystem::copy(testing::golden_path() / "v1_raw.panda", dir / "pack");
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 random(seed);
  for (const auto& entry : std::filesystem::directory_iterator(dir / "pack")) {
    for (int i = 0; i < 60; ++i) {
      const std::size_t bit = random() % (std::filesystem::file_size(entry.path()) * 8);
      flip_bit(entry.path(), bit);
      const Result<VerifyReport> report = verify_pack(dir / "pack", {});
      EXPECT_FALSE(report && report->mismatches.empty()) << entry.path() << " bit " << bit;
      flip_bit(entry.path(), bit);
    }
  }
  EXPECT_THAT(must(verify_pack(dir / "pack", {})).mismatches, IsEmpty());
}

TEST(VerifyPack, StopsWhenAsked) {
  SamplePack sample;
  must(sample.write());
  const std::atomic<bool> stop = true;
  const Result<VerifyReport> report = verify_pack(sample.target(), {.progress = {}, .stop = &stop});
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code(), ErrorCode::kInterrupted);
}

}  // namespace
}  // namespace trash_panda::format
