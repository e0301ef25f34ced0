// What is left of a pack when calls fail or the power goes, at every single call.

#include <cerrno>
#include <filesystem>
#include <map>
#include <ranges>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trash_panda/format/pack_verify.h"
#include "trash_panda/format/pack_writer.h"

#include "format/support/checkpoint_builder.h"
#include "format/support/fault_file_system.h"
#include "format/support/sample_pack.h"

namespace trash_panda::format {
namespace {

using testing::FaultFileSystem;
using ::testing::IsEmpty;
using testing::Loss;
using testing::must;
using testing::SamplePack;

/// A sample whose every extent is entered in the journal on its own.
class JournaledSample : public SamplePack {
 public:
  JournaledSample() {
    options().journal_bytes = 1;
    options().log = [this](LogLevel, std::string_view line) {
      has_resumed = has_resumed || line.starts_with("taking on with ");
    };
  }

  bool has_resumed = false;
};

std::uint64_t calls_of_an_undisturbed_run() {
  JournaledSample sample;
  FaultFileSystem file_system;
  must(sample.write(file_system));
  return file_system.call_count();
}

/// There is no pack under the final name, or a whole one.
void expect_none_or_whole(const SamplePack& sample) {
  if (std::filesystem::exists(sample.target())) {
    const Result<VerifyReport> report = verify_pack(sample.target(), {});
    ASSERT_TRUE(report) << report.error().to_string();
    EXPECT_THAT(report->mismatches, IsEmpty());
  }
}

std::string all_files(const std::filesystem::path& pack) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(pack)) {
    // The manifest names the source's folder. The mark is there after a cut before its removal.
    if (entry.path().filename() != kManifestName &&
        entry.path().filename() != ".trash-panda-partial") {
      files[entry.path().filename()] = testing::read_text(entry.path());
    }
  }
  return fmt::format("{}", fmt::join(files | std::views::values, "|"));
}

std::string files_of_an_undisturbed_run() {
  JournaledSample sample;
  must(sample.write());
  return all_files(sample.target());
}

class PackFault : public ::testing::TestWithParam<int> {};

TEST_P(PackFault, FailsCleanlyAtEveryCallAndARerunTakesOn) {
  const std::uint64_t call_count = calls_of_an_undisturbed_run();
  const std::string expected = files_of_an_undisturbed_run();
  ASSERT_GT(call_count, 40U);
  std::size_t resumed_count = 0;
  for (std::uint64_t call = 0; call < call_count; ++call) {
    SCOPED_TRACE(fmt::format("call {} of {}", call, call_count));
    JournaledSample sample;
    FaultFileSystem file_system;
    file_system.fail_call(call, GetParam());
    const Result<Manifest> written = sample.write(file_system);
    ASSERT_FALSE(written);
    EXPECT_THAT(written.error().message(), ::testing::HasSubstr(sample.dir().path().string()));
    EXPECT_FALSE(std::filesystem::exists(sample.target()));
    const bool can_resume = pack_can_resume(sample.target());
    EXPECT_EQ(std::filesystem::exists(sample.dir() / "model.panda.partial"), can_resume);
    must(sample.write());
    EXPECT_EQ(sample.has_resumed, can_resume);
    EXPECT_EQ(all_files(sample.target()), expected);
    resumed_count += sample.has_resumed ? 1U : 0U;
  }
  EXPECT_GT(resumed_count, 20U);
}

INSTANTIATE_TEST_SUITE_P(Errnos, PackFault, ::testing::Values(ENOSPC, EIO));

class PackPowerCut : public ::testing::TestWithParam<Loss> {};

TEST_P(PackPowerCut, LeavesNoneOrAWholePackAndARerunTakesOn) {
  const std::uint64_t call_count = calls_of_an_undisturbed_run();
  const std::string expected = files_of_an_undisturbed_run();
  std::size_t resumed_count = 0;
  for (std::uint64_t call = 0; call <= call_count; ++call) {
    SCOPED_TRACE(fmt::format("power cut at call {} of {}", call, call_count));
    JournaledSample sample;
    FaultFileSystem file_system;
    file_system.cut_power_at(call);
    const Result<Manifest> written = sample.write(file_system);
    EXPECT_EQ(written.has_value(), call == call_count);
    file_system.lose(GetParam());
    expect_none_or_whole(sample);
    if (written) {
      // Reported as written: then no power cut takes it away.
      EXPECT_TRUE(std::filesystem::exists(sample.target()));
    }
    if (!std::filesystem::exists(sample.target())) {
      FaultFileSystem healthy;
      must(sample.write(healthy));
      resumed_count += sample.has_resumed ? 1U : 0U;
    }
    EXPECT_EQ(all_files(sample.target()), expected);
  }
  EXPECT_GT(resumed_count, 15U);
}

/// The rerun is cut, too, wherever that is; the one after it is not.
TEST_P(PackPowerCut, MayHitTheRerunAsWell) {
  const std::uint64_t call_count = calls_of_an_undisturbed_run();
  const std::string expected = files_of_an_undisturbed_run();
  for (std::uint64_t call = 0; call <= call_count; call += 7) {
    SCOPED_TRACE(fmt::format("rerun cut at call {}", call));
    JournaledSample sample;
    for (const std::uint64_t cut : {call_count / 2, call}) {
      FaultFileSystem file_system;
      file_system.cut_power_at(cut);
      const Result<Manifest> written = sample.write(file_system);
      file_system.lose(GetParam());
      expect_none_or_whole(sample);
    }
    if (!std::filesystem::exists(sample.target())) {
      must(sample.write());
    }
    EXPECT_EQ(all_files(sample.target()), expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Losses, PackPowerCut,
                         ::testing::Values(Loss::kNothing, Loss::kData, Loss::kDataToZeros,
                                           Loss::kSomeData, Loss::kDataAndNames));

}  // namespace
}  // namespace trash_panda::format
