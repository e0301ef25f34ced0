// Drives that fail or are slow while a pack is read.

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "cli_test.h"

namespace trash_panda::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// The program with tests/cli/read_faults loaded.
class ReadFaults : public CliTest {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "sanitizers want to be loaded first";
#endif
  }

  [[nodiscard]] RunOptions with(const std::string& variable, const std::string& text) const {
    return {.folder = folder_.path(),
            .environment = {{"LD_PRELOAD", TP_READ_FAULTS}, {variable, text}},
            .program = {}};
  }
};

TEST_F(ReadFaults, KeepAPackThatCantBeReadBack) {
  const RunResult result = run_program({"repack", "model.safetensors", "--verify"},
                                       with("TP_FAIL_READS_OF", "/model.panda/base-"));
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_THAT(result.err, HasSubstr("model.panda can't be read back: base-00001.safetensors"));
  EXPECT_THAT(result.err, HasSubstr("model.panda is complete, but not all of it was read back; "
                                    "look at it again with: trash-panda verify model.panda"));
  EXPECT_EQ(run({"verify", "model.panda"}).exit_code, 0);
}

TEST_F(ReadFaults, KeepBothPacksWhereOneIsToReplaceTheOther) {
  ASSERT_EQ(run({"repack", "model.safetensors"}).exit_code, 0);
  const std::string before = read_text(path("model.panda/manifest.json"));
  const RunResult result =
      run_program({"repack", "model.safetensors", "--verify", "--force", "--align", "64KiB"},
                  with("TP_FAIL_READS_OF", "/.model.panda.new/base-"));
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_THAT(result.err, HasSubstr("verify .model.panda.new; model.panda is still the old one"));
  EXPECT_EQ(read_text(path("model.panda/manifest.json")), before);
  EXPECT_EQ(run({"verify", ".model.panda.new"}).exit_code, 0);
  const RunResult anew = run({"repack", "model.safetensors", "--force"});
  EXPECT_EQ(anew.exit_code, 0) << anew.err;
  EXPECT_THAT(names(), ElementsAre("model.panda", "model.safetensors"));
}

TEST_F(ReadFaults, AreNoDamageForVerifyEither) {
  ASSERT_EQ(run({"repack", "model.safetensors"}).exit_code, 0);
  const RunResult result =
      run_program({"verify", "model.panda"}, with("TP_FAIL_READS_OF", "/model.panda/base-"));
  EXPECT_EQ(result.exit_code, 6) << result.err;
  EXPECT_THAT(result.err, HasSubstr("can't be read"));
  EXPECT_THAT(result.err, ::testing::Not(HasSubstr("damaged")));
}

}  // namespace
}  // namespace trash_panda::testing
