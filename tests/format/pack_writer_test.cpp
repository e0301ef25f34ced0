#include "trash_panda/format/pack_writer.h"

#include <atomic>
#include <filesystem>
#include <unistd.h>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trash_panda/format/pack_verify.h"

#include "format/support/checkpoint_builder.h"
#include "format/support/sample_pack.h"
#include "source_watch.h"

namespace trash_panda::format {
namespace {

using ::testing::HasSubstr;
using testing::must;
using testing::read_text;
using testing::SamplePack;

/// All tensors of a pack's shards by name, padding apart, read by the reader of checkpoints.
std::map<std::string, std::string> read_shards(const std::filesystem::path& pack) {
  std::map<std::string, std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(pack)) {
    if (entry.path().extension() != ".safetensors") {
      continue;
    }
    const Checkpoint shard = must(Checkpoint::open(entry.path()));
    for (std::size_t i = 0; i < shard.tensors().size(); ++i) {
      const TensorRecord& tensor = shard.tensors()[i];
      std::string bytes(tensor.size_bytes, '\0');
      EXPECT_TRUE(shard.read_tensor(i, std::as_writable_bytes(std::span(bytes))));
      if (!tensor.name.starts_with(kPadPrefix)) {
        EXPECT_TRUE(found.emplace(tensor.name, bytes).second) << tensor.name;
      } else {
        EXPECT_EQ(bytes, std::string(bytes.size(), '\0')) << tensor.name;
        EXPECT_EQ(tensor.dtype, Dtype::kU8);
      }
    }
  }
  return found;
}

TEST(WritePack, StoresEveryTensorBitForBit) {
  SamplePack sample;
  const Result<Manifest> written = sample.write();
  ASSERT_TRUE(written) << written.error().to_string();
  EXPECT_EQ(read_shards(sample.target()), sample.expected_tensors());
}

TEST(WritePack, ReturnsTheManifestThatItWrote) {
  SamplePack sample;
  const Manifest written = must(sample.write());
  EXPECT_EQ(write_manifest(written), read_text(sample.target() / kManifestName));
  EXPECT_EQ(write_manifest(must(read_manifest(sample.target()))), write_manifest(written));
}

TEST(WritePack, GivesFp8ThatLayInBytesItsDtype) {
  SamplePack sample;
  const Manifest manifest = must(sample.write());
  const PackedTensor& up = manifest.extents[1].tensors[3];
  EXPECT_EQ(up.name, "layers.0.up.weight");
  EXPECT_EQ(up.dtype, Dtype::kF8E5M2);
  EXPECT_EQ(up.scale->source_name, "layers.0.up.scale");
}

TEST(WritePack, LeavesNoStagingFolder) {
  SamplePack sample;
  must(sample.write());
  EXPECT_FALSE(std::filesystem::exists(sample.dir() / "model.panda.partial"));
}

TEST(WritePack, RefusesExistingTargetAndTouchesNothing) {
  SamplePack sample;
  testing::write_text(sample.target(), "mine");
  const Result<Manifest> written = sample.write();
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code(), ErrorCode::kOutput);
  EXPECT_THAT(written.error().message(), HasSubstr("model.panda exists already"));
  EXPECT_EQ(read_text(sample.target()), "mine");
}

TEST(WritePack, RefusesMissingParent) {
  SamplePack sample;
  const Result<Manifest> written =
      write_pack(FileSystem::posix(), sample.checkpoint(), sample.weights(), sample.layout(),
                 sample.dir() / "no/such/model.panda", sample.options());
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code(), ErrorCode::kOutput);
  EXPECT_THAT(written.error().message(), HasSubstr("no/such"));
}

TEST(WritePack, TakesATrailingSlashAsPartOfTheName) {
  SamplePack sample;
  must(write_pack(FileSystem::posix(), sample.checkpoint(), sample.weights(), sample.layout(),
                  sample.dir() / "out.panda/", sample.options()));
  EXPECT_TRUE(std::filesystem::exists(sample.dir() / "out.panda/manifest.json"));
}

