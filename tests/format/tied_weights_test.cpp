// Tensors that share bytes, in torch files and by `__metadata__`: one weight only where payload and
// scale agree, and packed so that every name loads as the product of its own scale.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trash_panda/format/checkpoint.h"
#include "trash_panda/format/pack_writer.h"
#include "trash_panda/format/weights.h"

#include "support/sample_pack.h"
#include "support/torch_builder.h"

namespace trash_panda::format {
namespace {

using testing::bytes_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::must;
using testing::SafetensorsBuilder;
using testing::TempDir;
using testing::TorchBuilder;
using testing::write_text;
using Aliases = decltype(WeightTable::aliases);

constexpr std::uint64_t kPayloadBytes = 16;
constexpr std::uint64_t kStorageBytes = 2 * kPayloadBytes + 2 * sizeof(float);

/// A part of the one storage of a torch file. @param offset  In elements.
std::string shared(const std::string& name, const std::string& dtype, std::uint64_t offset,
                   const std::vector<std::uint64_t>& shape) {
  using namespace testing::pickle;
  std::vector<std::uint64_t> strides(shape.size(), 1);
  for (std::size_t axis = shape.size(); axis-- > 1;) {
    strides[axis - 1] = strides[axis] * shape[axis];
  }
  return text(name) + global("torch._utils", "_rebuild_tensor_v3") +
         tuple(tuple(text("storage") + global("torch.storage", "UntypedStorage") + text("0") +
                     text("cpu") + integer(kStorageBytes)) +
               "Q" + integer(static_cast<std::int64_t>(offset)) + numbers(shape) +
               numbers(strides) + "\x89" + ordered_dict() + global("torch", dtype)) +
         "R";
}

/// One of the two fp8 matrices of the storage.
std::string payload(const std::string& name, std::uint64_t which = 0) {
  return shared(name, "float8_e4m3fn", which * kPayloadBytes, {4, 4});
}

/// One of the two scales behind them: 0.5 and 2.
std::string scale(const std::string& name, std::uint64_t which = 0) {
  return shared(name, "float32", 2 * kPayloadBytes / sizeof(float) + which, {1});
}

/// A checkpoint, its weights and its pack with all of them in one extent.
struct TiedPack {
  explicit TiedPack(const std::string& items) {
    TorchBuilder()
        .root(testing::pickle::dict(items))
        .storage("0", testing::random_bytes(2 * kPayloadBytes, 1) +
                          bytes_of(std::vector<float>{0.5F, 2.0F}))
        .write(dir / "model.pt");
    find("model.pt");
  }
  explicit TiedPack(const SafetensorsBuilder& builder) {
    builder.write(dir / "model.safetensors");
    find("model.safetensors");
  }

  void find(const std::string& name) {
    auto opened = Checkpoint::open(dir / name);
    if (!opened) {
      table = std::unexpected(std::move(opened).error());
      return;
    }
    checkpoint = *std::move(opened);
    table = find_weights(checkpoint);
    if (!table) {
      return;
    }
    ExtentLayout base{.name = "base", .tier = Tier::kBase, .weights = {}};
    base.weights.resize(table->weights.size());
    std::iota(base.weights.begin(), base.weights.end(), std::size_t{0});
    PackLayout layout;
    layout.extents.push_back(std::move(base));
    PackOptions options;
    options.reserve_bytes = 0;
    manifest =
        write_pack(FileSystem::posix(), checkpoint, *table, layout, dir / "m.panda", options);
  }

  /// The bytes that the pack holds for a tensor of this name; "-" where it has none.
  [[nodiscard]] std::string bytes(const std::string& name) const {
    if (!manifest) {
      return manifest.error().to_string();
    }
    const Checkpoint pack = must(Checkpoint::open(dir / "m.panda" / "base-00001.safetensors"));
    const auto alias = manifest->aliases.find(name);
    const auto index = pack.find(alias == manifest->aliases.end() ? name : alias->second);
    if (!index) {
      return "-";
    }
    std::string stored(pack.tensors()[*index].size_bytes, '\0');
    EXPECT_TRUE(pack.read_tensor(*index, std::as_writable_bytes(std::span(stored))));
    return stored;
  }
  /// The one factor of a weight in the pack; 0 where it has no scale.
  [[nodiscard]] float factor(const std::string& name) const {
    const auto alias = table.value().aliases.find(name);
    const std::string& kept = alias == table->aliases.end() ? name : alias->second;
    const std::string scale = bytes(kept + "_scale");
    float value = 0;
    if (scale.size() == sizeof value) {
      std::copy(scale.begin(), scale.end(), reinterpret_cast<char*>(&value));
    }
    return value;
  }
  [[nodiscard]] std::string warnings() const {
    std::string text;
    for (const std::string& line : table.value().warnings) {
      text += line + "\n";
    }
    return text;
  }
  /// How often each tensor is a weight, a scale, ignored or tied: once.
  void expect_each_in_one_place() const {
    std::vector<int> places(checkpoint.tensors().size());
    for (const Weight& weight : table.value().weights) {
      ++places[weight.tensor_index];
      if (weight.scale) {
        ++places[weight.scale->tensor_index];
      }
    }
    for (const auto* list : {&table->ignored, &table->tied}) {
      std::ranges::for_each(*list, [&](std::size_t index) { ++places[index]; });
    }
    EXPECT_THAT(places, ::testing::Each(1));
  }

