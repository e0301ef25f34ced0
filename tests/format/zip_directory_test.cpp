#include "zip_directory.h"

#include <span>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/zip_builder.h"

namespace trash_panda::format {
namespace {

using ::testing::HasSubstr;
using testing::ZipBuilder;
using testing::ZipSizes;

Result<ZipDirectory> read_zip(const std::string& file) {
  return ZipDirectory::read(memory_source(std::as_bytes(std::span(file))));
}

std::string zip_verdict(const std::string& file) {
  const Result<ZipDirectory> zip = read_zip(file);
  return zip ? "opens" : std::string(zip.error().reason());
}

ZipBuilder two_entries(ZipSizes sizes = ZipSizes::kPlain) {
  ZipBuilder zip(sizes);
  zip.add({.name = "a/data.pkl", .data = "first", .padding_bytes = 21});
  zip.add("a/version", "3\n");
  return zip;
}

void expect_two_entries(const std::string& file) {
  const Result<ZipDirectory> zip = read_zip(file);
  ASSERT_TRUE(zip) << zip.error().to_string();
  ASSERT_EQ(zip->entries().size(), 2U);
  const ZipEntry* entry = zip->find("a/data.pkl");
  ASSERT_NE(entry, nullptr);
  EXPECT_TRUE(entry->is_stored);
  EXPECT_EQ(file.substr(entry->data_offset_bytes, entry->size_bytes), "first");
  EXPECT_EQ(zip->find("a/data.pk"), nullptr);
  EXPECT_EQ(zip->find("b"), nullptr);
}

TEST(ZipDirectory, FindsWhereDataLie) {
  expect_two_entries(two_entries().file());
}

TEST(ZipDirectory, Reads64BitSizes) {
  expect_two_entries(two_entries(ZipSizes::kIn64Bits).file());
}

TEST(ZipDirectory, FindsItsEndBeforeAComment) {
  std::string file = two_entries().file();
  file[file.size() - 2] = 5;
  expect_two_entries(file + "hello");
}

TEST(ZipDirectory, SaysWhatIsCompressedOrEncrypted) {
  ZipBuilder zip = two_entries();
  zip.entries()[0].method = 8;
  zip.entries()[1].flags |= 1;
  const Result<ZipDirectory> read = read_zip(zip.file());
  ASSERT_TRUE(read) << read.error().to_string();
  EXPECT_FALSE(read->entries()[0].is_stored);
  EXPECT_FALSE(read->entries()[1].is_stored);
}

TEST(ZipDirectory, RefusesWhatEndsAnywhereElse) {
  for (const ZipSizes sizes : {ZipSizes::kPlain, ZipSizes::kIn64Bits}) {
    const std::string file = two_entries(sizes).file();
    for (std::size_t size = 0; size < file.size(); ++size) {
      EXPECT_EQ(zip_verdict(file.substr(0, size)), "truncated") << size;
    }
  }
}

TEST(ZipDirectory, RefusesEntriesThatReachIntoOthers) {
  ZipBuilder zip = two_entries();
  zip.entries()[0].size_added = 1;
  const Result<ZipDirectory> overlap = read_zip(zip.file());
  ASSERT_FALSE(overlap);
  EXPECT_THAT(overlap.error().message(), HasSubstr("\"a/data.pkl\" and \"a/version\""));
  zip.entries()[0].size_added = 0;
  zip.entries()[1].size_added = 1;
  EXPECT_THAT(read_zip(zip.file()).error().message(), HasSubstr("reaches past"));
}

TEST(ZipDirectory, RefusesSizesThatWrap) {
  ZipBuilder zip = two_entries(ZipSizes::kIn64Bits);
  zip.entries()[1].size_added = ~std::uint64_t{0} - 2;
  EXPECT_EQ(zip_verdict(zip.file()), "zip");
}

TEST(ZipDirectory, RefusesOneNameTwice) {
  ZipBuilder zip = two_entries();
  zip.add("a/version", "4\n");
  EXPECT_THAT(read_zip(zip.file()).error().message(), HasSubstr("two entries named \"a/version\""));
}

TEST(ZipDirectory, RefusesAnEntryThatIsNotWhereItShouldBe) {
  std::string file = two_entries().file();
  file[30] = 'b';  // The name in the entry's own header.
  EXPECT_THAT(read_zip(file).error().message(), HasSubstr("is not at 0"));
}

TEST(ZipDirectory, StaysWithinTheFileWhateverByteIsWrong) {
  const std::string sound = two_entries(ZipSizes::kIn64Bits).file();
  for (std::size_t at = 0; at < sound.size(); ++at) {
    for (const char wrong : {'\0', '\1', '\x7f', '\xff'}) {
      std::string file = sound;
      file[at] = wrong;
      const Result<ZipDirectory> zip = read_zip(file);
      if (!zip) {
        continue;
      }
      for (const ZipEntry& entry : zip->entries()) {
        EXPECT_LE(entry.data_offset_bytes, file.size());
        EXPECT_LE(entry.size_bytes, file.size() - entry.data_offset_bytes);
      }
    }
  }
}

}  // namespace
}  // namespace trash_panda::format
