#include "trash_panda/format/weight_scan.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trash_panda/format/pack_unpack.h"
#include "trash_panda/format/pack_verify.h"
#include "trash_panda/format/weights.h"

#include "base/support/temp_dir.h"
#include "format/support/checkpoint_builder.h"
#include "format/support/coded_sample.h"

namespace trash_panda::format {
namespace {

using testing::bytes_of;
using ::testing::ElementsAre;
using testing::gaussian_bf16;
using ::testing::IsEmpty;
using testing::must;

/// BF16, as the F32 of the same values.
std::string widened(const std::string& narrow) {
  std::string wide;
  for (std::size_t i = 0; i < narrow.size(); i += 2) {
    wide.append(2, '\0').append(narrow, i, 2);
  }
  return wide;
}

std::string gaussian_f32(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<float> normal(0.0F, 0.02F);
  std::vector<float> values(count);
  std::ranges::generate(values, [&] { return normal(engine); });
  return bytes_of(values);
}

/// A checkpoint of weights that may be stored otherwise, and some that look like such.
class ConvertedSample {
 public:
  static constexpr std::uint64_t kRows = 1100;  ///< Of more than a piece of F32.

  ConvertedSample() {
    std::string late = widened(gaussian_bf16(kRows * 1024, 2));
    late[late.size() - 4] = 1;
    builder_.add("narrow.weight", Dtype::kF32, {kRows, 1024},
                 widened(gaussian_bf16(kRows * 1024, 1)));
    builder_.add("late.weight", Dtype::kF32, {kRows, 1024}, late);
    builder_.add("f32.weight", Dtype::kF32, {300, 301}, gaussian_f32(300 * 301, 3));
    builder_.add("bf16.weight", Dtype::kBf16, {64, 64}, gaussian_bf16(64 * 64, 4));
    builder_.add_random("f16.weight", Dtype::kF16, {1, 5000});
    builder_.add("vector.weight", Dtype::kF32, {5000}, gaussian_f32(5000, 5));
    builder_.add("small.weight", Dtype::kF32, {63, 65}, gaussian_f32(63 * 65, 6));
    builder_.add("table", Dtype::kF32, {64, 64}, gaussian_f32(64 * 64, 7));
    builder_.add("ones", Dtype::kF32, {9000}, bytes_of(std::vector<float>(9000, 1.0F)));
    builder_.add("few_ones", Dtype::kF32, {8}, bytes_of(std::vector<float>(8, 1.0F)));
    builder_.write(path());
    checkpoint_ = must(Checkpoint::open(path()));
    weights_ = must(find_weights(*checkpoint_));
    options_.reserve_bytes = 0;
    layout_.extents = {{.name = "a", .tier = Tier::kBase, .weights = {}},
                       {.name = "b", .tier = Tier::kDisk, .weights = {}}};
    for (std::size_t i = 0; i < weights_.weights.size(); ++i) {
      layout_.extents[i % 2].weights.push_back(i);
    }
  }

  [[nodiscard]] std::filesystem::path path() const { return dir_ / "model.safetensors"; }
  [[nodiscard]] std::filesystem::path pack() const { return dir_ / "pack"; }
  [[nodiscard]] std::filesystem::path unpacked() const { return dir_ / "unpacked"; }
  PackLayout& layout() { return layout_; }

  ConversionChoice choose(const ConversionRequest& request) {
    return must(choose_conversions(*checkpoint_, weights_, request));
  }
  /// What is converted to what: '=' where nothing is lost.
  std::map<std::string, std::string> chosen(const ConversionRequest& request) {
    std::map<std::string, std::string> names;
    for (const auto& [index, conversion] : choose(request).conversions) {
      names[std::string(weights_.weights[index].name)] =
          std::string(dtype_name(conversion.dtype)) + (conversion.is_exact ? "=" : "");
    }
    return names;
  }
  /// Packs with these conversions; compares, and unpacks.
  Checkpoint pack_and_back(const ConversionRequest& request) {
    layout_.conversions = choose(request).conversions;
    must(write_pack(FileSystem::posix(), *checkpoint_, weights_, layout_, pack(), options_));
    EXPECT_THAT(must(verify_pack(pack(), {})).mismatches, IsEmpty());
    EXPECT_THAT(must(compare_with_source(pack(), *checkpoint_, weights_, {})).mismatches,
                IsEmpty());
    UnpackOptions options;
    options.reserve_bytes = 0;
    normalized_ = must(unpack_pack(FileSystem::posix(), pack(), unpacked(), options)).normalized;
    return must(Checkpoint::open(unpacked()));
  }
  [[nodiscard]] const std::vector<std::string>& normalized() const { return normalized_; }
  [[nodiscard]] const std::map<std::string, std::string>& tensors() const {
    return builder_.tensors();
  }
  [[nodiscard]] const WeightTable& weights() const { return weights_; }
  [[nodiscard]] Result<Manifest> write() {
    return write_pack(FileSystem::posix(), *checkpoint_, weights_, layout_, pack(), options_);
  }

