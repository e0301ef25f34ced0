#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include "cli_test.h"

namespace trash_panda::testing {
namespace {

/// What people hand over by mistake, to every command that takes a model.
class WrongInput : public CliTest, public ::testing::WithParamInterface<const char*> {
 protected:
  void expect_refused(const std::string& model, int exit_code,
                      const std::vector<std::string>& mentions) {
    const std::vector<std::string> before = names();
    expect_failure(run({GetParam(), model}), exit_code, mentions);
    EXPECT_EQ(names(), before);
  }
};

INSTANTIATE_TEST_SUITE_P(Commands, WrongInput, ::testing::Values("inspect", "plan", "repack"),
                         [](const auto& param_info) { return std::string(param_info.param); });

TEST_P(WrongInput, MissingFile) {
  expect_refused("absent.safetensors", 3, {"absent.safetensors"});
}

TEST_P(WrongInput, RepositoryThatIsNotInTheCache) {
  expect_refused("org/model", 3, {"org/model", "hf download org/model"});
}

TEST_P(WrongInput, FolderWithoutCheckpoint) {
  std::filesystem::create_directory(path("empty"));
  expect_refused("empty", 3, {"empty"});
}

TEST_P(WrongInput, TruncatedFile) {
  std::filesystem::resize_file(path("model.safetensors"),
                               std::filesystem::file_size(path("model.safetensors")) - 1);
  expect_refused("model.safetensors", 4, {"model.safetensors"});
  std::filesystem::resize_file(path("model.safetensors"), 100);
  expect_refused("model.safetensors", 4, {"model.safetensors"});
  std::filesystem::resize_file(path("model.safetensors"), 0);
  expect_refused("model.safetensors", 4, {"model.safetensors"});
}

TEST_P(WrongInput, HugeHeaderLength) {
  write_text(path("huge.safetensors"),
             bytes_of(std::vector<std::uint64_t>{std::uint64_t{1} << 40}) + "{}");
  expect_refused("huge.safetensors", 4, {"huge.safetensors"});
}

TEST_P(WrongInput, PickleIsNamed) {
  write_text(path("model.bin"), std::string("\x80\x02}q\x00.", 6) + std::string(100, 'x'));
  expect_refused("model.bin", 4, {"model.bin", "pickle", "safetensors"});
  write_text(path("zipped.pt"), std::string("PK\x03\x04", 4) + std::string(100, 'x'));
  expect_refused("zipped.pt", 4, {"zipped.pt"});
}

TEST_P(WrongInput, OtherFormatsAreNamed) {
  write_text(path("a.safetensors"), "version https://git-lfs.github.com/spec/v1\noid sha256:00\n");
  expect_refused("a.safetensors", 4, {"a.safetensors", "LFS"});
  write_text(path("b.safetensors"), "<!DOCTYPE html><html><body>404 not found</body></html>");
  expect_refused("b.safetensors", 4, {"b.safetensors", "HTML"});
}

TEST_P(WrongInput, MissingShard) {
  std::filesystem::create_directory(path("sharded"));
  write_index(path("sharded/model.safetensors.index.json"),
              {{"layers.0.w", "model-00001-of-00001.safetensors"}});
  const RunResult result = run({GetParam(), "sharded"});
  expect_failure(result, result.exit_code, {"model-00001-of-00001.safetensors"});
  EXPECT_TRUE(result.exit_code == 3 || result.exit_code == 4) << result.exit_code;
}

TEST_P(WrongInput, UnreadableFile) {
  if (::geteuid() == 0) {
    GTEST_SKIP() << "root reads everything";
  }
  std::filesystem::permissions(path("model.safetensors"), std::filesystem::perms::none);
  expect_refused("model.safetensors", 1, {"model.safetensors", "chmod"});
}

TEST_P(WrongInput, FileInAnUnreadableFolder) {
  if (::geteuid() == 0) {
    GTEST_SKIP() << "root reads everything";
  }
  std::filesystem::create_directory(path("closed"));
  write_model(path("closed/model.safetensors"));
  std::filesystem::permissions(path("closed"), std::filesystem::perms::none);
  expect_refused("closed/model.safetensors", 1, {"closed/model.safetensors", "chmod"});
  std::filesystem::permissions(path("closed"), std::filesystem::perms::owner_all);
}

using WrongOutput = CliTest;

TEST_F(WrongOutput, UnwritableFolder) {
  std::filesystem::create_directory(path("closed"));
  std::filesystem::permissions(
      path("closed"), std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
  std::string folder = "closed";
  if (::geteuid() == 0) {
    folder = "/proc";  // Where even root can't make a folder.
  }
  expect_failure(run({"repack", "model.safetensors", "-o", folder + "/pack", "--reserve=0"}), 7,
                 {folder});
  expect_failure(run({"plan", "model.safetensors", "-o", folder + "/plan.toml"}), 7, {folder});
}

TEST_F(WrongOutput, MissingFolder) {
  expect_failure(run({"repack", "model.safetensors", "-o", "absent/pack"}), 7, {"absent"});
  EXPECT_THAT(names(), ::testing::ElementsAre("model.safetensors"));
}

}  // namespace
}  // namespace trash_panda::testing