TEST(WritePack, ChecksFreeSpaceWithTheReserve) {
  SamplePack sample;
  sample.options().reserve_bytes = UINT64_MAX / 2;
  const Result<Manifest> written = sample.write();
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code(), ErrorCode::kOutput);
  EXPECT_THAT(written.error().message(), HasSubstr("not enough space"));
  EXPECT_FALSE(std::filesystem::exists(sample.dir() / "model.panda.partial"));
}

TEST(WritePack, ReplacesWhatAnInterruptedRunLeft) {
  SamplePack sample;
  const std::filesystem::path staging = sample.dir() / "model.panda.partial";
  std::filesystem::create_directory(staging);
  testing::write_text(staging / ".trash-panda-partial", "");
  testing::write_text(staging / "base-00001.safetensors", "half");
  testing::write_text(staging / "gpu-00002.safetensors", "");
  testing::write_text(staging / "plan.toml", "# a");
  testing::write_text(staging / "manifest.json", "{");
  std::vector<std::string> lines;
  sample.options().log = [&](LogLevel, std::string_view line) { lines.emplace_back(line); };
  must(sample.write());
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_THAT(lines[0], HasSubstr("model.panda.partial, which an interrupted run left: it had "
                                  "finished no extent"));
  EXPECT_FALSE(std::filesystem::exists(sample.target() / "gpu-00002.safetensors"));
  EXPECT_EQ(read_shards(sample.target()), sample.expected_tensors());
}

TEST(WritePack, TakesOverAnEmptyStagingFolder) {
  SamplePack sample;
  std::filesystem::create_directory(sample.dir() / "model.panda.partial");
  must(sample.write());
  EXPECT_EQ(read_shards(sample.target()), sample.expected_tensors());
}

TEST(WritePack, LeavesNoMarkInThePack) {
  SamplePack sample;
  must(sample.write());
  EXPECT_FALSE(std::filesystem::exists(sample.target() / ".trash-panda-partial"));
}

/// What lies at model.panda.partial and was not left there by us.
class WritePackForeign : public ::testing::Test {
 protected:
  void expect_refused(std::string_view why) {
    const Result<Manifest> written = sample_.write();
    ASSERT_FALSE(written);
    EXPECT_EQ(written.error().code(), ErrorCode::kOutput);
    EXPECT_THAT(written.error().message(),
                HasSubstr("model.panda.partial exists and is not what an interrupted repack left"));
    EXPECT_THAT(written.error().message(), HasSubstr(why));
    EXPECT_FALSE(std::filesystem::exists(sample_.target()));
  }
  void add(const std::filesystem::path& name, std::string_view text) const {
    std::filesystem::create_directories(staging_);
    testing::write_text(staging_ / name, std::string(text));
  }
  [[nodiscard]] std::string text(const std::filesystem::path& name) const {
    return read_text(staging_ / name);
  }

  SamplePack sample_;
  std::filesystem::path staging_ = sample_.dir() / "model.panda.partial";
};

TEST_F(WritePackForeign, KeepsFilesOfOtherNames) {
  for (const std::string name :
       {"thesis.txt", "model-00001.safetensors", "gpu-1.safetensors", "gpu-000001.safetensors",
        "gpu-0000x.safetensors", "config.json"}) {
    SCOPED_TRACE(name);
    add(".trash-panda-partial", "");
    add("base-00001.safetensors", "half");
    add(name, "mine");
    expect_refused(name);
    EXPECT_EQ(text(name), "mine");
    EXPECT_EQ(text("base-00001.safetensors"), "half");
    std::filesystem::remove(staging_ / name);
  }
}

TEST_F(WritePackForeign, KeepsAPackOfThatName) {
  must(sample_.write());
  std::filesystem::rename(sample_.target(), staging_);
  const std::string manifest = text("manifest.json");
  expect_refused("it has no .trash-panda-partial");
  EXPECT_EQ(text("manifest.json"), manifest);
}

