// Taking on with what an interrupted run left. That crashes leave such things: pack_fault_test.cpp.

#include "pack_resume.h"

#include <atomic>
#include <chrono>
#include <filesystem>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trash_panda/format/checksum.h"
#include "trash_panda/format/pack_writer.h"

#include "conversion_line.h"
#include "format/support/fault_file_system.h"
#include "format/support/sample_pack.h"
#include "pack_journal.h"

namespace trash_panda::format {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::must;
using ::testing::Not;
using testing::read_text;
using testing::SamplePack;
using ::testing::StartsWith;

/// A sample whose first run was stopped after three of its five extents.
class ResumePack : public ::testing::Test {
 protected:
  ResumePack() {
    sample_.options().journal_bytes = 1;
    sample_.options().log = [this](LogLevel, std::string_view line) { log_.emplace_back(line); };
    sample_.options().stop = &stop_;
    std::size_t steps = 0;
    sample_.options().progress = [&](const Progress&) {
      // Two extents of one shard, then its header; one extent of the next one.
      stop_ = ++steps >= kSteps;
    };
    const Result<Manifest> written = sample_.write();
    EXPECT_EQ(written.error().code(), ErrorCode::kInterrupted);
    stop_ = false;
    sample_.options().progress = [this](const Progress& progress) {
      first_done_bytes_ = std::min(first_done_bytes_, progress.done_bytes);
    };
    EXPECT_EQ(read_journal(journal_path()).extents.size(), kFinished);
    EXPECT_TRUE(pack_can_resume(sample_.target()));
    log_.clear();
  }

  static constexpr std::size_t kSteps = 5;
  static constexpr std::size_t kFinished = 3;

  [[nodiscard]] std::filesystem::path staging() const {
    return partial_pack_path(sample_.target());
  }
  [[nodiscard]] std::filesystem::path journal_path() const {
    return staging() / ".trash-panda-partial";
  }

  /// The pack is there and as an undisturbed run writes it.
  void expect_written() {
    must(sample_.write());
    EXPECT_FALSE(std::filesystem::exists(staging()));
    const auto undisturbed = sample_.dir() / "undisturbed.panda";
    must(write_pack(FileSystem::posix(), sample_.checkpoint(), sample_.weights(), sample_.layout(),
                    undisturbed, sample_.options()));
    for (const auto& entry : std::filesystem::directory_iterator(undisturbed)) {
      EXPECT_EQ(read_text(entry.path()), read_text(sample_.target() / entry.path().filename()))
          << entry.path();
    }
  }

  /// What a run with the key of the journal takes on with.
  ResumePoint find_resume_point() {
    const Manifest manifest = must(sample_.lay_out_pack());
    const ExtentSource source(sample_.checkpoint(), sample_.weights(), sample_.layout(), manifest,
                              DirectUse::kAuto);
    const StagingDirectory staging = must(StagingDirectory::create(
        FileSystem::posix(), sample_.target(), SourceWatch(), is_pack_name, silent_logger()));
    return must(format::find_resume_point(staging, read_journal(journal_path()).key, manifest,
                                          source, nullptr));
  }

  void flip_byte(const std::filesystem::path& path, std::size_t at) {
    std::string text = read_text(path);
    text.at(at) = static_cast<char>(text.at(at) ^ 1);
    testing::write_text(path, text);
  }

