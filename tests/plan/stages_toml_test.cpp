#include "trash_panda/plan/stages_toml.h"

#include <array>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trash_panda::plan {
namespace {

using ::testing::HasSubstr;

constexpr std::array<std::string_view, 3> kOptions = {"max_ram", "no_disk", "assign"};

Result<std::vector<StageEntry>> parse(std::string_view text) {
  return parse_stages_toml(text, "pipe.toml", kOptions);
}

TEST(ParseStagesToml, ReadsStagesInTheirOrder) {
  const auto stages = parse(R"(
[[stage]]
name = "encode"
model = "text_encoder"
keep = true
no_disk = true

[[stage]]
name = "denoise"
model = "org/name:unet"
steps = 28
max_ram = 8000000000
assign = ["disk=0-7", "gpu=-1"]
)");
  ASSERT_TRUE(stages) << stages.error().to_string();
  const StageEntry encode = {.name = "encode",
                             .model = "text_encoder",
                             .step_count = 1,
                             .stays_loaded = true,
                             .options = {{"no_disk", "true"}}};
  const StageEntry denoise = {
      .name = "denoise",
      .model = "org/name:unet",
      .step_count = 28,
      .stays_loaded = false,
      .options = {{"assign", "disk=0-7"}, {"assign", "gpu=-1"}, {"max_ram", "8000000000"}}};
  EXPECT_THAT(*stages, ::testing::ElementsAre(encode, denoise));
}

TEST(ParseStagesToml, RefusesWhatIsNoPipelineAndSaysWhere) {
  const auto refusal = [](std::string_view text) {
    const auto stages = parse(text);
    EXPECT_FALSE(stages) << text;
    return stages ? std::string() : stages.error().to_string();
  };
  EXPECT_THAT(refusal(""), HasSubstr("pipe.toml:1:1: there is no [[stage]]"));
  EXPECT_THAT(refusal("stage = 3"), HasSubstr("there is no [[stage]]"));
  EXPECT_THAT(refusal("stage = [1]"), HasSubstr("there is no [[stage]]"));
  EXPECT_THAT(refusal("[[stages]]\n"), HasSubstr("stage"));
  EXPECT_THAT(refusal("[[stage]]\nname = \"a\"\n"), HasSubstr("model is missing"));
  EXPECT_THAT(refusal("[[stage]]\nname = \"a\"\nmodel = \"m\"\nmax_rma = 1\n"),
              HasSubstr("did you mean max_ram?"));
  EXPECT_THAT(refusal("[[stage]]\nname = \"a\"\nmodel = \"m\"\nsteps = 0\n"),
              HasSubstr("pipe.toml:4:9: steps must be from 1"));
  EXPECT_THAT(refusal("[[stage]]\nname = \"../a\"\nmodel = \"m\"\n"),
              HasSubstr("can't name a file"));
  EXPECT_THAT(refusal("[[stage]]\nname = \"a\"\nmodel = \"m\"\n"
                      "[[stage]]\nname = \"a\"\nmodel = \"m\"\n"),
              HasSubstr("pipe.toml:4:1: a second stage a"));
  EXPECT_THAT(refusal("[[stage]]\nname = \"a\"\nmodel = \"m\"\nmax_ram = 1979-05-27\n"),
              HasSubstr("max_ram must be a string, a number"));
}

}  // namespace
}  // namespace trash_panda::plan
