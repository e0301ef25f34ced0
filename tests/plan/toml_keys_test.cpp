#include "toml_keys.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trash_panda/plan/plan_toml.h"

namespace trash_panda::plan {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// Deep enough to overflow a stack of 8 MiB where the parser recurses.
constexpr std::size_t kHostileParts = 200'000;
std::string key_of(std::size_t parts, const std::string& part = "a") {
  std::string key = part;
  for (std::size_t i = 1; i < parts; ++i) {
    key += "." + part;
  }
  return key;
}

std::string error_of(const std::string& text) {
  const Result<Plan> plan = parse_plan_toml(text, "p.toml");
  return plan ? "" : plan.error().to_string();
}

TEST(TomlKeys, RefusesHostileOnesWithTheirLine) {
  for (const std::string& part : {std::string("a"), std::string(R"("a")"), std::string("'b'"),
                                  std::string(R"("\"#")"), std::string("a ")}) {
    const std::string key = key_of(kHostileParts, part);
    for (const std::string& text :
         {key + " = 1\n", "[" + key + "]\n", "[[" + key + "]]\n", "t = {" + key + " = 1}\n",
          "t = [\n{" + key + " = 1}]\n", "t = \"\"\"\"\n\"\"\"\"\"\n" + key + " = 1\n",
          "t = '''\n''\\'''\n" + key + " = 1\n", "t = \"\\\\\" # \"\n" + key + " = 1\n"}) {
      EXPECT_THAT(error_of("# It's\n" + text), HasSubstr("a key of more than 16 parts"))
          << part << text.substr(0, 20);
    }
  }
  EXPECT_THAT(error_of("a = 1\n\nb = '''\n'''\n[" + key_of(kHostileParts) + "]"),
              HasSubstr("p.toml:5: "));
}

TEST(TomlKeys, TakesTheLongestAllowed) {
  EXPECT_THAT(error_of("version = 1\n" + key_of(kTomlKeyPartsMax) + " = 1"),
              Not(HasSubstr("more than 16 parts")));
  EXPECT_THAT(error_of("version = 1\n" + key_of(kTomlKeyPartsMax + 1) + " = 1"),
              HasSubstr("more than 16 parts"));
}

TEST(TomlKeys, LeavesStringsAndCommentsAside) {
  const std::string dots(1000, '.');
  for (const std::string& text :
       {"version = '" + dots + "'", "version = \"" + dots + "\"", "version = '''" + dots + "'''",
        "version = \"\"\"\\\"" + dots + "\"\"\"", "# " + dots + "\nversion = 2"}) {
    EXPECT_THAT(error_of(text), HasSubstr("version")) << text.substr(0, 20);
    EXPECT_THAT(error_of(text), Not(HasSubstr("parts"))) << text.substr(0, 20);
  }
}

TEST(TomlKeys, RefusesHostileValues) {
  EXPECT_THAT(error_of("a = " + std::string(kHostileParts, '[')), HasSubstr("p.toml:1:"));
  EXPECT_THAT(error_of("a = 'b\n" + key_of(kHostileParts)), HasSubstr("p.toml:"));
}

}  // namespace
}  // namespace trash_panda::plan
