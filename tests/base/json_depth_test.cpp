#include "trash_panda/base/json_depth.h"

#include <string>

#include <gtest/gtest.h>

namespace trash_panda {
namespace {

std::string nested(std::size_t levels, const std::string& open, char close) {
  std::string text;
  for (std::size_t i = 0; i < levels; ++i) {
    text += open;
  }
  return text + "1" + std::string(levels, close);
}

TEST(IsJsonTooDeep, TakesTheDeepestAllowedLevelOnly) {
  for (const auto& [open, close] : {std::pair("[", ']'), std::pair("{\"a\":", '}')}) {
    EXPECT_FALSE(is_json_too_deep(nested(kJsonDepthMax, open, close))) << open;
    EXPECT_TRUE(is_json_too_deep(nested(kJsonDepthMax + 1, open, close))) << open;
  }
}

TEST(IsJsonTooDeep, CountsWhatIsOpenAtOnce) {
  std::string text = "[";
  for (int i = 0; i < 1000; ++i) {
    text += "[],{},";
  }
  EXPECT_FALSE(is_json_too_deep(text + "1]"));
}

TEST(IsJsonTooDeep, LeavesStringsAside) {
  const std::string brackets(1000, '[');
  EXPECT_FALSE(is_json_too_deep("[\"" + brackets + "\"]"));
  EXPECT_FALSE(is_json_too_deep(R"(["\")" + brackets + "\"]"));
  EXPECT_TRUE(is_json_too_deep(R"(["\\")" + brackets));
}

TEST(IsJsonTooDeep, EndsWhereTheTextDoes) {
  EXPECT_FALSE(is_json_too_deep(""));
  EXPECT_FALSE(is_json_too_deep("\"\\"));
  EXPECT_FALSE(is_json_too_deep("]]]"));
}

}  // namespace
}  // namespace trash_panda
