#include "trash_panda/base/file.h"

#include <filesystem>
#include <string>
#include <sys/stat.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trash_panda/base/aligned_buffer.h"

#include "base/support/temp_dir.h"

namespace trash_panda {
namespace {

using ::testing::HasSubstr;
using testing::must;
using testing::TempDir;
using testing::write_text;

TEST(FileOpen, RefusesWhatIsNoRegularFile) {
  const TempDir dir;
  ASSERT_EQ(::mkfifo((dir / "fifo").c_str(), 0600), 0);
  for (const std::filesystem::path& path : {dir / "missing", dir / "fifo", dir.path()}) {
    for (const ReadMode mode : {ReadMode::kBuffered, ReadMode::kDirect}) {
      const Result<File> file = File::open(path, mode);
      ASSERT_FALSE(file) << path;
      EXPECT_EQ(file.error().code(), ErrorCode::kMissing);
      EXPECT_THAT(file.error().message(), HasSubstr(path.string()));
    }
  }
}

TEST(FileReadExactAt, ReadsUpToTheEndAndNoByteMore) {
  const TempDir dir;
  write_text(dir / "file", "0123456789");
  const File file = must(File::open(dir / "file"));
  EXPECT_EQ(file.size_bytes(), 10U);
  std::string bytes(4, '\0');
  ASSERT_TRUE(file.read_exact_at(6, std::as_writable_bytes(std::span(bytes))));
  EXPECT_EQ(bytes, "6789");
  const Result<void> past = file.read_exact_at(7, std::as_writable_bytes(std::span(bytes)));
  ASSERT_FALSE(past);
  EXPECT_EQ(past.error().code(), ErrorCode::kCorrupt);
  EXPECT_EQ(past.error().reason(), "truncated");
  EXPECT_EQ(file.read_at(7, std::as_writable_bytes(std::span(bytes))), 3U);
  EXPECT_EQ(file.read_at(10, std::as_writable_bytes(std::span(bytes))), 0U);
}

TEST(FileReadAt, ReadsTheSameDirectAndBuffered) {
  const TempDir dir;
  std::string content(10'000, '\0');
  for (std::size_t i = 0; i < content.size(); ++i) {
    content[i] = static_cast<char>(i * 7);
  }
  write_text(dir / "file", content);
  // A filesystem that refuses direct reads opens buffered: then both are the same.
  const File file = must(File::open(dir / "file", ReadMode::kDirect));
  const AlignedBuffer buffer = must(AlignedBuffer::create(8192));
  ASSERT_EQ(file.read_at(4096, buffer.span()), content.size() - 4096);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(buffer.data()), content.size() - 4096),
            content.substr(4096));
}

TEST(File, MovesItsDescriptor) {
  const TempDir dir;
  write_text(dir / "file", "x");
  File first = must(File::open(dir / "file"));
  const int fd = first.fd();
  const File second = std::move(first);
  EXPECT_EQ(second.fd(), fd);
  EXPECT_TRUE(second.is_open());
}

TEST(Printable, EscapesWhatWouldBreakALine) {
  EXPECT_EQ(printable("a\nb\tc\x7f"), "a\\x0ab\\x09c\\x7f");
  EXPECT_EQ(printable(std::string("é 💡")), "é 💡");
  EXPECT_EQ(printable(std::filesystem::path("/a b/-c")), "/a b/-c");
}

TEST(FilesystemName, KnowsProc) {
  EXPECT_EQ(filesystem_name("/proc/self"), "proc");
  EXPECT_EQ(filesystem_name("/no/such/file"), "unknown");
}

TEST(AlignedBuffer, IsAlignedZeroedAndRoundedToPages) {
  const AlignedBuffer buffer = must(AlignedBuffer::create(5000));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 4096, 0U);
  EXPECT_EQ(buffer.size_bytes() % 4096, 0U);
  EXPECT_GE(buffer.size_bytes(), 5000U);
  EXPECT_EQ(buffer.data()[4999], std::byte{0});
  EXPECT_EQ(must(AlignedBuffer::create(0)).data(), nullptr);
  EXPECT_FALSE(AlignedBuffer::create(UINT64_MAX));
}

}  // namespace
}  // namespace trash_panda