TEST_F(WritePackForeign, KeepsFolders) {
  std::filesystem::create_directories(staging_ / "gpu-00001.safetensors");
  add(".trash-panda-partial", "");
  add("gpu-00001.safetensors/file", "mine");
  expect_refused("gpu-00001.safetensors");
  EXPECT_EQ(text("gpu-00001.safetensors/file"), "mine");
}

TEST_F(WritePackForeign, KeepsTheSource) {
  add(".trash-panda-partial", "");
  const std::string name = "base-00001.safetensors";
  std::filesystem::create_hard_link(sample_.checkpoint_path(), staging_ / name);
  sample_.reopen();
  expect_refused("base-00001.safetensors in it is a file of the source");
  EXPECT_EQ(text(name), read_text(sample_.checkpoint_path()));
}

TEST_F(WritePackForeign, DoesNotFollowALink) {
  const std::filesystem::path behind = sample_.dir() / "behind";
  std::filesystem::create_directory(behind);
  testing::write_text(behind / ".trash-panda-partial", "");
  testing::write_text(behind / "plan.toml", "mine");
  std::filesystem::create_directory_symlink("behind", staging_);
  expect_refused("it is a symbolic link");
  EXPECT_EQ(read_text(behind / "plan.toml"), "mine");
  EXPECT_TRUE(std::filesystem::is_symlink(staging_));
}

TEST_F(WritePackForeign, KeepsAFile) {
  testing::write_text(staging_, "mine");
  expect_refused("it is no folder");
  EXPECT_EQ(read_text(staging_), "mine");
}

TEST_F(WritePackForeign, KeepsWhatAnotherUserLeft) {
  add(".trash-panda-partial", "");
  if (::chown(staging_.c_str(), 12345, static_cast<gid_t>(-1)) != 0) {
    GTEST_SKIP() << "only root can give a folder away";
  }
  expect_refused("it belongs to another user");
  EXPECT_TRUE(std::filesystem::exists(staging_ / ".trash-panda-partial"));
}

TEST(WritePack, IsLockedWhileAnotherWrites) {
  SamplePack sample;
  const std::filesystem::path staging = sample.dir() / "model.panda.partial";
  std::filesystem::create_directory(staging);
  testing::write_text(staging / "theirs", "data");
  const auto lock = must(FileSystem::posix().lock_directory(staging));
  const Result<Manifest> written = sample.write();
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code(), ErrorCode::kLocked);
  EXPECT_EQ(read_text(staging / "theirs"), "data");
}

TEST(WritePack, RemovesWhatItBeganWhenNoExtentIsFinished) {
  SamplePack sample;
  const std::atomic<bool> stop = true;
  sample.options().stop = &stop;
  const Result<Manifest> written = sample.write();
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code(), ErrorCode::kInterrupted);
  EXPECT_FALSE(std::filesystem::exists(sample.target()));
  EXPECT_FALSE(std::filesystem::exists(sample.dir() / "model.panda.partial"));
}

TEST(WritePack, NoticesThatTheSourceChanges) {
  SamplePack sample;
  sample.options().progress = [&](const Progress& progress) {
    if (progress.done_bytes == progress.total_bytes) {
      std::filesystem::last_write_time(
          sample.checkpoint_path(),
          std::filesystem::file_time_type::clock::now() + std::chrono::hours(1));
    }
  };
  const Result<Manifest> written = sample.write();
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code(), ErrorCode::kStale);
  EXPECT_THAT(written.error().message(), HasSubstr("model.safetensors changed"));
  EXPECT_FALSE(std::filesystem::exists(sample.target()));
  // Parts of it may be of before, parts of after.
  EXPECT_FALSE(std::filesystem::exists(sample.dir() / "model.panda.partial"));
}