  SamplePack sample_;
  std::atomic<bool> stop_ = false;
  std::vector<std::string> log_;
  std::uint64_t first_done_bytes_ = UINT64_MAX;
};

TEST_F(ResumePack, KnowsTheConversionsOfTheSameFilesAndRules) {
  const auto find = [&](std::string_view key) {
    return interrupted_conversions(sample_.target(),
                                   must(Checkpoint::open(sample_.checkpoint_path())), key);
  };
  EXPECT_EQ(find(sample_.layout().conversions_key), sample_.layout().conversions);
  EXPECT_EQ(find("other rules"), std::nullopt);
  EXPECT_EQ(interrupted_conversions(sample_.dir() / "elsewhere", sample_.checkpoint(), ""),
            std::nullopt);
  testing::write_text(sample_.checkpoint_path(), read_text(sample_.checkpoint_path()));
  EXPECT_EQ(find(sample_.layout().conversions_key), std::nullopt);
}

TEST_F(ResumePack, TakesOnBehindTheLastFinishedExtent) {
  expect_written();
  EXPECT_THAT(log_, ElementsAre(AllOf(StartsWith("taking on with "), HasSubstr("3 of 5 extents"))));
}

TEST_F(ResumePack, DoesNotMakeFinishedExtentsAgain) {
  // A byte of an extent before the last one, changed behind the back of the checks.
  flip_byte(staging() / "base-00001.safetensors", 4096 + 7);
  const std::string base = read_text(staging() / "base-00001.safetensors");
  must(sample_.write());
  EXPECT_EQ(read_text(sample_.target() / "base-00001.safetensors").substr(4096), base.substr(4096));
}

TEST_F(ResumePack, FindsASourceThatWasWrittenToAndDatedBack) {
  const auto written_at = std::filesystem::last_write_time(sample_.checkpoint_path());
  const TensorRecord& embed =
      sample_.checkpoint().tensors()[*sample_.checkpoint().find("embed.weight")];
  // Longer than a tick of the clock that files are dated by.
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  flip_byte(sample_.checkpoint_path(), embed.offset_bytes);
  std::filesystem::last_write_time(sample_.checkpoint_path(), written_at);
  sample_.reopen();
  sample_.options().resume = ResumeMode::kAlways;
  const Result<Manifest> written = sample_.write();
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code(), ErrorCode::kStale);
  sample_.options().resume = ResumeMode::kIfSame;
  expect_written();
  EXPECT_THAT(log_, ElementsAre(AllOf(StartsWith("removing "), HasSubstr("is another one now"))));
}

TEST_F(ResumePack, ComparesTheLastFinishedExtentWithTheSource) {
  const JournalContents journal = read_journal(journal_path());
  EXPECT_EQ(find_resume_point().extents.size(), kFinished);
  // As if the key could not tell the files apart.
  const TensorRecord& last =
      sample_.checkpoint()
          .tensors()[*sample_.checkpoint().find(journal.extents.back().tensors.front().name)];
  flip_byte(sample_.checkpoint_path(), last.offset_bytes);
  const ResumePoint point = find_resume_point();
  EXPECT_THAT(point.extents, IsEmpty());
  EXPECT_TRUE(point.is_stale);
  EXPECT_THAT(point.obstacle, HasSubstr("no longer gives the bytes"));
}

TEST_F(ResumePack, CountsFinishedExtentsAsDone) {
  must(sample_.write());
  EXPECT_GE(first_done_bytes_, 4096U);
}

TEST_F(ResumePack, StartsAnewWhenTheSourceChanged) {
  std::filesystem::last_write_time(
      sample_.checkpoint_path(),
      std::filesystem::file_time_type::clock::now() + std::chrono::hours(1));
  sample_.reopen();
  expect_written();
  EXPECT_THAT(log_, ElementsAre(AllOf(StartsWith("removing "), HasSubstr("is another one now"))));
}

TEST_F(ResumePack, StartsAnewForAnotherPlanOrLayout) {
  sample_.layout().plan_toml += "# another\n";
  expect_written();
  EXPECT_THAT(log_, ElementsAre(HasSubstr("is another one now")));
}

TEST_F(ResumePack, RefusesAnotherPlanWhereItHasToTakeOn) {
  sample_.layout().extents[1].tier = Tier::kRam;
  sample_.options().resume = ResumeMode::kAlways;
  const Result<Manifest> written = sample_.write();
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code(), ErrorCode::kStale);
  EXPECT_THAT(written.error().hint(), HasSubstr("--no-resume"));
  sample_.layout().extents[1].tier = Tier::kGpu;
  expect_written();
  EXPECT_THAT(log_, ElementsAre(StartsWith("taking on with ")));
}