  TempDir dir;
  Checkpoint checkpoint;
  Result<WeightTable> table = std::unexpected(Error(ErrorCode::kFailed, "not run"));
  Result<Manifest> manifest = std::unexpected(Error(ErrorCode::kFailed, "not packed"));
};

std::string stored_payload(std::size_t which) {
  return testing::random_bytes(2 * kPayloadBytes, 1).substr(which * kPayloadBytes, kPayloadBytes);
}

TEST(TiedWeights, ShareAScaleAndHaveACopyEach) {
  const TiedPack packed(payload("a.weight", 0) + payload("b.weight", 1) + scale("a.weight_scale") +
                        scale("b.weight_scale"));
  EXPECT_THAT(packed.table.value().aliases, IsEmpty());
  EXPECT_EQ(packed.warnings(), "");
  EXPECT_EQ(packed.factor("a.weight"), 0.5F);
  EXPECT_EQ(packed.factor("b.weight"), 0.5F);
  EXPECT_EQ(packed.bytes("a.weight"), stored_payload(0));
  EXPECT_EQ(packed.bytes("b.weight"), stored_payload(1));
  packed.expect_each_in_one_place();
}

TEST(TiedWeights, AreTwoWhereTheirScalesDiffer) {
  const TiedPack packed(payload("a.weight") + payload("b.weight") + scale("a.weight_scale", 0) +
                        scale("b.weight_scale", 1));
  EXPECT_THAT(packed.table.value().aliases, IsEmpty());
  EXPECT_EQ(packed.factor("a.weight"), 0.5F);
  EXPECT_EQ(packed.factor("b.weight"), 2.0F);
  EXPECT_EQ(packed.bytes("b.weight"), stored_payload(0));
  packed.expect_each_in_one_place();
}

TEST(TiedWeights, AreTwoWhereOneHasNoScale) {
  for (const auto& [scaled, plain] :
       {std::pair("a.weight", "b.weight"), {"b.weight", "a.weight"}}) {
    const TiedPack packed(payload("a.weight") + payload("b.weight") +
                          scale(std::string(scaled) + "_scale"));
    EXPECT_THAT(packed.table.value().aliases, IsEmpty()) << scaled;
    EXPECT_EQ(packed.factor(scaled), 0.5F);
    EXPECT_EQ(packed.factor(plain), 0.0F) << scaled;
    EXPECT_EQ(packed.bytes(plain), stored_payload(0));
    EXPECT_THAT(packed.warnings(),
                HasSubstr("without a scale, read as stored: " + std::string(plain)));
  }
}

TEST(TiedWeights, AreOneWherePayloadAndScaleAgree) {
  const TiedPack packed(payload("embed.weight") + payload("lm_head.weight") +
                        scale("embed.weight_scale_inv") + scale("lm_head.weight_scale_inv"));
  EXPECT_EQ(packed.table.value().aliases, (Aliases{{"lm_head.weight", "embed.weight"}}));
  EXPECT_EQ(packed.table->tied.size(), 2U);
  EXPECT_EQ(packed.factor("lm_head.weight"), 0.5F);
  EXPECT_EQ(packed.bytes("lm_head.weight"), stored_payload(0));
  EXPECT_EQ(packed.manifest.value().extents[0].tensors.size(), 2U);
  packed.expect_each_in_one_place();
}

TEST(TiedWeights, HaveScalesThatAreSomethingElseAsWell) {
  const TiedPack activation(payload("a.weight") + scale("a.input_scale") + scale("a.weight_scale"));
  EXPECT_EQ(activation.factor("a.weight"), 0.5F);
  EXPECT_THAT(activation.table.value().aliases, IsEmpty());
  const TiedPack parameter(payload("a.weight") + scale("a.alpha") + scale("a.weight_scale"));
  EXPECT_EQ(parameter.factor("a.weight"), 0.5F);
  EXPECT_EQ(parameter.bytes("a.alpha"), bytes_of(std::vector<float>{0.5F}));
  parameter.expect_each_in_one_place();
}

TEST(TiedWeights, AreFoundBetweenOtherViewsOfOnePlace) {
  const TiedPack packed(payload("a.weight") + shared("part", "uint8", 0, {3}) +
                        payload("b.weight"));
  EXPECT_EQ(packed.table.value().aliases, (Aliases{{"b.weight", "a.weight"}}));
}

SafetensorsBuilder fp8(const std::vector<std::string>& payloads,
                       const std::map<std::string, float>& scales) {
  SafetensorsBuilder builder;
  for (const std::string& name : payloads) {
    builder.add_random(name, Dtype::kF8E4M3, {4, 4});
  }
  for (const auto& [name, value] : scales) {
    builder.add(name, Dtype::kF32, {1}, bytes_of(std::vector<float>{value}));
  }
  return builder;
}

TEST(TiedWeights, OfMetadataHaveTheirOwnScales) {
  const TiedPack packed(
      fp8({"a.weight"}, {{"a.weight_scale_inv", 0.5F}, {"b.weight_scale_inv", 2.0F}})
          .metadata("b.weight", "a.weight"));
  EXPECT_EQ(packed.factor("a.weight"), 0.5F);
  EXPECT_EQ(packed.factor("b.weight"), 2.0F);
  EXPECT_EQ(packed.bytes("b.weight"), packed.bytes("a.weight"));
  packed.expect_each_in_one_place();
}

TEST(TiedWeights, OfMetadataMayBeScales) {
  const TiedPack scales(fp8({"a.weight", "b.weight"}, {{"a.weight_scale_inv", 0.5F}})
                            .metadata("format", "pt")
                            .metadata("b.weight_scale_inv", "a.weight_scale_inv"));
  EXPECT_EQ(scales.factor("b.weight"), 0.5F);
  EXPECT_NE(scales.bytes("b.weight"), scales.bytes("a.weight"));
  EXPECT_EQ(scales.warnings(), "");
  const TiedPack both(fp8({"a.weight"}, {{"a.weight_scale_inv", 0.5F}})
                          .metadata("b.weight", "a.weight")
                          .metadata("b.weight_scale_inv", "a.weight_scale_inv"));
  EXPECT_EQ(both.table.value().aliases, (Aliases{{"b.weight", "a.weight"}}));
  EXPECT_EQ(both.factor("b.weight"), 0.5F);
  both.expect_each_in_one_place();
}

TEST(TiedWeights, OfMetadataHaveACopyInEachNumberedBlock) {
  const TiedPack packed(SafetensorsBuilder()
                            .add_random("layers.0.weight", Dtype::kBf16, {2, 2})
                            .metadata("layers.1.weight", "layers.0.weight"));
  EXPECT_THAT(packed.table.value().aliases, IsEmpty());
  EXPECT_EQ(packed.bytes("layers.1.weight"), packed.bytes("layers.0.weight"));
  EXPECT_EQ(packed.bytes("layers.1.weight").size(), 8U);
}

TEST(TiedWeights, AreNoRemarks) {
  const TiedPack packed(SafetensorsBuilder()
                            .add_random("pt", Dtype::kF32, {2})
                            .add_random("a.weight", Dtype::kF32, {2})
                            .metadata("format", "pt")
                            .metadata("__metadata__", "a.weight"));
  EXPECT_THAT(packed.table.value().aliases, IsEmpty());
  EXPECT_EQ(packed.checkpoint.tensors().size(), 2U);
}

TEST(QuantizedWeights, AreRefusedByTheirZeroPoints) {
  constexpr const char* kConfig =
      R"({"quantization_config": {"quant_method": "compressed-tensors", "config_groups": {"g":
          {"weights": {"num_bits": 8, "type": "float", "strategy": "channel"}}}}})";
  for (const auto& [payload, zero] : {std::pair(Dtype::kF8E4M3, Dtype::kF8E4M3),
                                      {Dtype::kF8E4M3, Dtype::kI8},
                                      {Dtype::kI8, Dtype::kI8}}) {
    for (const bool is_zero_first : {true, false}) {
      SafetensorsBuilder builder;
      if (is_zero_first) {
        builder.add_random("x.weight_zero_point", zero, {8, 1});
      }
      builder.add_random("x.weight", payload, {8, 4});
      if (payload == Dtype::kF8E4M3) {
        builder.add_random("x.weight_scale", Dtype::kF32, {8, 1});
      }
      if (!is_zero_first) {
        builder.add_random("x.weight_zero_point", zero, {8, 1});
      }
      const TempDir dir;
      builder.write(dir / "model.safetensors");
      write_text(dir / "config.json", kConfig);
      const Checkpoint checkpoint = must(Checkpoint::open(dir.path()));
      const auto table = find_weights(checkpoint);
      ASSERT_FALSE(table) << dtype_name(payload);
      EXPECT_EQ(table.error().reason(), "unsupported_format");
      EXPECT_THAT(table.error().message(),
                  HasSubstr("tensor x.weight_zero_point belongs to the quantized weight x.weight"));
    }
  }
}

}  // namespace
}  // namespace trash_panda::format