TEST(WritePack, NoticesThatTheSourceChangesAndIsDatedBack) {
  SamplePack sample;
  sample.options().progress = [&](const Progress& progress) {
    if (progress.done_bytes == progress.total_bytes) {
      const auto written_at = std::filesystem::last_write_time(sample.checkpoint_path());
      // Longer than a tick of the clock that files are dated by.
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      std::string text = read_text(sample.checkpoint_path());
      text.back() = static_cast<char>(text.back() ^ 1);
      testing::write_text(sample.checkpoint_path(), text);
      std::filesystem::last_write_time(sample.checkpoint_path(), written_at);
    }
  };
  const Result<Manifest> written = sample.write();
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code(), ErrorCode::kStale);
  EXPECT_THAT(written.error().message(), HasSubstr("model.safetensors changed"));
}

TEST(WritePack, NoticesThatTheSourceChangedSinceItWasOpened) {
  SamplePack sample;
  const Checkpoint checkpoint = must(Checkpoint::open(sample.checkpoint_path()));
  must(SourceWatch::start(checkpoint));
  // Longer than a tick of the clock that files are dated by.
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  std::string text = read_text(sample.checkpoint_path());
  text.back() = static_cast<char>(text.back() ^ 1);
  testing::write_text(sample.checkpoint_path(), text);
  const Result<SourceWatch> watch = SourceWatch::start(checkpoint);
  ASSERT_FALSE(watch);
  EXPECT_EQ(watch.error().code(), ErrorCode::kStale);
}

TEST(WritePack, ReportsProgressInBytesUpToTheWhole) {
  SamplePack sample;
  std::vector<Progress> seen;
  sample.options().progress = [&](const Progress& progress) { seen.push_back(progress); };
  const Manifest manifest = must(sample.write());
  ASSERT_FALSE(seen.empty());
  for (std::size_t i = 1; i < seen.size(); ++i) {
    EXPECT_LT(seen[i - 1].done_bytes, seen[i].done_bytes);
  }
  EXPECT_EQ(seen.back().done_bytes, pack_size(manifest).total_bytes);
  EXPECT_EQ(seen.back().total_bytes, pack_size(manifest).total_bytes);
}

TEST(WritePack, MakesEqualPacksFromEqualInputs) {
  SamplePack sample;
  must(sample.write());
  must(write_pack(FileSystem::posix(), sample.checkpoint(), sample.weights(), sample.layout(),
                  sample.dir() / "again.panda", sample.options()));
  for (const auto& entry : std::filesystem::directory_iterator(sample.target())) {
    EXPECT_EQ(read_text(entry.path()),
              read_text(sample.dir() / "again.panda" / entry.path().filename()))
        << entry.path();
  }
}

/// Sizes around what decides how a tensor is read: apart or together, in one piece or several.
class WritePackOfSize : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(WritePackOfSize, KeepsEveryByte) {
  const std::uint64_t size_bytes = GetParam();
  testing::TempDir dir;
  testing::SafetensorsBuilder builder;
  builder.add_random("odd", Dtype::kU8, {13});
  builder.add_random("large", Dtype::kU8, {size_bytes});
  builder.add_random("last", Dtype::kU8, {4097});
  builder.write(dir / "model.safetensors");
  const Checkpoint checkpoint = must(Checkpoint::open(dir / "model.safetensors"));
  WeightTable weights;
  PackLayout layout;
  layout.extents.push_back({.name = "block", .tier = Tier::kDisk, .weights = {}});
  for (std::size_t i = 0; i < checkpoint.tensors().size(); ++i) {
    weights.weights.push_back({.name = checkpoint.tensors()[i].name,
                               .tensor_index = i,
                               .dtype = Dtype::kU8,
                               .scale = {}});
    layout.extents[0].weights.push_back(i);
  }
  PackOptions options;
  options.reserve_bytes = 0;
  must(write_pack(FileSystem::posix(), checkpoint, weights, layout, dir / "out.panda", options));
  EXPECT_EQ(read_shards(dir / "out.panda"), builder.tensors());
  const VerifyReport report = must(verify_pack(dir / "out.panda", {}));
  EXPECT_THAT(report.mismatches, ::testing::IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Boundaries, WritePackOfSize,
                         ::testing::Values(1, 1'048'575, 1'048'576, 4'194'303, 4'194'304, 4'194'305,
                                           20'000'001));

}  // namespace
}  // namespace trash_panda::format