TEST_F(ResumePack, StartsAnewWhenAsked) {
  sample_.options().resume = ResumeMode::kNever;
  expect_written();
  EXPECT_THAT(log_, ElementsAre(HasSubstr("as was asked for")));
}

TEST_F(ResumePack, WritesADamagedLastExtentAgain) {
  const auto last = read_journal(journal_path()).extents.back();
  flip_byte(staging() / "ram-00001.safetensors", last.offset_bytes + 7);
  expect_written();
  EXPECT_THAT(log_, ElementsAre(HasSubstr("2 of 5 extents")));
}

TEST_F(ResumePack, StartsAnewWhereNothingIsLeft) {
  for (const char* tier : {"base", "gpu", "ram"}) {
    std::filesystem::remove(staging() / fmt::format("{}-00001.safetensors", tier));
  }
  expect_written();
  EXPECT_THAT(log_, ElementsAre(HasSubstr("what it had finished is damaged")));
}

TEST_F(ResumePack, IgnoresATornLastLineOfTheJournal) {
  const std::string journal = read_text(journal_path());
  testing::write_text(journal_path(), journal.substr(0, journal.size() - 1));
  expect_written();
  EXPECT_THAT(log_, ElementsAre(HasSubstr("2 of 5 extents")));
}

TEST_F(ResumePack, TrustsNoLineOfTheJournalThatWasChanged) {
  flip_byte(journal_path(), read_text(journal_path()).rfind("stored_bytes") + 16);
  expect_written();
  EXPECT_THAT(log_, ElementsAre(HasSubstr("2 of 5 extents")));
}

TEST_F(ResumePack, TrustsNoJournalThatAManifestWouldNotSay) {
  const std::string journal = read_text(journal_path());
  const auto expect_anew = [&](const std::string& word, const std::string& other) {
    SCOPED_TRACE(word);
    // The last line, with its checksum made right again.
    const std::size_t line = journal.rfind('\n', journal.size() - 2) + 1;
    std::string text = journal.substr(line + 33, journal.size() - line - 34);
    const std::size_t at = text.find(word);
    ASSERT_NE(at, std::string::npos) << text;
    text.replace(at, word.size(), other);
    testing::write_text(
        journal_path(),
        journal.substr(0, line) + checksum_hex(std::as_bytes(std::span(text))) + " " + text + "\n");
    ASSERT_EQ(read_journal(journal_path()).extents.size(), kFinished);
    const ResumePoint point = find_resume_point();
    EXPECT_THAT(point.extents, IsEmpty());
    EXPECT_EQ(point.obstacle, "its journal does not fit");
  };
  expect_anew(R"("offset_bytes":512)", R"("offset_bytes":12345)");
  expect_anew(R"("dtype":"BF16")", R"("dtype":"F64")");
  expect_anew("attn.weight", "renamed.weight");
  testing::write_text(journal_path(), journal);
  EXPECT_EQ(find_resume_point().extents.size(), kFinished);
}

TEST_F(ResumePack, NeedsOnlyTheSpaceThatIsMissing) {
  const Manifest manifest = must(sample_.lay_out_pack());
  std::uint64_t there_bytes = 0;
  for (const char* tier : {"base", "gpu", "ram"}) {
    there_bytes +=
        std::filesystem::file_size(staging() / fmt::format("{}-00001.safetensors", tier));
  }
  testing::FaultFileSystem drive;
  drive.set_free_bytes(pack_size(manifest).total_bytes);
  const auto has_space = [&](std::uint64_t reserve_bytes) {
    PackOptions options;
    options.reserve_bytes = reserve_bytes;
    return check_pack_space(drive, sample_.target(), sample_.layout(), manifest, options)
        .has_value();
  };
  // The manifest and the plan take space, too.
  EXPECT_TRUE(has_space(there_bytes - 8192));
  EXPECT_FALSE(has_space(there_bytes));
  sample_.options().reserve_bytes = UINT64_MAX / 2;
  const Result<Manifest> written = sample_.write();
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code(), ErrorCode::kOutput);
  sample_.options().reserve_bytes = 0;
  expect_written();
  EXPECT_THAT(log_.back(), StartsWith("taking on with "));
}

