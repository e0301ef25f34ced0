#include "trash_panda/format/linked_shard.h"

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trash_panda/format/pack_verify.h"
#include "trash_panda/format/pack_writer.h"

#include "format/support/checkpoint_builder.h"
#include "format/support/fault_file_system.h"
#include "format/support/sample_pack.h"

namespace trash_panda::format {
namespace {

namespace fs = std::filesystem;
using testing::FaultFileSystem;
using testing::Loss;
using testing::must;
using testing::read_text;

constexpr std::string_view kDiskShard = "disk-00001.safetensors";

/// A sample whose disk shard goes to a folder of its own.
class LinkedSample : public testing::SamplePack {
 public:
  LinkedSample() {
    fs::create_directory(fast());
    options().disk_prefix = fast() / "model.panda";
    options().journal_bytes = 1;
  }

  [[nodiscard]] fs::path fast() const { return dir() / "fast"; }
  [[nodiscard]] fs::path partial() const { return dir() / "model.panda.partial"; }
  [[nodiscard]] std::size_t file_count() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(fast()), fs::directory_iterator()));
  }
  [[nodiscard]] std::string disk_shard() const { return read_text(target() / kDiskShard); }
  void expect_whole() const {
    EXPECT_TRUE(fs::is_symlink(target() / kDiskShard));
    EXPECT_EQ(file_count(), 1U);
    EXPECT_THAT(must(verify_pack(target(), {})).mismatches, ::testing::IsEmpty());
  }
};

std::uint64_t calls_of_an_undisturbed_link() {
  LinkedSample sample;
  FaultFileSystem file_system;
  must(sample.write(file_system));
  return file_system.call_count();
}

TEST(LinkedShard, LiesInItsOwnFolderWithTheSameBytes) {
  testing::SamplePack plain;
  must(plain.write());
  LinkedSample sample;
  must(sample.write());
  sample.expect_whole();
  EXPECT_EQ(sample.disk_shard(), read_text(plain.target() / kDiskShard));
  EXPECT_FALSE(fs::is_symlink(sample.target() / "ram-00001.safetensors"));
}

TEST(LinkedShard, IsNeverLeftWithoutItsPackWhicheverCallFails) {
  const std::uint64_t call_count = calls_of_an_undisturbed_link();
  for (std::uint64_t call = 0; call < call_count; ++call) {
    SCOPED_TRACE(fmt::format("call {} of {}", call, call_count));
    LinkedSample sample;
    FaultFileSystem file_system;
    file_system.fail_call(call, EIO);
    ASSERT_FALSE(sample.write(file_system));
    EXPECT_FALSE(fs::exists(sample.target()));
    EXPECT_TRUE(fs::exists(sample.partial()) || sample.file_count() == 0);
    must(sample.write());
    sample.expect_whole();
  }
}

TEST(LinkedShard, SurvivesPowerCutsOrIsMadeAgain) {
  const std::uint64_t call_count = calls_of_an_undisturbed_link();
  for (const Loss loss : {Loss::kData, Loss::kDataAndNames}) {
    for (std::uint64_t call = 0; call <= call_count; ++call) {
      SCOPED_TRACE(fmt::format("power cut at call {} of {}", call, call_count));
      LinkedSample sample;
      FaultFileSystem file_system;
      file_system.cut_power_at(call);
      const bool is_written = sample.write(file_system).has_value();
      file_system.lose(loss);
      if (!fs::exists(sample.target())) {
        EXPECT_FALSE(is_written);
        must(sample.write());
      }
      sample.expect_whole();
    }
  }
}

TEST(LinkedShard, IsNotWrittenToByARunThatTakesOnWithACopy) {
  LinkedSample sample;
  std::atomic<bool> stop = false;
  sample.options().stop = &stop;
  sample.options().progress = [&](const Progress&) { stop = sample.file_count() == 1; };
  ASSERT_FALSE(sample.write());
  ASSERT_EQ(sample.file_count(), 1U);
  stop = false;
  sample.options().progress = {};
  const fs::path linked = fs::read_symlink(sample.partial() / kDiskShard);
  // Of the same name elsewhere, so that the file of its disk tier would have the same name, too.
  const fs::path copy = sample.dir() / "elsewhere/model.panda";
  fs::create_directory(copy.parent_path());
  fs::copy(sample.partial(), partial_pack_path(copy),
           fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  const auto write_copy = [&] {
    return write_pack(FileSystem::posix(), sample.checkpoint(), sample.weights(), sample.layout(),
                      copy, sample.options());
  };
  sample.options().resume = ResumeMode::kAlways;
  const Result<Manifest> refused = write_copy();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kStale);
  EXPECT_THAT(refused.error().message(), ::testing::HasSubstr("or the folder is a copy"));
  sample.options().resume = ResumeMode::kIfSame;
  must(write_copy());
  EXPECT_NE(fs::read_symlink(copy / kDiskShard), linked);
  EXPECT_EQ(sample.file_count(), 2U);
  must(sample.write());  // And the original is taken on with.
  EXPECT_EQ(fs::read_symlink(sample.target() / kDiskShard), linked);
  for (const fs::path& pack : {copy, sample.target()}) {
    EXPECT_THAT(must(verify_pack(pack, {})).mismatches, ::testing::IsEmpty());
  }
}

