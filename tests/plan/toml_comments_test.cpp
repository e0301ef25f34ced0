#include "toml_comments.h"

#include <array>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trash_panda/plan/plan_toml.h"

#include "plan/support/models.h"

namespace trash_panda::plan {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr std::string_view kWritten = R"(# The writer's remark.
version = 1

[budget]
ram_bytes = 5  # 5 B
list = [1, 2]

[[block]]
name = "a"
tier = "gpu"

[[block]]
name = "b"
tier = "ram"
)";
constexpr std::array<std::string_view, 1> kRemarks = {"# The writer's remark."};

std::string keep(std::string_view commented) {
  return keep_toml_comments(commented, kWritten, kRemarks);
}

std::string with(std::string_view from, std::string_view to) {
  std::string text(kWritten);
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(TomlComments, LeavesADocumentWithoutOwnOnesAsItIs) {
  EXPECT_EQ(keep(kWritten), kWritten);
  EXPECT_EQ(keep(""), kWritten);
}

TEST(TomlComments, KeepsThemWhereTheyWere) {
  for (const auto& [from, to] : {
           std::pair{"# The", "# mine, first\n# The"},
           std::pair{"version", "# mine, last\nversion"},
           std::pair{"version = 1", "version = 1  # mine"},
           std::pair{"[budget]", "# why so little\n# and so on\n[budget]  # beside"},
           std::pair{"5 B", "5 B  # the rest is the browser's"},
           std::pair{"list", "# of two\nlist"},
           std::pair{"tier = \"ram\"", "tier = \"ram\"  # only this one"},
           std::pair{"[[block]]\nname = \"b\"", "# over b\n[[block]]\nname = \"b\""},
       }) {
    EXPECT_EQ(keep(with(from, to)), with(from, to)) << to;
  }
  const std::string at_end = std::string(kWritten) + "# the end\n";
  EXPECT_EQ(keep(at_end), at_end);
}

TEST(TomlComments, FollowTheirBlockNotItsPlace) {
  const std::string kept = keep(
      "[[block]]\nname = \"b\"\n# of b\ntier = \"gpu\"\n[[block]]\ntier = \"gpu\" # of a\n"
      "name = \"a\"\n");
  EXPECT_EQ(kept, keep_toml_comments(
                      "[[block]]\nname = \"a\"\ntier = 1 # of a\n[[block]]\nname = \"b\"\n# of b\n"
                      "tier = 2\n",
                      kWritten, kRemarks));
  EXPECT_THAT(kept, HasSubstr("name = \"b\"\n# of b\ntier = \"ram\"\n"));
  EXPECT_THAT(kept, HasSubstr("name = \"a\"\ntier = \"gpu\"  # of a\n"));
}

TEST(TomlComments, ComeLastWithoutAPlace) {
  EXPECT_THAT(keep("# on top\n[gone]\nkey = 1 # beside\n# over two\ntwo = 2\n"),
              EndsWith("tier = \"ram\"\n# on top\n# beside\n# over two\n"));
}

TEST(TomlComments, AreNoStringsAndNoAmounts) {
  const std::string kept = keep(
      "version = \"# no\" # one\r\n[budget]\nram_bytes = 7  # 7.00 kB/s\n"
      "list = [ # two\n  \"]#\", '''\n# no\n''', # three\n]\n");
  EXPECT_THAT(kept, HasSubstr("version = 1  # one\n"));
  EXPECT_THAT(kept, HasSubstr("ram_bytes = 5  # 5 B\n# two\n# three\nlist = [1, 2]\n"));
  EXPECT_THAT(kept, Not(HasSubstr("no")));
  // Written on behind the amount, it is the user's.
  EXPECT_THAT(keep("[budget]\nram_bytes = 7 # 7 B or so"), HasSubstr("# 5 B  # or so\n"));
  EXPECT_THAT(keep("[budget]\nram_bytes = 7 # 7 Bananas"), HasSubstr("# 5 B  # 7 Bananas\n"));
}

TEST(TomlComments, StayInPlansThatAreWrittenAnew) {
  const Plan plan =
      make_plan(equal_model(3, 8192, 1000), machine_with_gpu(16ULL << 30, 12ULL << 30), {}).value();
  const std::string written = write_plan_toml(plan);
  EXPECT_EQ(rewrite_plan_toml(plan, written), written);
  std::string mine = "# for the cinema\n" + written;
  const std::string_view tier = "name = \"layers.1\"\ntier = \"gpu\"";
  mine.replace(mine.find(tier), tier.size(), "name = \"layers.1\"\ntier = \"ram\"  # too loud");
  const std::string kept = rewrite_plan_toml(plan, mine);
  EXPECT_THAT(kept, StartsWith("# for the cinema\n# Plan of trash-panda."));
  EXPECT_THAT(kept, HasSubstr("name = \"layers.1\"\ntier = \"gpu\"  # too loud\n"));
  EXPECT_EQ(parse_plan_toml(kept, "p.toml").value(), [&] {
    Plan silent = plan;
    silent.warnings.clear();
    return silent;
  }());
  EXPECT_EQ(rewrite_plan_toml(plan, kept), kept);
}

}  // namespace
}  // namespace trash_panda::plan