TEST_F(ResumePack, KeepsWhatIsFinishedWhenAnotherRunCantBegin) {
  PackOptions& options = sample_.options();
  const std::uint64_t page_bytes = std::exchange(options.page_bytes, 65'536);
  options.reserve_bytes = UINT64_MAX / 2;
  EXPECT_EQ(sample_.write().error().code(), ErrorCode::kOutput);
  EXPECT_THAT(log_, IsEmpty());  // Nothing is said to be removed.
  options.page_bytes = page_bytes;
  options.reserve_bytes = 0;
  expect_written();
  EXPECT_THAT(log_.back(), StartsWith("taking on with "));
}

TEST_F(ResumePack, ExpectsNoRoomFromWhatLiesOnAnotherDrive) {
  const std::filesystem::path memory = "/dev/shm";
  const std::filesystem::path shard = staging() / "ram-00001.safetensors";
  struct stat here = {};
  struct stat there = {};
  ASSERT_EQ(::stat(shard.c_str(), &here), 0);
  if (::stat(memory.c_str(), &there) != 0 || here.st_dev == there.st_dev) {
    GTEST_SKIP() << "the machine has one filesystem only";
  }
  const Manifest manifest = must(sample_.lay_out_pack());
  const auto needed_bytes = [&] {
    return pack_drive_needs(sample_.target(), sample_.layout(), manifest, sample_.options())
        .front()
        .needed_bytes;
  };
  const std::uint64_t before_bytes = needed_bytes();
  const std::uint64_t shard_bytes = std::filesystem::file_size(shard);
  const testing::TempDir elsewhere(memory);
  std::filesystem::copy_file(shard, elsewhere / "shard");
  std::filesystem::remove(shard);
  std::filesystem::create_symlink(elsewhere / "shard", shard);
  EXPECT_EQ(needed_bytes(), before_bytes + shard_bytes);
}

TEST(ConversionLine, GivesBackWhatWasWritten) {
  const ConversionRecord record = {
      .key = "k\n\"",
      .conversions = {
          {0, {.dtype = Dtype::kBf16, .is_exact = true}},
          {7, {.dtype = Dtype::kF16}},
          {90'000, {.dtype = Dtype::kF8E4M3, .scale = std::numeric_limits<float>::denorm_min()}}}};
  const std::string line = write_conversion_line(record);
  EXPECT_THAT(line, Not(HasSubstr("\n")));
  const ConversionRecord back = must(parse_conversion_line(line));
  EXPECT_EQ(back.key, record.key);
  EXPECT_EQ(back.conversions, record.conversions);
}

TEST(ConversionLine, RefusesWhatIsNone) {
  for (const std::string_view text :
       {"", "{}", "[]", "{\"key\":\"k\",\"conversions\":[{\"weight\":0}]}",
        "{\"key\":\"k\",\"conversions\":[{\"weight\":0,\"dtype\":\"X\"}]}",
        "{\"key\":\"k\",\"conversions\":[{\"weight\":0,\"dtype\":\"BF16\","
        "\"scale_bits\":4294967296}]}"}) {
    EXPECT_EQ(parse_conversion_line(text).error().code(), ErrorCode::kCorrupt) << text;
  }
}

TEST(ReadJournal, IsEmptyForWhatIsNone) {
  const testing::TempDir dir;
  EXPECT_THAT(read_journal(dir / "absent").key, IsEmpty());
  for (const std::string& text : {std::string(), std::string("x"), std::string("\n\n"),
                                  std::string(100, 'a') + "\n", std::string(64, '\0')}) {
    testing::write_text(dir / "journal", text);
    EXPECT_THAT(read_journal(dir / "journal").key, IsEmpty());
    EXPECT_THAT(read_journal(dir / "journal").extents, IsEmpty());
  }
}

TEST(Pace, HoldsARate) {
  SamplePack sample;
  sample.options().write_bytes_per_s_max = 100'000;
  const auto start = std::chrono::steady_clock::now();
  must(sample.write());
  // Five extents of a page.
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(200));
}

}  // namespace
}  // namespace trash_panda::format
