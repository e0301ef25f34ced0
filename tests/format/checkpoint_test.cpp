#include "trash_panda/format/checkpoint.h"

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/checkpoint_builder.h"

namespace trash_panda::format {
namespace {

namespace fs = std::filesystem;

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::SafetensorsBuilder;
using testing::TempDir;
using testing::write_index;
using testing::write_text;

SafetensorsBuilder one_tensor(const std::string& name) {
  return SafetensorsBuilder().add_random(name, Dtype::kF32, {2, 3});
}

std::string verdict(const fs::path& path) {
  const Result<Checkpoint> checkpoint = Checkpoint::open(path);
  return checkpoint ? "opened" : std::string(checkpoint.error().reason());
}

Error error_of(const fs::path& path) {
  Result<Checkpoint> checkpoint = Checkpoint::open(path);
  return checkpoint ? Error(ErrorCode::kFailed, "opened") : std::move(checkpoint).error();
}

/// Two shards with an index.
void write_shards(const TempDir& dir) {
  one_tensor("a").write(dir / "model-00001-of-00002.safetensors");
  one_tensor("b").write(dir / "model-00002-of-00002.safetensors");
  write_index(dir / "model.safetensors.index.json", {{"a", "model-00001-of-00002.safetensors"},
                                                     {"b", "model-00002-of-00002.safetensors"}});
}

TEST(Checkpoint, ReadsTensorsOfOneFile) {
  const TempDir dir;
  SafetensorsBuilder builder;
  builder.metadata("format", "pt")
      .add_random("a", Dtype::kU8, {5})
      .add_random("b.weight", Dtype::kF32, {3, 4});
  builder.write(dir / "x.safetensors");

  Result<Checkpoint> opened = Checkpoint::open(dir / "x.safetensors");
  ASSERT_TRUE(opened) << opened.error().to_string();
  const Checkpoint checkpoint = std::move(*opened);
  EXPECT_EQ(checkpoint.total_bytes(), 53U);
  EXPECT_THAT(checkpoint.notes(), IsEmpty());
  ASSERT_EQ(checkpoint.files().size(), 1U);
  EXPECT_EQ(checkpoint.files()[0].name, "x.safetensors");
  EXPECT_EQ(checkpoint.files()[0].metadata.at("format"), "pt");
  EXPECT_EQ(checkpoint.files()[0].data_offset_bytes, checkpoint.tensors()[0].offset_bytes);
  EXPECT_FALSE(checkpoint.find("c"));
  for (const auto& [name, bytes] : builder.tensors()) {
    const auto index = checkpoint.find(name);
    ASSERT_TRUE(index) << name;
    std::string read(bytes.size(), '\0');
    ASSERT_TRUE(checkpoint.read_tensor(*index, std::as_writable_bytes(std::span(read))));
    EXPECT_EQ(read, bytes);
  }
  std::string part(4, '\0');
  ASSERT_TRUE(checkpoint.read_tensor_part(*checkpoint.find("b.weight"), 44,
                                          std::as_writable_bytes(std::span(part))));
  EXPECT_EQ(part, builder.tensors().at("b.weight").substr(44));
}

TEST(Checkpoint, ReadsHeadersLongerThanTheFirstRead) {
  const TempDir dir;
  SafetensorsBuilder builder;
  builder.metadata("long", std::string(300'000, 'x')).add_random("a", Dtype::kU8, {7});
  builder.write(dir / "x.safetensors");
  const Result<Checkpoint> checkpoint = Checkpoint::open(dir / "x.safetensors");
  ASSERT_TRUE(checkpoint) << checkpoint.error().to_string();
  std::string read(7, '\0');
  ASSERT_TRUE(checkpoint->read_tensor(0, std::as_writable_bytes(std::span(read))));
  EXPECT_EQ(read, builder.tensors().at("a"));
}

TEST(Checkpoint, SaysWhatIsMissing) {
  const TempDir dir;
  EXPECT_EQ(error_of(dir / "nowhere").code(), ErrorCode::kMissing);
  EXPECT_THAT(error_of(dir / "nowhere").message(), HasSubstr("nowhere"));
  EXPECT_EQ(error_of(dir.path()).code(), ErrorCode::kMissing);
  EXPECT_THAT(error_of(dir.path()).message(), HasSubstr(dir.path().string()));
}

TEST(Checkpoint, NamesTheFileThatIsBroken) {
  const TempDir dir;
  write_shards(dir);
  std::string bytes = one_tensor("b").file();
  bytes.pop_back();
  write_text(dir / "model-00002-of-00002.safetensors", bytes);
  const Error error = error_of(dir.path());
  EXPECT_EQ(error.code(), ErrorCode::kCorrupt);
  EXPECT_EQ(error.reason(), "truncated");
  EXPECT_THAT(error.message(), HasSubstr("model-00002-of-00002.safetensors"));
  EXPECT_THAT(error.hint(), HasSubstr("download"));
}

TEST(Checkpoint, FollowsTheIndex) {
  const TempDir dir;
  write_shards(dir);
  for (const fs::path& path : {dir.path(), dir / "model.safetensors.index.json"}) {
    const Result<Checkpoint> checkpoint = Checkpoint::open(path);
    ASSERT_TRUE(checkpoint) << checkpoint.error().to_string();
    EXPECT_EQ(checkpoint->tensors().size(), 2U);
    EXPECT_EQ(checkpoint->files().size(), 2U);
    EXPECT_EQ(checkpoint->tensors()[*checkpoint->find("b")].file_index, 1U);
  }
}

TEST(Checkpoint, TakesShardsOfAnyNameFromTheIndexWithoutANote) {
  const TempDir dir;
  one_tensor("a").write(dir / "embeddings.safetensors");
  write_index(dir / "model.safetensors.index.json", {{"a", "embeddings.safetensors"}});
  const Result<Checkpoint> checkpoint = Checkpoint::open(dir.path());
  ASSERT_TRUE(checkpoint) << checkpoint.error().to_string();
  EXPECT_THAT(checkpoint->notes(), IsEmpty());
}

TEST(Checkpoint, PrefersTheIndexToOneFileAndSaysSo) {
  const TempDir dir;
  write_shards(dir);
  one_tensor("stray").write(dir / "model.safetensors");
  one_tensor("other").write(dir / "consolidated.safetensors");
  const Result<Checkpoint> checkpoint = Checkpoint::open(dir.path());
  ASSERT_TRUE(checkpoint) << checkpoint.error().to_string();
  EXPECT_FALSE(checkpoint->find("stray"));
  EXPECT_THAT(checkpoint->notes(), Contains(HasSubstr("model.safetensors is not used")));
  EXPECT_THAT(checkpoint->notes(), Contains(HasSubstr("consolidated.safetensors")));
}

TEST(Checkpoint, LeavesOutUnlistedTensorsWithNote) {
  const TempDir dir;
  write_shards(dir);
  one_tensor("b")
      .add_random("extra", Dtype::kU8, {1})
      .write(dir / "model-00002-of-00002.safetensors");
  const Result<Checkpoint> checkpoint = Checkpoint::open(dir.path());
  ASSERT_TRUE(checkpoint) << checkpoint.error().to_string();
  EXPECT_FALSE(checkpoint->find("extra"));
  EXPECT_THAT(checkpoint->notes(), Contains(HasSubstr("\"extra\"")));
}

TEST(Checkpoint, TakesEachTensorFromTheShardThatTheIndexNames) {
  const TempDir dir;
  write_shards(dir);
  one_tensor("b").add_random("a", Dtype::kU8, {1}).write(dir / "model-00002-of-00002.safetensors");
  const Result<Checkpoint> checkpoint = Checkpoint::open(dir.path());
  ASSERT_TRUE(checkpoint) << checkpoint.error().to_string();
  EXPECT_EQ(checkpoint->tensors()[*checkpoint->find("a")].file_index, 0U);
}

TEST(Checkpoint, RefusesMissingShardsByName) {
  const TempDir dir;
  write_shards(dir);
  fs::remove(dir / "model-00002-of-00002.safetensors");
  const Error error = error_of(dir.path());
  EXPECT_EQ(error.code(), ErrorCode::kMissing);
  EXPECT_EQ(error.reason(), "missing_shard");
  EXPECT_THAT(error.message(), HasSubstr("model-00002-of-00002.safetensors"));
}

TEST(Checkpoint, RefusesTensorsThatTheirShardLacks) {
  const TempDir dir;
  write_shards(dir);
  one_tensor("c").write(dir / "model-00002-of-00002.safetensors");
  const Error error = error_of(dir.path());
  EXPECT_EQ(error.code(), ErrorCode::kCorrupt);
  EXPECT_EQ(error.reason(), "missing_tensor");
  EXPECT_THAT(error.message(), HasSubstr("\"b\""));
  EXPECT_THAT(error.message(), HasSubstr("model-00002-of-00002.safetensors"));
}

TEST(Checkpoint, NotesWrongTotalSize) {
  const TempDir dir;
  one_tensor("a").write(dir / "s.safetensors");
  const fs::path index = dir / "model.safetensors.index.json";
  const auto write = [&](int total) {
    write_text(index, fmt::format(R"({{"metadata":{{"total_size":{}}},)"
                                  R"("weight_map":{{"a":"s.safetensors"}}}})",
                                  total));
  };
  write(24);
  EXPECT_THAT(Checkpoint::open(index)->notes(), IsEmpty());
  write(25);
  EXPECT_THAT(Checkpoint::open(index)->notes(), Contains(HasSubstr("total_size 25")));
}

TEST(Checkpoint, ReadsNumberedShardsWithoutIndex) {
  const TempDir dir;
  one_tensor("a").write(dir / "model-00001-of-00002.safetensors");
  EXPECT_EQ(verdict(dir.path()), "missing_shard");
  EXPECT_THAT(error_of(dir.path()).message(), HasSubstr("model-00002-of-00002.safetensors"));
  one_tensor("a").write(dir / "model-00002-of-00002.safetensors");
  EXPECT_EQ(verdict(dir.path()), "duplicate_across_shards");
  EXPECT_THAT(error_of(dir.path()).message(), HasSubstr("model-00001-of-00002.safetensors"));
  one_tensor("b").write(dir / "model-00002-of-00002.safetensors");
  EXPECT_EQ(verdict(dir.path()), "opened");
}

TEST(Checkpoint, FindsVariantsInEverySpelling) {
  for (const std::string index :
       {"model.safetensors.index.fp16.json", "model.fp16.safetensors.index.json"}) {
    const TempDir dir;
    one_tensor("a").write(dir / "model.fp16-00001-of-00001.safetensors");
    write_index(dir / index, {{"a", "model.fp16-00001-of-00001.safetensors"}});
    EXPECT_EQ(verdict(dir.path()), "opened") << index;
    EXPECT_EQ(verdict(dir / index), "opened") << index;
  }
  const TempDir dir;
  one_tensor("a").write(dir / "diffusion_pytorch_model.fp16.safetensors");
  EXPECT_EQ(verdict(dir.path()), "opened");
  one_tensor("plain").write(dir / "diffusion_pytorch_model.safetensors");
  const Result<Checkpoint> both = Checkpoint::open(dir.path());
  ASSERT_TRUE(both) << both.error().to_string();
  EXPECT_TRUE(both->find("plain"));
  EXPECT_THAT(both->notes(), Contains(HasSubstr("diffusion_pytorch_model.fp16.safetensors")));
}

TEST(Checkpoint, AsksWhichOfSeveralUnrelatedFiles) {
  const TempDir dir;
  one_tensor("a").write(dir / "flux.safetensors");
  EXPECT_EQ(verdict(dir.path()), "opened");
  one_tensor("b").write(dir / "sdxl-1.0.safetensors");
  const Error error = error_of(dir.path());
  EXPECT_EQ(error.code(), ErrorCode::kUsage);
  EXPECT_THAT(error.message(), HasSubstr("flux.safetensors, sdxl-1.0.safetensors"));
}

TEST(Checkpoint, ListsComponentsOfPipelines) {
  const TempDir dir;
  fs::create_directories(dir / "unet");
  fs::create_directories(dir / "scheduler");
  one_tensor("a").write(dir / "unet/diffusion_pytorch_model.safetensors");
  write_text(dir / "model_index.json", "{}");
  const Error error = error_of(dir.path());
  EXPECT_EQ(error.code(), ErrorCode::kUsage);
  EXPECT_EQ(error.reason(), "pipeline");
  EXPECT_THAT(error.message(), HasSubstr("unet"));
  EXPECT_THAT(error.message(), ::testing::Not(HasSubstr("scheduler")));
  EXPECT_EQ(verdict(dir / "unet"), "opened");
}

TEST(Checkpoint, RefusesOtherFormatsByTheirNameAndContent) {
  const TempDir dir;
  write_text(dir / "model.ckpt",
             "\x80\x02"
             "cos\nsystem\n(tR." +
                 std::string(100, 'x'));
  write_text(dir / "model.gguf", "GGUF" + std::string(100, '\x03'));
  write_text(dir / "model.safetensors", "GGUF" + std::string(100, '\x03'));
  EXPECT_EQ(verdict(dir / "model.ckpt"), "pickle");
  EXPECT_EQ(verdict(dir / "model.gguf"), "gguf");
  EXPECT_EQ(verdict(dir / "model.safetensors"), "not_safetensors");
  EXPECT_EQ(error_of(dir / "model.ckpt").code(), ErrorCode::kUnsupported);
  EXPECT_THAT(error_of(dir / "model.ckpt").hint(), HasSubstr("convert"));
  fs::remove(dir / "model.safetensors");
  EXPECT_EQ(error_of(dir.path()).code(), ErrorCode::kUnsupported);
}

TEST(Checkpoint, FollowsLinksLikeThoseOfTheHubCache) {
  const TempDir dir;
  fs::create_directories(dir / "blobs");
  fs::create_directories(dir / "snapshots/main");
  one_tensor("a").write(dir / "blobs/0123");
  fs::create_symlink("../../blobs/0123", dir / "snapshots/main/model.safetensors");
  const Result<Checkpoint> checkpoint = Checkpoint::open(dir / "snapshots/main");
  ASSERT_TRUE(checkpoint) << checkpoint.error().to_string();
  EXPECT_EQ(checkpoint->files()[0].name, "model.safetensors");
  fs::remove(dir / "blobs/0123");
  EXPECT_EQ(error_of(dir / "snapshots/main").code(), ErrorCode::kMissing);
}

TEST(Checkpoint, TakesPathsOfAnySpelling) {
  const TempDir dir;
  for (const std::string name : {"with space", "-dash", "new\nline", "\u00fcber", "a'b\"c"}) {
    fs::create_directories(dir / name);
    one_tensor("a").write(dir / (name + "/model.safetensors"));
    EXPECT_EQ(verdict(dir / name), "opened") << name;
    write_text(dir / (name + "/model.safetensors"), "short");
    EXPECT_THAT(error_of(dir / name).to_string(), ::testing::Not(HasSubstr("\n")));
  }
}

TEST(Checkpoint, FingerprintsNamesSizesAndHeaders) {
  const auto fingerprint = [](const std::string& file, const SafetensorsBuilder& builder) {
    const TempDir dir;
    builder.write(dir / file);
    return Checkpoint::open(dir / file)->fingerprint();
  };
  const std::string first = fingerprint("m.safetensors", one_tensor("a"));
  EXPECT_EQ(first.size(), 32U);
  EXPECT_EQ(first, fingerprint("m.safetensors", one_tensor("a")));
  EXPECT_NE(first, fingerprint("n.safetensors", one_tensor("a")));
  EXPECT_NE(first, fingerprint("m.safetensors", one_tensor("b")));
}

TEST(Checkpoint, ReadsSideFiles) {
  const TempDir dir;
  fs::create_directories(dir / "transformer");
  one_tensor("a").write(dir / "transformer/model.safetensors");
  write_text(dir / "transformer/config.json", "{1}");
  write_text(dir / "hf_quant_config.json", "{2}");
  write_text(dir / "other.json", "{3}");
  for (const fs::path& path : {dir / "transformer", dir / "transformer/model.safetensors"}) {
    const Result<Checkpoint> checkpoint = Checkpoint::open(path);
    ASSERT_TRUE(checkpoint) << checkpoint.error().to_string();
    EXPECT_EQ(checkpoint->side_file("config.json"), "{1}");
    EXPECT_EQ(checkpoint->side_file("hf_quant_config.json"), "{2}");
    EXPECT_EQ(checkpoint->side_file("other.json"), "");
  }
}

}  // namespace
}  // namespace trash_panda::format
