// Which torch checkpoint of a folder is opened, sharded ones by their index, and packing them.

#include <filesystem>
#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trash_panda/format/checkpoint.h"
#include "trash_panda/format/pack_writer.h"
#include "trash_panda/format/weights.h"

#include "support/torch_builder.h"

namespace trash_panda::format {
namespace {

using namespace testing::pickle;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::random_bytes;
using testing::SafetensorsBuilder;
using testing::TempDir;
using testing::TorchBuilder;
using testing::write_index;
using testing::write_text;

/// A checkpoint of one F32 vector of four.
TorchBuilder torch_vector(const std::string& name) {
  const testing::PickledView view{.count = 4, .shape = {4}, .strides = {1}};
  return TorchBuilder()
      .root(dict(text(name) + view.pickled()))
      .storage("0", random_bytes(16, name.size()));
}

Error folder_error(const std::filesystem::path& path) {
  Result<Checkpoint> checkpoint = Checkpoint::open(path);
  return checkpoint ? Error(ErrorCode::kFailed, "opened") : std::move(checkpoint).error();
}

TEST(TorchFolder, OpensTheStandardFile) {
  for (const std::string_view name : {"pytorch_model.bin", "diffusion_pytorch_model.bin"}) {
    const TempDir dir;
    torch_vector("a").write(dir / name);
    write_text(dir / "training_args.bin", "PK\x03\x04 not of interest");
    write_text(dir / "optimizer.pt", "neither");
    const auto checkpoint = Checkpoint::open(dir.path());
    ASSERT_TRUE(checkpoint) << checkpoint.error().to_string();
    EXPECT_TRUE(checkpoint->find("a"));
    EXPECT_THAT(checkpoint->notes(), Contains(HasSubstr(name)));
  }
}

TEST(TorchFolder, PrefersSafetensors) {
  const TempDir dir;
  torch_vector("torch").write(dir / "pytorch_model.bin");
  SafetensorsBuilder().add_random("safe", Dtype::kF32, {4}).write(dir / "model.safetensors");
  const auto checkpoint = Checkpoint::open(dir.path());
  ASSERT_TRUE(checkpoint) << checkpoint.error().to_string();
  EXPECT_TRUE(checkpoint->find("safe"));
  EXPECT_FALSE(checkpoint->find("torch"));
  EXPECT_THAT(checkpoint->notes(), IsEmpty());
}

TEST(TorchFolder, FollowsAnIndex) {
  const TempDir dir;
  torch_vector("a").write(dir / "pytorch_model-00001-of-00002.bin");
  torch_vector("bb").write(dir / "pytorch_model-00002-of-00002.bin");
  write_index(dir / "pytorch_model.bin.index.json", {{"a", "pytorch_model-00001-of-00002.bin"},
                                                     {"bb", "pytorch_model-00002-of-00002.bin"}});
  for (const auto& path : {dir.path(), dir / "pytorch_model.bin.index.json"}) {
    const auto checkpoint = Checkpoint::open(path);
    ASSERT_TRUE(checkpoint) << checkpoint.error().to_string();
    EXPECT_EQ(checkpoint->tensors().size(), 2U);
    EXPECT_EQ(checkpoint->files().size(), 2U);
  }
  std::filesystem::remove(dir / "pytorch_model-00002-of-00002.bin");
  EXPECT_EQ(folder_error(dir.path()).reason(), "missing_shard");
}

TEST(TorchFolder, TakesTiedNamesThatTheIndexLists) {
  const TempDir dir;
  const testing::PickledView view{.count = 4, .shape = {4}, .strides = {1}};
  TorchBuilder()
      .root(dict(text("embed.weight") + view.pickled() + text("head.weight") + view.pickled()))
      .storage("0", random_bytes(16, 1))
      .write(dir / "pytorch_model-00001-of-00001.bin");
  write_index(dir / "pytorch_model.bin.index.json",
              {{"embed.weight", "pytorch_model-00001-of-00001.bin"},
               {"head.weight", "pytorch_model-00001-of-00001.bin"}});
  const auto checkpoint = Checkpoint::open(dir.path());
  ASSERT_TRUE(checkpoint) << checkpoint.error().to_string();
  EXPECT_EQ(testing::must(find_weights(*checkpoint)).aliases.at("head.weight"), "embed.weight");
}

TEST(TorchFolder, RefusesAnIndexOfTheOtherFormat) {
  const TempDir dir;
  torch_vector("a").write(dir / "pytorch_model.bin");
  write_index(dir / "model.safetensors.index.json", {{"a", "pytorch_model.bin"}});
  EXPECT_EQ(folder_error(dir.path()).reason(), "unsupported_format");
  write_index(dir / "pytorch_model.bin.index.json", {{"a", "model.safetensors"}});
  EXPECT_EQ(folder_error(dir / "pytorch_model.bin.index.json").reason(), "unsupported_format");
}

TEST(TorchFolder, NamesOtherFilesOnly) {
  const TempDir dir;
  torch_vector("a").write(dir / "model.ckpt");
  const Error error = folder_error(dir.path());
  EXPECT_EQ(error.reason(), "pickle");
  EXPECT_THAT(error.message(), HasSubstr("model.ckpt"));
  EXPECT_THAT(error.hint(), HasSubstr((dir / "model.ckpt").string()));
  EXPECT_TRUE(Checkpoint::open(dir / "model.ckpt"));
}

/// Row-major bytes of an [n, m] transposed view of a storage of F32.
std::string transposed(const std::string& bytes, std::uint64_t n, std::uint64_t m) {
  std::string result;
  result.reserve(bytes.size());
  for (std::uint64_t row = 0; row < n; ++row) {
    for (std::uint64_t column = 0; column < m; ++column) {
      result.append(bytes, 4 * (column * n + row), 4);
    }
  }
  return result;
}

TEST(TorchFolder, PacksViewsAsTheirValues) {
  // 1.5 MB a tensor: one that is read apart, past the page cache, if its bytes were a run.
  constexpr std::uint64_t kRows = 600;
  constexpr std::uint64_t kColumns = 640;
  const std::string bytes = random_bytes(4 * kRows * kColumns, 5);
  testing::PickledView view{
      .count = kRows * kColumns, .shape = {kRows, kColumns}, .strides = {1, kRows}};
  std::string items = text("transposed") + view.pickled();
  view.strides = {kColumns, 1};
  items += text("plain") + view.pickled() + text("tied") + view.pickled();
  const TempDir dir;
  TorchBuilder().root(dict(items)).storage("0", bytes).write(dir / "model.pt");
  const Checkpoint checkpoint = testing::must(Checkpoint::open(dir / "model.pt"));
  const WeightTable weights = testing::must(find_weights(checkpoint));
  ASSERT_EQ(weights.weights.size(), 2U);
  PackLayout layout;
  layout.extents.push_back({.name = "base", .tier = Tier::kBase, .weights = {0, 1}});
  PackOptions options;
  options.reserve_bytes = 0;
  const Manifest manifest = testing::must(
      write_pack(FileSystem::posix(), checkpoint, weights, layout, dir / "model.panda", options));
  EXPECT_EQ(manifest.aliases.at("tied"), "plain");
  const Checkpoint packed =
      testing::must(Checkpoint::open(dir / "model.panda" / "base-00001.safetensors"));
  for (const auto& [name, expected] : std::map<std::string, std::string>{
           {"plain", bytes}, {"transposed", transposed(bytes, kRows, kColumns)}}) {
    const auto index = packed.find(name);
    ASSERT_TRUE(index) << name;
    std::string stored(packed.tensors()[*index].size_bytes, '\0');
    ASSERT_TRUE(packed.read_tensor(*index, std::as_writable_bytes(std::span(stored))));
    EXPECT_TRUE(stored == expected) << name;
  }
}

}  // namespace
}  // namespace trash_panda::format
