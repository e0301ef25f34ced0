#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "trash_panda/base/units.h"

#include "cli_test.h"

namespace trash_panda::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class PlanProbe : public CliTest {
 protected:
  PlanProbe() { std::filesystem::create_directory(path("cache")); }

  /// Two layers of 150 MiB that are holes: only headers are read of it.
  void write_large_model() const {
    constexpr std::uint64_t kLayerBytes = 150 * kMiB;
    std::string header = "{";
    for (std::uint64_t layer = 0; layer < 2; ++layer) {
      header += fmt::format(
          R"({}"layers.{}.weight":{{"dtype":"BF16","shape":[{}],"data_offsets":[{},{}]}})",
          layer == 0 ? "" : ",", layer, kLayerBytes / 2, layer * kLayerBytes,
          (layer + 1) * kLayerBytes);
    }
    header += "}";
    const std::vector<std::uint64_t> length = {header.size()};
    write_text(path("large.safetensors"), bytes_of(length) + header);
    std::filesystem::resize_file(path("large.safetensors"), 8 + header.size() + 2 * kLayerBytes);
  }

  [[nodiscard]] RunResult plan(const std::string& model,
                               const std::vector<std::string>& options = {}) const {
    std::vector<std::string> arguments = {"plan", model, "--max-vram=0"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    return run(arguments, {{"XDG_CACHE_HOME", path("cache").native()}});
  }
  [[nodiscard]] bool has_cache() const {
    return std::filesystem::exists(path("cache/trash-panda"));
  }
};

TEST_F(PlanProbe, MeasuresForLargeModelsOnceAndSaysSo) {
  write_large_model();
  const RunResult first = plan("large.safetensors");
  EXPECT_EQ(first.exit_code, 0) << first.err;
  EXPECT_THAT(first.err, HasSubstr("measured this machine in "));
  EXPECT_THAT(first.out, Not(HasSubstr("measured")));
  EXPECT_TRUE(has_cache());
  const RunResult second = plan("large.safetensors");
  EXPECT_EQ(second.exit_code, 0) << second.err;
  EXPECT_THAT(second.err, Not(HasSubstr("measured")));
  EXPECT_THAT(names(), ::testing::ElementsAre("cache", "large.safetensors", "model.safetensors"));
}

TEST_F(PlanProbe, NeverMeasuresForSmallOnes) {
  const RunResult result = plan("model.safetensors");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, Not(HasSubstr("measured")));
  EXPECT_FALSE(has_cache());
}

TEST_F(PlanProbe, NeverIsNever) {
  write_large_model();
  const RunResult result = plan("large.safetensors", {"--probe", "never"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, Not(HasSubstr("measured")));
  EXPECT_FALSE(has_cache());
}

TEST_F(PlanProbe, ForceMeasuresWhateverIsKnown) {
  for (int time = 0; time < 2; ++time) {
    const RunResult result = plan("model.safetensors", {"--probe=force"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.err, HasSubstr("measured this machine in "));
  }
  EXPECT_TRUE(has_cache());
}

TEST_F(PlanProbe, RefusesAnotherWord) {
  expect_failure(plan("model.safetensors", {"--probe", "perhaps"}), 2, {"--probe", "perhaps"});
}

}  // namespace
}  // namespace trash_panda::testing
