#include "file_sniff.h"

#include <span>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trash_panda::format {
namespace {

using ::testing::HasSubstr;

std::string name_of(const std::string& head) {
  const auto format = sniff_foreign_format(std::as_bytes(std::span(head)));
  return format ? std::string(format->name) : "nothing";
}

std::string reason_of(const std::string& head) {
  const auto format = sniff_foreign_format(std::as_bytes(std::span(head)));
  return format ? std::string(format->reason) : "nothing";
}

TEST(SniffForeignFormat, KnowsWhatPeopleHandOver) {
  EXPECT_THAT(name_of("version https://git-lfs.github.com/spec/v1\noid sha256:0\n"),
              HasSubstr("LFS"));
  EXPECT_THAT(name_of("<!DOCTYPE html><html>"), HasSubstr("HTML"));
  EXPECT_THAT(name_of("\xef\xbb\xbf\r\n <html>"), HasSubstr("HTML"));
  EXPECT_THAT(name_of("<?xml version=\"1.0\"?>"), HasSubstr("XML"));
  EXPECT_THAT(name_of("PK\x03\x04"), HasSubstr("zip"));
  EXPECT_THAT(name_of("GGUF\x03"), HasSubstr("GGUF"));
  EXPECT_THAT(name_of("Entry not found"), HasSubstr("text"));
  EXPECT_THAT(name_of(R"({"error":"Repository not found"})"), HasSubstr("JSON"));
  EXPECT_THAT(name_of("\x1f\x8b\x08"), HasSubstr("gzip"));
}

TEST(SniffForeignFormat, KnowsEveryWayOfTorchSave) {
  EXPECT_EQ(reason_of("PK\x03\x04"), "pickle");
  EXPECT_EQ(reason_of("\x80\x02\x8a\x0a\x6c\xfc"), "pickle");
  std::string tar(512, '\0');
  tar.replace(257, 5, "ustar");
  EXPECT_EQ(reason_of(tar), "pickle");
  EXPECT_EQ(reason_of(tar.substr(0, 257)), "nothing");
  EXPECT_EQ(reason_of("GGUF"), "gguf");
}

TEST(SniffForeignFormat, GuessesNothingFromLittle) {
  EXPECT_EQ(name_of(""), "nothing");
  EXPECT_EQ(name_of("<"), "nothing");
  EXPECT_EQ(name_of(std::string(64, '\xff')), "nothing");
  EXPECT_EQ(name_of("abcdefgh"), "nothing");
}

}  // namespace
}  // namespace trash_panda::format
