#include <string>
#include <vector>

#include "cli_test.h"
#include "format/support/gguf_builder.h"

namespace trash_panda::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

/// Sizes of small_gguf(): blocks of an F32 norm and of 12 blocks of Q4_K, the rest outside.
constexpr std::uint64_t kGgufBlockBytes = 1024 + 12 * 144;
constexpr std::uint64_t kGgufOutsideBytes = 10 * 8 * 34 + 1024;

class Gguf : public CliTest {
 protected:
  Gguf() { small_gguf().write(path("small.gguf")); }

  [[nodiscard]] nlohmann::json document(const std::vector<std::string>& arguments) const {
    const RunResult result = run(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.err, "");
    return nlohmann::json::parse(result.out);
  }
};

TEST_F(Gguf, InspectTellsWhatAnyCheckpointDoes) {
  const nlohmann::json found = document({"inspect", "--json", "--tensors", "small.gguf"});
  EXPECT_EQ(found["file_format"], "GGUF");
  EXPECT_EQ(found["architecture"], "llama");
  EXPECT_EQ(found["architecture_source"], "GGUF");
  EXPECT_EQ(found["tensor_count"], 14);
  EXPECT_EQ(found["total_bytes"], 4 * kGgufBlockBytes + kGgufOutsideBytes);
  EXPECT_EQ(found["outside_bytes"], kGgufOutsideBytes);
  ASSERT_EQ(found["groups"].size(), 1U);
  EXPECT_EQ(found["groups"][0]["prefix"], "blk.");
  EXPECT_EQ(found["groups"][0]["count"], 4);
  EXPECT_EQ(found["groups"][0]["bytes_total"], 4 * kGgufBlockBytes);
  EXPECT_EQ(found["formats"], nlohmann::json({"Q4_K", "fp32", "Q8_0"}));
  EXPECT_EQ(found["tensors"][0]["dtype"], "Q8_0");
  EXPECT_EQ(found["tensors"][0]["shape"], nlohmann::json({10, 256}));
  EXPECT_EQ(found["tensors"][0]["format"], "Q8_0");
  EXPECT_THAT(found["warnings"], ElementsAre());
}

TEST_F(Gguf, InspectNamesTheFormat) {
  const RunResult result = run({"inspect", "small.gguf"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out,
              AllOf(StartsWith("small.gguf  14.8 kB  14 tensors in 1 file  GGUF  llama"),
                    HasSubstr("Q4_K 6.91 kB in 8 tensors"), HasSubstr("blk.")));
}

TEST_F(Gguf, PlanExpandsBlocksAndWarns) {
  const nlohmann::json planned = document({"plan", "--json", "small.gguf", "--max-vram=0"});
  EXPECT_EQ(planned["blocks"].size(), 4U);
  EXPECT_EQ(planned["blocks"][0]["name"], "blk.0");
  EXPECT_EQ(planned["blocks"][0]["stored_bytes"], kGgufBlockBytes);
  EXPECT_EQ(planned["blocks"][0]["expanded_bytes"], 2 * (256 + 12 * 256));
  ASSERT_FALSE(planned["warnings"].empty());
  EXPECT_THAT(planned["warnings"].dump(), AllOf(HasSubstr("GGUF"), HasSubstr("safetensors")));
  const RunResult result = run({"plan", "small.gguf", "--max-vram=0"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err, AllOf(HasSubstr("warning: "), HasSubstr("neither repack nor stream"),
                                Not(HasSubstr("next: "))));
}

TEST_F(Gguf, RepackRefusesByNameAndWritesNothing) {
  ASSERT_EQ(run({"plan", "small.gguf", "-o", "plan.toml", "--max-vram=0"}).exit_code, 0);
  const std::vector<std::string> before = names();
  expect_failure(run({"repack", "small.gguf"}), 4, {"small.gguf", "GGUF", "safetensors"});
  expect_failure(run({"repack", "-n", "small.gguf"}), 4, {"GGUF"});
  expect_failure(run({"repack", "small.gguf", "--plan", "plan.toml"}), 4, {"GGUF"});
  EXPECT_EQ(names(), before);
  const RunResult result = run({"repack", "--json", "small.gguf"});
  EXPECT_EQ(nlohmann::json::parse(result.err)["code"], "gguf");
}

TEST_F(Gguf, DefectsAreNamedByEveryCommand) {
  const std::string file = small_gguf().file();
  write_text(path("cut.gguf"), file.substr(0, file.size() - 1));
  small_gguf().version(0x03000000).write(path("big.gguf"));
  small_gguf().number("general.alignment", 0).write(path("alignment.gguf"));
  for (const char* command : {"inspect", "plan", "repack"}) {
    expect_failure(run({command, "cut.gguf"}), 4, {"cut.gguf", "truncated", "output_norm.weight"});
    expect_failure(run({command, "big.gguf"}), 4, {"big.gguf", "endian"});
    expect_failure(run({command, "alignment.gguf"}), 4, {"alignment.gguf: ", "alignment is 0"});
  }
}

}  // namespace
}  // namespace trash_panda::testing
