// Checkpoints of torch.save() on the command line.

#include <string>

#include "cli_test.h"
#include "format/support/torch_builder.h"

namespace trash_panda::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class TorchModel : public CliTest {
 protected:
  TorchModel() {
    using namespace pickle;
    std::string items;
    for (std::uint64_t i = 0; i < 3; ++i) {
      const PickledView view{.count = 3 * 64, .offset = 64 * i, .shape = {8, 8}, .strides = {1, 8}};
      items += text(fmt::format("layers.{}.weight", i)) + view.pickled();
    }
    TorchBuilder()
        .root(dict(text("epoch") + integer(3) + text("state_dict") + dict(items)))
        .storage("0", random_bytes(4 * 3 * 64, 7))
        .write(path("old.ckpt"));
  }
};

TEST_F(TorchModel, IsInspectedPlannedAndPacked) {
  const RunResult inspected = run({"inspect", "old.ckpt", "--json"});
  ASSERT_EQ(inspected.exit_code, 0) << inspected.err;
  const auto document = nlohmann::json::parse(inspected.out);
  EXPECT_EQ(document["tensor_count"], 3);
  EXPECT_EQ(document["total_bytes"], 3 * 64 * 4);
  EXPECT_EQ(document["groups"][0]["count"], 3);
  EXPECT_THAT(document["warnings"].dump(), HasSubstr("state_dict"));
  const RunResult planned = run({"plan", "old.ckpt", "-o", "plan.toml"});
  EXPECT_EQ(planned.exit_code, 0) << planned.err;
  const RunResult packed = run({"repack", "old.ckpt", "--plan", "plan.toml"});
  EXPECT_EQ(packed.exit_code, 0) << packed.err;
  const RunResult verified = run({"verify", "old.panda"});
  EXPECT_EQ(verified.exit_code, 0) << verified.err;
}

TEST_F(TorchModel, HasTiesBySharedMemory) {
  using namespace pickle;
  const PickledView view{.count = 64, .offset = 0, .shape = {8, 8}, .strides = {8, 1}};
  TorchBuilder()
      .root(dict(text("embed.weight") + view.pickled() + text("head.weight") + view.pickled()))
      .storage("0", random_bytes(4 * 64, 7))
      .write(path("tied.pt"));
  const RunResult inspected = run({"inspect", "tied.pt", "--json"});
  ASSERT_EQ(inspected.exit_code, 0) << inspected.err;
  const nlohmann::json tie = nlohmann::json::parse(inspected.out)["ties"].at(0);
  EXPECT_EQ(tie["name"], "head.weight");
  EXPECT_EQ(tie["target"], "embed.weight");
  EXPECT_EQ(tie["source"], "shared memory");
}

TEST_F(TorchModel, IsRefusedWhenItWouldRunSomething) {
  using namespace pickle;
  TorchBuilder()
      .root(dict(text("a") + global("posix", "system") + text("touch executed") + "\x85R"))
      .write(path("evil.pt"));
  for (const std::string command : {"inspect", "plan", "repack"}) {
    expect_failure(run({command, "evil.pt"}), 4, {"evil.pt", "posix.system", "safetensors"});
  }
  EXPECT_THAT(names(), Not(::testing::Contains("executed")));
  const RunResult json = run({"inspect", "evil.pt", "--json"});
  EXPECT_EQ(nlohmann::json::parse(json.err)["code"], "pickle");
}

}  // namespace
}  // namespace trash_panda::testing
