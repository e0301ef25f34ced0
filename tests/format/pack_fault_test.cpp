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

std::uint64_t calls_of_an_undisturbed_run() {
  SamplePack sample;
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

class PackFault : public ::testing::TestWithParam<int> {};

TEST_P(PackFault, FailsCleanlyAtEveryCall) {
  const std::uint64_t call_count = calls_of_an_undisturbed_run();
  ASSERT_GT(call_count, 30U);
  SamplePack sample;
  for (std::uint64_t call = 0; call < call_count; ++call) {
    SCOPED_TRACE(fmt::format("call {} of {}", call, call_count));
    FaultFileSystem file_system;
    file_system.fail_call(call, GetParam());
    const Result<Manifest> written = sample.write(file_system);
    ASSERT_FALSE(written);
    EXPECT_THAT(written.error().message(), ::testing::HasSubstr(sample.dir().path().string()));
    EXPECT_FALSE(std::filesystem::exists(sample.target()));
    EXPECT_FALSE(std::filesystem::exists(sample.dir() / "model.panda.partial"));
  }
  must(sample.write());
  expect_none_or_whole(sample);
}

INSTANTIATE_TEST_SUITE_P(Errnos, PackFault, ::testing::Values(ENOSPC, EIO));

class PackPowerCut : public ::testing::TestWithParam<Loss> {};

TEST_P(PackPowerCut, LeavesNoneOrAWholePackAndARerunSucceeds) {
  const std::uint64_t call_count = calls_of_an_undisturbed_run();
  SamplePack undisturbed;
  FaultFileSystem never_failing;
  must(undisturbed.write(never_failing));
  const std::string expected = all_files(undisturbed.target());
  for (std::uint64_t call = 0; call <= call_count; ++call) {
    SCOPED_TRACE(fmt::format("power cut at call {} of {}", call, call_count));
    SamplePack sample;
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
    }
    EXPECT_EQ(all_files(sample.target()), expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Losses, PackPowerCut,
                         ::testing::Values(Loss::kNothing, Loss::kData, Loss::kDataToZeros,
                                           Loss::kDataAndNames));

}  // namespace
}  // namespace trash_panda::format
