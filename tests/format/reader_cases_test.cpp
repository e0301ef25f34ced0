// Every case of the shared folder that is about files, headers and indexes: sound ones open, broken
// ones are refused with their class and the names that the message must have.

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trash_panda/format/checkpoint.h"

#include "support/checkpoint_builder.h"

namespace trash_panda::format {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::read_text;

const fs::path kCases = fs::path(TP_SOURCE_DIR) / "../shared/cases";

/// Classes of errors that show before any tensor is looked at.
constexpr std::array<std::string_view, 26> kReaderClasses = {"too_short",
                                                             "header_length",
                                                             "header_too_large",
                                                             "utf8",
                                                             "json",
                                                             "schema",
                                                             "metadata",
                                                             "duplicate",
                                                             "dtype",
                                                             "subbyte",
                                                             "overflow",
                                                             "size_mismatch",
                                                             "offsets",
                                                             "truncated",
                                                             "trailing",
                                                             "not_safetensors",
                                                             "index",
                                                             "missing_shard",
                                                             "index_duplicate",
                                                             "missing_tensor",
                                                             "unsafe_path",
                                                             "pickle",
                                                             "gguf",
                                                             "duplicate_across_shards",
                                                             "utf8_or_json",
                                                             "unsupported_format"};

bool is_reader_error(const json& entry) {
  const std::string reason = entry.value("error_class", "");
  // Formats of weights are the business of what comes after reading.
  const bool is_weight_format = reason == "unsupported_format" && entry.at("group") != "shards";
  return std::ranges::find(kReaderClasses, reason) != kReaderClasses.end() && !is_weight_format;
}

/// The other outcomes that a case allows, such as "error" or "refuse-by-name".
std::vector<std::string> accepted(const json& expected) {
  const json accept = expected.value("accept", json::array());
  return accept.is_array() ? accept.get<std::vector<std::string>>() : std::vector<std::string>();
}

bool allows(const json& expected, std::string_view start) {
  return std::ranges::any_of(
      accepted(expected), [&](const std::string& outcome) { return outcome.starts_with(start); });
}

void expect_opened(const Result<Checkpoint>& checkpoint, const json& expected) {
  if (!checkpoint) {
    const bool may_refuse = allows(expected, "refuse") || allows(expected, "error");
    EXPECT_TRUE(may_refuse) << checkpoint.error().to_string();
    return;
  }
  for (const json& mention : expected.value("warnings_mention", json::array())) {
    // Warnings about scales come from what is read later; the index's are ours.
    if (mention == "total_size") {
      EXPECT_THAT(checkpoint->notes(), ::testing::Contains(::testing::HasSubstr("total_size")));
    }
  }
}

void expect_refused(const Result<Checkpoint>& checkpoint, const json& entry, const json& expected) {
  if (checkpoint) {
    EXPECT_TRUE(allows(expected, "values")) << "opened";
    return;
  }
  const std::string reason(checkpoint.error().reason());
  const std::string wanted = entry.at("error_class");
  if (wanted == "utf8_or_json") {
    EXPECT_TRUE(reason == "utf8" || reason == "json") << reason;
  } else {
    EXPECT_EQ(reason, wanted) << checkpoint.error().to_string();
  }
  // What a refusal of the whole format can't know: the names inside.
  if (!allows(expected, "refuse-by-name")) {
    for (const json& name : expected.value("message_names", json::array())) {
      EXPECT_THAT(checkpoint.error().message(), ::testing::HasSubstr(name.get<std::string>()));
    }
  }
  EXPECT_THAT(checkpoint.error().to_string(), ::testing::Not(::testing::HasSubstr("\n")));
}

TEST(ReaderCases, OpenOrAreRefusedAsExpected) {
  if (!fs::exists(kCases / "manifest.json")) {
    GTEST_SKIP() << "no folder of shared cases at " << kCases;
  }
  const json manifest = json::parse(read_text(kCases / "manifest.json"));
  int opened = 0;
  int refused = 0;
  for (const json& entry : manifest) {
    const std::string id = entry.at("id");
    SCOPED_TRACE(id);
    const json expected = json::parse(read_text(kCases / id / "expected.json"));
    const Result<Checkpoint> checkpoint =
        Checkpoint::open(kCases / entry.at("entry").get<std::string>());
    (checkpoint ? opened : refused) += 1;
    if (entry.at("outcome") == "error" && !entry.at("error_class").is_null() &&
        is_reader_error(entry)) {
      expect_refused(checkpoint, entry, expected);
    } else {
      expect_opened(checkpoint, expected);
    }
  }
  EXPECT_GT(opened, 0);
  EXPECT_GT(refused, 0);
  std::printf("%d cases opened, %d refused\n", opened, refused);
}

}  // namespace
}  // namespace trash_panda::format