 private:
  testing::TempDir dir_;
  testing::SafetensorsBuilder builder_;
  std::optional<Checkpoint> checkpoint_;
  WeightTable weights_;
  PackLayout layout_;
  PackOptions options_;
  std::vector<std::string> normalized_;
};

std::string bytes_in(const Checkpoint& checkpoint, std::string_view name) {
  const std::size_t index = checkpoint.find(name).value();
  std::string bytes(checkpoint.tensors()[index].size_bytes, '\0');
  must(checkpoint.read_tensor(index, std::as_writable_bytes(std::span(bytes))));
  return bytes;
}

TEST(ChooseConversions, NarrowsWhatLosesNothing) {
  ConvertedSample sample;
  EXPECT_EQ(sample.chosen({.narrows = true}),
            (std::map<std::string, std::string>{{"narrow.weight", "BF16="}, {"ones", "BF16="}}));
  EXPECT_THAT(sample.chosen({}), IsEmpty());
}

TEST(ChooseConversions, LooksAtSamplesForSizesOnly) {
  ConvertedSample sample;
  EXPECT_EQ(sample.chosen({.narrows = true, .depth = ScanDepth::kSample}),
            (std::map<std::string, std::string>{
                {"narrow.weight", "BF16="}, {"late.weight", "BF16="}, {"ones", "BF16="}}));
}

TEST(ChooseConversions, RoundsLargeMatricesOnly) {
  ConvertedSample sample;
  EXPECT_EQ(sample.chosen({.narrows = true, .rounded_to = Dtype::kBf16}),
            (std::map<std::string, std::string>{{"narrow.weight", "BF16="},
                                                {"late.weight", "BF16"},
                                                {"f32.weight", "BF16"},
                                                {"f16.weight", "BF16"},
                                                {"ones", "BF16="}}));
  EXPECT_EQ(sample.chosen({.rounded_to = Dtype::kF16}),
            (std::map<std::string, std::string>{
                {"narrow.weight", "F16"}, {"late.weight", "F16"}, {"f32.weight", "F16"}}));
}

TEST(ChooseConversions, KeepsWhatHasNoFiniteScale) {
  testing::TempDir dir;
  testing::SafetensorsBuilder builder;
  std::vector<float> values(5000, 0.5F);
  values[1] = std::numeric_limits<float>::infinity();
  builder.add("inf.weight", Dtype::kF32, {1, 5000}, bytes_of(values));
  values[1] = 0.5F;
  values[0] = std::numeric_limits<float>::quiet_NaN();
  builder.add("nan.weight", Dtype::kF32, {1, 5000}, bytes_of(values));
  values[0] = 448.0F;
  builder.add("fine.weight", Dtype::kF32, {1, 5000}, bytes_of(values));
  builder.write(dir / "model.safetensors");
  const Checkpoint checkpoint = must(Checkpoint::open(dir / "model.safetensors"));
  const WeightTable weights = must(find_weights(checkpoint));
  const ConversionChoice choice =
      must(choose_conversions(checkpoint, weights, {.rounded_to = Dtype::kF8E4M3}));
  EXPECT_THAT(choice.kept, ElementsAre("inf.weight", "nan.weight"));
  ASSERT_EQ(choice.conversions.size(), 1U);
  EXPECT_EQ(choice.conversions.begin()->second.scale, 1.0F);
}

TEST(ChooseConversions, ReadsNothingWhereAnEarlierCallFoundThem) {
  ConvertedSample sample;
  for (const std::optional<Dtype> rounded :
       {std::optional<Dtype>(), std::optional(Dtype::kBf16), std::optional(Dtype::kF8E4M3)}) {
    ConversionRequest request = {.narrows = true, .rounded_to = rounded};
    const ConversionChoice found = sample.choose(request);
    std::uint64_t read_bytes = 0;
    request.known = found.conversions;
    request.progress = [&](const Progress& progress) { read_bytes = progress.done_bytes; };
    const ConversionChoice again = sample.choose(request);
    EXPECT_EQ(again.conversions, found.conversions);
    EXPECT_EQ(again.kept, found.kept);
    EXPECT_EQ(read_bytes, 0U);
  }
}

TEST(ChooseConversions, StopsWhenAsked) {
  ConvertedSample sample;
  const std::atomic<bool> stop = true;
  const Checkpoint checkpoint = must(Checkpoint::open(sample.path()));
  const Result<ConversionChoice> choice = choose_conversions(
      checkpoint, sample.weights(), {.rounded_to = Dtype::kF8E4M3, .stop = &stop});
  ASSERT_FALSE(choice);
  EXPECT_EQ(choice.error().code(), ErrorCode::kInterrupted);
}

TEST(NarrowedPack, GivesTheCheckpointBack) {
  for (const CodedFloats coded : {CodedFloats::kNone, CodedFloats::kBf16}) {
    ConvertedSample sample;
    for (ExtentLayout& extent : sample.layout().extents) {
      extent.coded = coded;
    }
    const Checkpoint back = sample.pack_and_back({.narrows = true});
    EXPECT_THAT(sample.normalized(), IsEmpty());
    for (const auto& [name, bytes] : sample.tensors()) {
      EXPECT_TRUE(bytes_in(back, name) == bytes) << name;
    }
    EXPECT_EQ(back.tensors()[back.find("narrow.weight").value()].dtype, Dtype::kF32);
    const Manifest manifest = must(read_manifest(sample.pack()));
    EXPECT_LT(pack_size(manifest).total_bytes,
              std::filesystem::file_size(sample.path()) - ConvertedSample::kRows * 1024 * 2);
  }
}

TEST(NarrowedPack, IsNotWrittenOnceTheSourceIsAnother) {
  ConvertedSample sample;
  sample.layout().conversions = sample.choose({.narrows = true, .depth = ScanDepth::kSample})
                                    .conversions;  // late.weight is none.
  const Result<Manifest> written = sample.write();
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code(), ErrorCode::kStale);
  EXPECT_FALSE(std::filesystem::exists(sample.pack()));
}

TEST(RoundedPack, KeepsTheRestAndSaysWhatItIs) {
  for (const Dtype dtype : {Dtype::kBf16, Dtype::kF16, Dtype::kF8E4M3}) {
    ConvertedSample sample;
    sample.layout().extents[1].coded = CodedFloats::kAll;
    const Checkpoint back = sample.pack_and_back({.rounded_to = dtype});
    for (const std::string name : {"vector.weight", "small.weight", "table", "ones"}) {
      EXPECT_TRUE(bytes_in(back, name) == sample.tensors().at(name)) << name;
    }
    EXPECT_EQ(back.tensors()[back.find("f32.weight").value()].dtype, dtype);
    EXPECT_THAT(sample.normalized(), ::testing::Contains("f32.weight"));
    EXPECT_EQ(back.find("f32.weight_scale").has_value(), dtype == Dtype::kF8E4M3);
  }
}

TEST(RoundedPack, DiffersFromAnotherSource) {
  ConvertedSample sample;
  sample.pack_and_back({.rounded_to = Dtype::kF8E4M3});
  const Checkpoint before = must(Checkpoint::open(sample.path()));
  const WeightTable weights = must(find_weights(before));
  // The source itself is changed in place: the pack's fingerprint is of its layout only.
  std::string file = testing::read_text(sample.path());
  const TensorRecord& record = before.tensors()[before.find("f32.weight").value()];
  file[record.offset_bytes + 3] = static_cast<char>(file[record.offset_bytes + 3] ^ 0x80);
  testing::write_text(sample.path(), file);
  EXPECT_THAT(must(compare_with_source(sample.pack(), before, weights, {})).mismatches,
              ElementsAre(::testing::HasSubstr("\"f32.weight\" differs from the source")));
}

}  // namespace
}  // namespace trash_panda::format
