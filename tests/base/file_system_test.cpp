#include "trash_panda/base/file_system.h"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <string>
#include <sys/resource.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trash_panda/base/aligned_buffer.h"

#include "base/support/temp_dir.h"

namespace trash_panda {
namespace {

using testing::must;
using testing::read_text;
using testing::TempDir;
using testing::write_text;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

void expect_output_error(const Result<void>& result) {
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), ErrorCode::kOutput) << result.error().message();
}

/// Lowers the largest file that this process may write, as a full drive would.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t limit_bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit = {.rlim_cur = limit_bytes, .rlim_max = before_.rlim_max};
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_ = {};
  void (*handler_)(int) = nullptr;
};

TEST(PosixFileSystem, WritesAFileInPieces) {
  const TempDir dir;
  const auto file = must(FileSystem::posix().create_file(dir / "file", WriteMode::kBuffered));
  ASSERT_TRUE(file->write_at(4, bytes_of("two")));
  ASSERT_TRUE(file->write_at(2, bytes_of("")));
  ASSERT_TRUE(file->write_at(0, bytes_of("one ")));
  ASSERT_TRUE(file->sync());
  ASSERT_TRUE(file->close());
  EXPECT_EQ(read_text(dir / "file"), "one two");
}

TEST(PosixFileSystem, GoesOnAfterAShortWriteAndReportsWhyItEnds) {
  const TempDir dir;
  const auto file = must(FileSystem::posix().create_file(dir / "file", WriteMode::kBuffered));
  const FileSizeLimit limit(10'000);
  // The kernel writes 10,000 bytes of it, then refuses the rest.
  const Result<void> written = file->write_at(0, bytes_of(std::string(20'000, 'x')));
  expect_output_error(written);
  EXPECT_THAT(written.error().message(), ::testing::HasSubstr("File too large"));
  EXPECT_EQ(std::filesystem::file_size(dir / "file"), 10'000U);
}

TEST(PosixFileSystem, WritesWholePagesDirectlyAndTheRestThroughTheCache) {
  const TempDir dir;
  const AlignedBuffer pages = must(AlignedBuffer::create(8192));
  std::ranges::fill(pages.span(), std::byte{'p'});
  const auto file = must(FileSystem::posix().create_file(dir / "file", WriteMode::kDirect));
  ASSERT_TRUE(file->write_at(4096, pages.span()));
  ASSERT_TRUE(file->write_at(0, bytes_of("head")));
  ASSERT_TRUE(file->write_at(12288, pages.span().first(4096)));
  ASSERT_TRUE(file->close());
  EXPECT_EQ(read_text(dir / "file"), "head" + std::string(4092, '\0') + std::string(12288, 'p'));
}

TEST(PosixFileSystem, CutsAFileThatItOpensAgain) {
  const TempDir dir;
  write_text(dir / "file", "kept and not");
  {
    const auto file = must(FileSystem::posix().open_file(dir / "file", 4, WriteMode::kDirect));
    ASSERT_TRUE(file->write_at(4, bytes_of("!")));
    ASSERT_TRUE(file->close());
  }
  EXPECT_EQ(read_text(dir / "file"), "kept!");
  std::filesystem::create_symlink("file", dir / "link");
  for (const char* name : {"link", "absent", "."}) {
    const auto opened = FileSystem::posix().open_file(dir / name, 0, WriteMode::kBuffered);
    ASSERT_FALSE(opened) << name;
    EXPECT_EQ(opened.error().code(), ErrorCode::kOutput);
  }
  EXPECT_EQ(read_text(dir / "file"), "kept!");
}

TEST(PosixFileSystem, CreatesOnlyWhatIsNew) {
  const TempDir dir;
  write_text(dir / "file", "mine");
  const auto file = FileSystem::posix().create_file(dir / "file", WriteMode::kBuffered);
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code(), ErrorCode::kOutput);
  expect_output_error(FileSystem::posix().create_directory(dir / "file"));
  expect_output_error(FileSystem::posix().create_directory(dir / "no/parent"));
  EXPECT_EQ(read_text(dir / "file"), "mine");
}

TEST(PosixFileSystem, RenamesOverNothing) {
  const TempDir dir;
  ASSERT_TRUE(FileSystem::posix().create_directory(dir / "a"));
  ASSERT_TRUE(FileSystem::posix().create_directory(dir / "b"));
  expect_output_error(FileSystem::posix().rename(dir / "a", dir / "b"));
  expect_output_error(FileSystem::posix().rename(dir / "missing", dir / "c"));
  ASSERT_TRUE(FileSystem::posix().rename(dir / "a", dir / "c"));
  EXPECT_FALSE(FileSystem::posix().exists(dir / "a"));
  EXPECT_TRUE(FileSystem::posix().exists(dir / "c"));
  EXPECT_TRUE(FileSystem::posix().sync_directory(dir.path()));
}

TEST(PosixFileSystem, RemovesAndListsFolders) {
  const TempDir dir;
  std::filesystem::create_directories(dir / "folder/inner");
  write_text(dir / "folder/file", "x");
  EXPECT_THAT(must(FileSystem::posix().list_directory(dir / "folder")),
              ::testing::UnorderedElementsAre(dir / "folder/inner", dir / "folder/file"));
  ASSERT_TRUE(FileSystem::posix().remove_all(dir / "folder"));
  EXPECT_FALSE(FileSystem::posix().exists(dir / "folder"));
  EXPECT_TRUE(FileSystem::posix().remove_all(dir / "folder"));
  EXPECT_FALSE(FileSystem::posix().list_directory(dir / "folder"));
}

TEST(PosixFileSystem, SeesADanglingLinkAsThere) {
  const TempDir dir;
  std::filesystem::create_symlink("nowhere", dir / "link");
  EXPECT_TRUE(FileSystem::posix().exists(dir / "link"));
}

TEST(PosixFileSystem, LocksAFolderOnce) {
  const TempDir dir;
  auto lock = must(FileSystem::posix().lock_directory(dir.path()));
  const auto again = FileSystem::posix().lock_directory(dir.path());
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code(), ErrorCode::kLocked);
  lock.reset();
  EXPECT_TRUE(FileSystem::posix().lock_directory(dir.path()));
}

TEST(PosixFileSystem, LocksNoFolderThroughALink) {
  const TempDir dir;
  std::filesystem::create_directory(dir / "folder");
  std::filesystem::create_directory_symlink("folder", dir / "link");
  const auto lock = FileSystem::posix().lock_directory(dir / "link");
  ASSERT_FALSE(lock);
  EXPECT_EQ(lock.error().code(), ErrorCode::kOutput) << lock.error().message();
}

TEST(PosixFileSystem, KnowsFreeSpace) {
  const TempDir dir;
  EXPECT_GT(must(FileSystem::posix().free_bytes(dir.path())), 0U);
  EXPECT_FALSE(FileSystem::posix().free_bytes(dir / "missing"));
}

}  // namespace
}  // namespace trash_panda
