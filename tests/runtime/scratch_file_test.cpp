#include "probe/scratch_file.h"

#include <atomic>
#include <set>
#include <unistd.h>

#include <gtest/gtest.h>

#include "trash_panda/base/aligned_buffer.h"
#include "trash_panda/base/units.h"

#include "base/support/temp_dir.h"

namespace trash_panda::runtime {
namespace {

using trash_panda::testing::must;
using trash_panda::testing::TempDir;

TEST(ScratchFile, HasNoNameWhileItIsRead) {
  const TempDir folder;
  const ScratchFile file =
      must(ScratchFile::create(folder.path(), {.size_bytes = 20 * kMiB, .seconds = 60}));
  EXPECT_EQ(file.size_bytes(), 16 * kMiB) << "whole pieces of 8 MiB";
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  const File opened = must(file.open(ReadMode::kBuffered));
  EXPECT_EQ(opened.size_bytes(), file.size_bytes());
}

TEST(ScratchFile, NoTwoPagesAreAlike) {
  const TempDir folder;
  const ScratchFile file =
      must(ScratchFile::create(folder.path(), {.size_bytes = 16 * kMiB, .seconds = 60}));
  const File opened = must(file.open(ReadMode::kBuffered));
  const AlignedBuffer bytes = must(AlignedBuffer::create(file.size_bytes()));
  ASSERT_TRUE(opened.read_exact_at(0, bytes.span()));
  std::set<std::string_view> pages;
  for (std::uint64_t at = 0; at < bytes.size_bytes(); at += 4 * kKiB) {
    pages.emplace(reinterpret_cast<const char*>(bytes.data() + at), 4 * kKiB);
  }
  EXPECT_EQ(pages.size(), 4096U);
}

TEST(ScratchFile, EndsWhenTimeIsUp) {
  const TempDir folder;
  const ScratchFile file =
      must(ScratchFile::create(folder.path(), {.size_bytes = 80 * kMiB, .seconds = 0}));
  EXPECT_EQ(file.size_bytes(), 8 * kMiB);
}

TEST(ScratchFile, StopsAndLeavesNothing) {
  const TempDir folder;
  const std::atomic<bool> stop = true;
  const auto file =
      ScratchFile::create(folder.path(), {.size_bytes = 80 * kMiB, .seconds = 60, .stop = &stop});
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code(), ErrorCode::kInterrupted);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(ScratchFile, TellsWhereItCannotBe) {
  const auto file = ScratchFile::create("/nowhere/at/all", {.size_bytes = 8 * kMiB, .seconds = 1});
  ASSERT_FALSE(file);
  EXPECT_NE(file.error().message().find("/nowhere/at/all"), std::string::npos);
  const auto in_proc = ScratchFile::create("/proc", {.size_bytes = 8 * kMiB, .seconds = 1});
  EXPECT_FALSE(in_proc) << "procfs holds no files of ours";
}

}  // namespace
}  // namespace trash_panda::runtime