TEST(LinkedShard, IsLeftToItsLinkEvenWhileItIsEmpty) {
  const testing::TempDir dir;
  const fs::path file = new_linked_file(dir / "x.panda", kDiskShard);
  testing::write_text(file, "");
  fs::create_directory(dir / "a");
  fs::create_directory(dir / "b");
  for (const char* folder : {"a", "b"}) {
    fs::create_symlink(file, dir / folder / kDiskShard);
  }
  own_linked_file(dir / "a" / kDiskShard);
  must(remove_pack_file(FileSystem::posix(), dir / "b" / kDiskShard, silent_logger()));
  EXPECT_TRUE(fs::exists(file));
  must(remove_pack_file(FileSystem::posix(), dir / "a" / kDiskShard, silent_logger()));
  EXPECT_FALSE(fs::exists(file));
}

TEST(LinkedShard, MovesWhenItsFolderIsAnotherOne) {
  LinkedSample sample;
  std::atomic<bool> stop = false;
  sample.options().stop = &stop;
  // Once its first extent is written.
  sample.options().progress = [&](const Progress&) { stop = sample.file_count() == 1; };
  ASSERT_FALSE(sample.write());
  ASSERT_TRUE(pack_can_resume(sample.target()));
  ASSERT_EQ(sample.file_count(), 1U);
  stop = false;
  sample.options().progress = {};
  sample.options().disk_prefix.clear();
  must(sample.write());
  EXPECT_FALSE(fs::is_symlink(sample.target() / kDiskShard));
  EXPECT_EQ(sample.file_count(), 0U);
}

TEST(LinkedShard, NeedsSpaceOnItsOwnDrive) {
  LinkedSample sample;
  FaultFileSystem file_system;
  file_system.set_free_bytes(1);
  const Result<Manifest> written = sample.write(file_system);
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code(), ErrorCode::kOutput);
  EXPECT_EQ(sample.file_count(), 0U);
}

TEST(LinkedFile, IsKnownByItsName) {
  const testing::TempDir dir;
  const fs::path shard = dir / std::string(kDiskShard);
  const auto is_known = [&](const fs::path& file) {
    fs::remove(shard);
    fs::create_symlink(file, shard);
    return linked_file(shard) == file;
  };
  EXPECT_TRUE(is_known(new_linked_file("/fast/model.panda", kDiskShard)));
  EXPECT_TRUE(is_known("/fast/m.0123abcd.disk-00001.safetensors"));
  EXPECT_FALSE(is_known("fast/m.0123abcd.disk-00001.safetensors"));
  EXPECT_FALSE(is_known("/fast/m.0123abcg.disk-00001.safetensors"));
  EXPECT_FALSE(is_known("/fast/m.0123abc.disk-00001.safetensors"));
  EXPECT_FALSE(is_known("/fast/.0123abcd.disk-00001.safetensor"));
  EXPECT_FALSE(is_known("/fast/0123abcd.disk-00001.safetensors"));
  EXPECT_FALSE(is_known("/fast/m.0123abcd.ram-00001.safetensors"));
  EXPECT_FALSE(is_known("/etc/passwd"));
  EXPECT_FALSE(linked_file(dir / "absent"));
}

TEST(RemovePackFile, KeepsWhatAnotherPackLinksToo) {
  const testing::TempDir dir;
  const fs::path file = dir / "m.0123abcd.disk-00001.safetensors";
  testing::write_text(file, "shard");
  fs::create_directory(dir / "a");
  fs::create_directory(dir / "b");
  const fs::path one = dir / "a" / std::string(kDiskShard);
  const fs::path other = dir / "b" / std::string(kDiskShard);
  must(FileSystem::posix().link_symbolically(file, one));
  must(FileSystem::posix().link(one, other));
  own_linked_file(one);
  must(remove_pack_file(FileSystem::posix(), one, silent_logger()));
  EXPECT_FALSE(fs::is_symlink(one));
  EXPECT_TRUE(fs::exists(file));
  must(remove_pack_file(FileSystem::posix(), other, silent_logger()));
  EXPECT_FALSE(fs::exists(file));
}

TEST(RemovePackFile, LeavesWhatACopyOfThePackLinksToAndSaysSo) {
  LinkedSample sample;
  must(sample.write());
  const fs::path copy = sample.dir() / "copy";
  fs::create_directory(copy);
  // As cp -a does it: another link to the same file.
  fs::copy_symlink(sample.target() / kDiskShard, copy / kDiskShard);
  std::vector<std::string> log;
  must(remove_pack_file(FileSystem::posix(), copy / kDiskShard,
                        [&](LogLevel, std::string_view line) { log.emplace_back(line); }));
  EXPECT_FALSE(fs::is_symlink(copy / kDiskShard));
  sample.expect_whole();
  EXPECT_THAT(log, ::testing::ElementsAre(::testing::HasSubstr("another pack may need it")));
}

}  // namespace
}  // namespace trash_panda::format
