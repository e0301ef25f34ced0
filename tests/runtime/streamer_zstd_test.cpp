// Streaming packs whose extents are in the zstd code, or whose weights were converted.

#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "trash_panda/format/pack_writer.h"
#include "trash_panda/format/weight_scan.h"
#include "trash_panda/format/weights.h"
#include "trash_panda/runtime/streamer.h"

#include "format/support/coded_sample.h"

namespace trash_panda::runtime {
namespace {

using format::Dtype;
using testing::bytes_of;
using testing::gaussian_bf16;
using testing::must;

/// Dtype and bytes of a tensor as a user gets it.
using Streamed = std::map<std::string, std::pair<Dtype, std::string>>;

/// A block of weights of every kind that zstd may code: fp8 with scales per tensor, row and block,
/// longer than a chunk, without a scale; integers; and F32 that are BF16 in disguise.
class MixedBlock {
 public:
  MixedBlock() {
    testing::SafetensorsBuilder builder;
    add_scaled(builder, "layers.0.per_tensor.weight", {1030, 1024}, {});
    add_scaled(builder, "layers.0.per_row.weight", {300, 301}, {300, 1});
    add_scaled(builder, "layers.0.per_block.weight", {256, 384}, {2, 3});
    builder.add("layers.0.plain.weight", Dtype::kF8E4M3, {200, 201}, gaussian_bf16(100 * 201, 8));
    builder.add("layers.0.ids", Dtype::kI64, {9000}, std::string(72'000, '\1'));
    std::string narrow;
    for (const char half : gaussian_bf16(150 * 300, 9)) {
      narrow.append(narrow.size() % 4 == 0 ? 2 : 0, '\0').push_back(half);
    }
    builder.add("layers.0.narrow.weight", Dtype::kF32, {150, 300}, narrow);
    narrow_ = narrow;
    builder.write(dir_ / "model.safetensors");
    checkpoint_ = must(format::Checkpoint::open(dir_ / "model.safetensors"));
    weights_ = must(format::find_weights(*checkpoint_));
  }

  /// Packs the block and streams it.
  Streamed stream(const std::string& name, format::CodedRest rest,
                  const format::ConversionRequest& request, const StreamOptions& options) {
    format::PackLayout layout;
    layout.extents = {
        {.name = "layers.0", .tier = format::Tier::kDisk, .weights = {}, .rest = rest}};
    for (std::size_t i = 0; i < weights_.weights.size(); ++i) {
      layout.extents[0].weights.push_back(i);
    }
    layout.conversions =
        must(format::choose_conversions(*checkpoint_, weights_, request)).conversions;
    format::PackOptions pack_options;
    pack_options.reserve_bytes = 0;
    must(format::write_pack(FileSystem::posix(), *checkpoint_, weights_, layout, dir_ / name,
                            pack_options));
    Streamer streamer = must(Streamer::open(dir_ / name, options));
    Streamed streamed;
    const BlockLease lease = must(streamer.acquire(0));
    for (const TensorView& tensor : lease.tensors()) {
      streamed[std::string(tensor.name)] = {
          tensor.dtype, {reinterpret_cast<const char*>(tensor.data), tensor.size_bytes}};
    }
    return streamed;
  }

  [[nodiscard]] const std::string& narrow() const { return narrow_; }

 private:
  static void add_scaled(testing::SafetensorsBuilder& builder, const std::string& name,
                         const format::Shape& shape, const format::Shape& scale_shape) {
    builder.add(name, Dtype::kF8E4M3, shape, gaussian_bf16(shape[0] * shape[1] / 2, shape[0]));
    std::uint64_t count = 1;
    for (const std::uint64_t dimension : scale_shape) {
      count *= dimension;
    }
    std::vector<float> scales(count);
    for (std::size_t i = 0; i < count; ++i) {
      scales[i] = 0.25F + static_cast<float>(i);
    }
    builder.add(name + "_scale_inv", Dtype::kF32, scale_shape, bytes_of(scales));
  }

  testing::TempDir dir_;
  std::optional<format::Checkpoint> checkpoint_;
  format::WeightTable weights_;
  std::string narrow_;
};

TEST(StreamerZstd, GivesWhatTheRawPackGives) {
  MixedBlock block;
  for (const std::optional<Dtype> compute :
       {std::optional<Dtype>(), std::optional(Dtype::kBf16), std::optional(Dtype::kF32)}) {
    StreamOptions options;
    options.compute_dtype = compute;
    const std::string suffix = compute ? std::string(format::dtype_name(*compute)) : "none";
    const Streamed raw = block.stream("raw" + suffix, format::CodedRest::kNone, {}, options);
    const Streamed coded = block.stream("zstd" + suffix, format::CodedRest::kZstd, {}, options);
    EXPECT_EQ(raw.size(), coded.size());
    for (const auto& [name, tensor] : raw) {
      EXPECT_TRUE(coded.at(name) == tensor) << name;
    }
  }
}

TEST(StreamerNarrowed, GivesF32UnlessAskedForAnother) {
  MixedBlock block;
  const std::string name = "layers.0.narrow.weight";
  const format::ConversionRequest request = {.narrows = true};
  const Streamed as_is = block.stream("as_is", format::CodedRest::kNone, request, {});
  EXPECT_EQ(as_is.at(name).first, Dtype::kF32);
  EXPECT_TRUE(as_is.at(name).second == block.narrow());
  StreamOptions options;
  options.compute_dtype = Dtype::kBf16;
  const Streamed narrow = block.stream("narrow", format::CodedRest::kNone, request, options);
  EXPECT_TRUE(narrow.at(name) ==
              block.stream("wide", format::CodedRest::kNone, {}, options).at(name));
}

TEST(StreamerRounded, MultipliesItsScale) {
  MixedBlock block;
  const std::string name = "layers.0.narrow.weight";
  StreamOptions options;
  options.compute_dtype = Dtype::kF32;
  const Streamed wide = block.stream("wide", format::CodedRest::kNone, {}, options);
  for (const format::CodedRest rest : {format::CodedRest::kNone, format::CodedRest::kZstd}) {
    const Streamed rounded = block.stream(rest == format::CodedRest::kNone ? "fp8" : "fp8_zstd",
                                          rest, {.rounded_to = Dtype::kF8E4M3}, options);
    ASSERT_EQ(rounded.at(name).first, Dtype::kF32);
    const std::string& found = rounded.at(name).second;
    const std::string& source = wide.at(name).second;
    ASSERT_EQ(found.size(), source.size());
    for (std::size_t at = 0; at < source.size(); at += sizeof(float)) {
      float expected = 0;
      float value = 0;
      std::memcpy(&expected, source.data() + at, sizeof(float));
      std::memcpy(&value, found.data() + at, sizeof(float));
      // Three bits of mantissa, or half a unit of the smallest numbers.
      ASSERT_LE(std::abs(value - expected), std::max(std::abs(expected) / 16.0F, 1e-6F)) << at;
    }
  }
}

}  // namespace
}  // namespace trash_panda::runtime
