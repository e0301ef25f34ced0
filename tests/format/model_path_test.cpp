// resolve_model() of checkpoint.h.

#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trash_panda/format/checkpoint.h"

#include "support/checkpoint_builder.h"

namespace trash_panda::format {
namespace {

namespace fs = std::filesystem;

using ::testing::HasSubstr;
using testing::TempDir;
using testing::write_text;

/// A cache with org/name at commit c0ffee, which main and refs/pr/1 name.
struct Cache {
  Cache() {
    const fs::path repository = dir / "hub/models--org--na.me-1";
    fs::create_directories(repository / "refs/refs/pr");
    fs::create_directories(repository / "snapshots/c0ffee/unet");
    write_text(repository / "refs/main", "c0ffee\n");
    write_text(repository / "refs/refs/pr/1", "c0ffee");
    snapshot = repository / "snapshots/c0ffee";
  }
  [[nodiscard]] HubCacheEnvironment environment() const {
    return {.hub_cache = (dir / "hub").string(), .hf_home = "/nowhere", .home = "/nowhere"};
  }

  TempDir dir;
  fs::path snapshot;
};

TEST(ResolveModel, TakesPathsThatExistAsTheyAre) {
  const TempDir dir;
  write_text(dir / "org@1:x", "");
  EXPECT_EQ(resolve_model((dir / "org@1:x").string(), {}), dir / "org@1:x");
}

TEST(ResolveModel, FindsRevisionsAndSubfolders) {
  const Cache cache;
  const HubCacheEnvironment environment = cache.environment();
  EXPECT_EQ(resolve_model("org/na.me-1", environment), cache.snapshot);
  EXPECT_EQ(resolve_model("org/na.me-1@c0ffee", environment), cache.snapshot);
  EXPECT_EQ(resolve_model("org/na.me-1@refs/pr/1", environment), cache.snapshot);
  EXPECT_EQ(resolve_model("org/na.me-1:unet", environment), cache.snapshot / "unet");
  EXPECT_EQ(resolve_model("org/na.me-1@main:unet", environment), cache.snapshot / "unet");
}

TEST(ResolveModel, LooksWhereTheEnvironmentSays) {
  const Cache cache;
  EXPECT_TRUE(resolve_model(
      "org/na.me-1", {.hub_cache = "", .hf_home = cache.dir.path().string(), .home = "/nowhere"}));
  fs::create_directories(cache.dir / ".cache/huggingface");
  fs::create_directory_symlink(cache.dir / "hub", cache.dir / ".cache/huggingface/hub");
  EXPECT_TRUE(resolve_model("org/na.me-1",
                            {.hub_cache = "", .hf_home = "", .home = cache.dir.path().string()}));
}

TEST(ResolveModel, GivesTheDownloadCommand) {
  const Cache cache;
  const auto missing = resolve_model("org/other@v1:vae", cache.environment());
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code(), ErrorCode::kMissing);
  EXPECT_THAT(missing.error().hint(),
              HasSubstr("hf download org/other --revision v1 --include \"vae/*\""));
  EXPECT_THAT(resolve_model("org/na.me-1@v9", cache.environment()).error().hint(),
              HasSubstr("--revision v9"));
  EXPECT_THAT(resolve_model("org/na.me-1:vae", cache.environment()).error().hint(),
              HasSubstr("vae/*"));
}

TEST(ResolveModel, TakesNoPathForRepositoryName) {
  const Cache cache;
  for (const char* other : {"nothing.safetensors", "/a/b", "a/b/c", "./a", "../a", "a/", "/a",
                            "org/na.me-1:../x", "org/na.me-1@../x", "org/na.me-1@", "-a/b", ""}) {
    const auto missing = resolve_model(other, cache.environment());
    ASSERT_FALSE(missing) << other;
    EXPECT_EQ(missing.error().code(), ErrorCode::kMissing) << other;
    EXPECT_THAT(missing.error().hint(), ::testing::Not(HasSubstr("hf download"))) << other;
  }
}

}  // namespace
}  // namespace trash_panda::format
