#include "gguf_file.h"

#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trash_panda/format/pack_writer.h"
#include "trash_panda/format/weights.h"

#include "support/gguf_builder.h"

namespace trash_panda::format {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::GgufBuilder;
using ::testing::HasSubstr;
using testing::le;
using testing::small_gguf;
using testing::TempDir;
namespace gguf_value = testing::gguf_value;
namespace ggml = testing::ggml;

/// Part `number` of `count`, from 0 on, with one tensor; the model has one for each part.
GgufBuilder gguf_part(std::uint16_t number, std::uint16_t count, std::int32_t tensors) {
  GgufBuilder builder;
  builder.key("split.no", gguf_value::kUint16, le(number))
      .key("split.count", gguf_value::kUint16, le(count))
      .key("split.tensors.count", gguf_value::kInt32, le(tensors))
      .add_random(fmt::format("blk.{}.w", number), ggml::kQ8_0, {1, 32}, 34);
  return builder;
}

void write_parts(const TempDir& folder) {
  gguf_part(0, 3, 3).write(folder / "m-00001-of-00003.gguf");
  gguf_part(1, 3, 3).write(folder / "m-00002-of-00003.gguf");
  gguf_part(2, 3, 3).write(folder / "m-00003-of-00003.gguf");
}

Error refusal_of(const std::filesystem::path& path) {
  const Result<Checkpoint> checkpoint = Checkpoint::open(path);
  return checkpoint ? Error(ErrorCode::kFailed, "opened") : checkpoint.error();
}

TEST(GgufCheckpoint, HasTensorsAndWeights) {
  const TempDir folder;
  small_gguf(2).write(folder / "model.gguf");
  // Of another model in the folder: no business of a GGUF file.
  testing::write_text(folder / "config.json",
                      R"({"quantization_config":{"quant_method":"fp8","weight_block_size":3}})");
  const Result<Checkpoint> checkpoint = Checkpoint::open(folder / "model.gguf");
  ASSERT_TRUE(checkpoint) << checkpoint.error().message();
  EXPECT_TRUE(checkpoint->is_gguf());
  EXPECT_EQ(checkpoint->files()[0].kind, FileKind::kGguf);
  EXPECT_EQ(checkpoint->files()[0].metadata.at("general.architecture"), "llama");
  EXPECT_EQ(checkpoint->total_bytes(), 10U * 8 * 34 + 2 * (1024 + 12 * 144) + 1024);
  const Result<WeightTable> weights = find_weights(*checkpoint);
  ASSERT_TRUE(weights) << weights.error().message();
  EXPECT_EQ(weights->weights.size(), 8U);
  EXPECT_THAT(weights->formats, ElementsAre("Q4_K", "fp32", "Q8_0"));
  EXPECT_THAT(weights->warnings, ElementsAre());
}

TEST(GgufCheckpoint, HasAFingerprintOfItsHeader) {
  const TempDir folder;
  const auto fingerprint = [&](const std::string& bytes) {
    testing::write_text(folder / "model.gguf", bytes);
    const Result<Checkpoint> checkpoint = Checkpoint::open(folder / "model.gguf");
    return checkpoint ? checkpoint->fingerprint() : checkpoint.error().message();
  };
  const std::string file = small_gguf().file();
  std::string other_data = file;
  other_data.back() = static_cast<char>(~other_data.back());
  EXPECT_EQ(fingerprint(file), fingerprint(other_data));
  std::string other_name = file;
  other_name.replace(other_name.find("Small"), 5, "Smell");
  EXPECT_NE(fingerprint(file), fingerprint(other_name));
}

TEST(GgufCheckpoint, CantBePacked) {
  const TempDir folder;
  GgufBuilder builder = small_gguf();
  builder.text("general.base_model.0.repo_url", "https://example.org/small");
  builder.write(folder / "model.gguf");
  const Result<Checkpoint> checkpoint = Checkpoint::open(folder / "model.gguf");
  ASSERT_TRUE(checkpoint);
  const Result<Manifest> manifest = lay_out_pack(*checkpoint, *find_weights(*checkpoint), {}, {});
  ASSERT_FALSE(manifest);
  EXPECT_EQ(manifest.error().code(), ErrorCode::kUnsupported);
  EXPECT_EQ(manifest.error().reason(), "gguf");
  EXPECT_THAT(manifest.error().message(), AllOf(HasSubstr("model.gguf"), HasSubstr("GGUF")));
  EXPECT_THAT(manifest.error().hint(), HasSubstr("https://example.org/small"));
}

TEST(GgufCheckpoint, IsToldByNameOrContent) {
  const TempDir folder;
  small_gguf().write(folder / "model.bin");
  EXPECT_TRUE(Checkpoint::open(folder / "model.bin"));
  small_gguf().write(folder / "model.safetensors");
  EXPECT_EQ(refusal_of(folder / "model.safetensors").reason(), "not_safetensors");
  testing::write_text(folder / "page.gguf", "<!DOCTYPE html><html></html>");
  EXPECT_EQ(refusal_of(folder / "page.gguf").reason(), "gguf");
  EXPECT_THAT(refusal_of(folder / "page.gguf").message(),
              AllOf(HasSubstr("page.gguf"), HasSubstr("HTML")));
}

TEST(GgufParts, AreReadTogetherWhicheverIsNamed) {
  const TempDir folder;
  write_parts(folder);
  for (const char* name : {"m-00001-of-00003.gguf", "m-00003-of-00003.gguf"}) {
    const Result<Checkpoint> checkpoint = Checkpoint::open(folder / name);
    ASSERT_TRUE(checkpoint) << checkpoint.error().message();
    EXPECT_EQ(checkpoint->files().size(), 3U);
    ASSERT_EQ(checkpoint->tensors().size(), 3U);
    EXPECT_EQ(checkpoint->tensors()[2].name, "blk.2.w");
    EXPECT_EQ(checkpoint->tensors()[2].file_index, 2U);
  }
}

TEST(GgufParts, AreMissedByName) {
  const TempDir folder;
  write_parts(folder);
  std::filesystem::remove(folder / "m-00002-of-00003.gguf");
  const Error error = refusal_of(folder / "m-00001-of-00003.gguf");
  EXPECT_EQ(error.code(), ErrorCode::kMissing);
  EXPECT_EQ(error.reason(), "missing_shard");
  EXPECT_THAT(error.message(), AllOf(HasSubstr("1 of 3"), HasSubstr("m-00002-of-00003.gguf")));
}

TEST(GgufParts, MustBeOfOneModelAndInTheirPlaces) {
  const TempDir folder;
  write_parts(folder);
  const auto expect_refused = [&](const char* name, const GgufBuilder& part, const char* why) {
    SCOPED_TRACE(why);
    write_parts(folder);
    part.write(folder / name);
    const Error error = refusal_of(folder / name);
    EXPECT_EQ(error.reason(), "gguf");
    EXPECT_EQ(error.code(), ErrorCode::kCorrupt);
    EXPECT_THAT(error.message(), HasSubstr(why));
  };
  expect_refused("m-00002-of-00003.gguf", gguf_part(1, 4, 3), "split.count");
  expect_refused("m-00002-of-00003.gguf", gguf_part(2, 3, 3), "split.no");
  expect_refused("m-00002-of-00003.gguf", gguf_part(1, 3, 4), "4 tensors");
  // One of several under a name of its own.
  expect_refused("alone.gguf", gguf_part(0, 3, 3), "3 parts");
  gguf_part(0, 1, 1).write(folder / "alone.gguf");
  EXPECT_TRUE(Checkpoint::open(folder / "alone.gguf"));
  gguf_part(0, 0, 1).write(folder / "alone.gguf");
  EXPECT_TRUE(Checkpoint::open(folder / "alone.gguf"));
}

TEST(ListGgufParts, TakesOtherNamesAsTheyAre) {
  for (const char* name :
       {"model.gguf", "-00001-of-00002.gguf", "m-00003-of-00002.gguf", "m-00000-of-00002.gguf",
        "m-0001-of-0002.gguf", "m-00001-of-00002.safetensors", "m_00001-of-00002.gguf"}) {
    const auto parts = list_gguf_parts(name);
    ASSERT_TRUE(parts) << name;
    EXPECT_THAT(*parts, ElementsAre(std::filesystem::path(name)));
  }
}

}  // namespace
}  // namespace trash_panda::format
