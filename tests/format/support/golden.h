#pragma once

#include <bit>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "trash_panda/format/manifest.h"
#include "trash_panda/format/pack_writer.h"

#include "format/support/checkpoint_builder.h"
#include "format/support/sample_pack.h"

namespace trash_panda::testing {

/// Where the golden files of the pack format are.
inline std::filesystem::path golden_path() {
  return std::filesystem::path(TP_SOURCE_DIR) / "tests/format/golden";
}
inline std::filesystem::path golden_bad_path() {
  return std::filesystem::path(TP_SOURCE_DIR) / "tests/format/golden_bad";
}

/// The pack `golden/v1_raw.panda` as this code writes it: values chosen to be told apart in a hex
/// dump. Four blocks on three tiers, three with scales per row and one with MX scales, one alias.
class GoldenPack {
 public:
  GoldenPack() {
    using format::Dtype;
    using format::Tier;
    SafetensorsBuilder builder;
    builder.add("embed.weight", Dtype::kF32, {2, 2}, bytes_of(std::vector<float>{1, 2, 3, 4}));
    add_block(builder, 0);
    add_block(builder, 1);
    add_block(builder, 2);
    add_mx_block(builder);
    source_ = builder.file();
    write_text(dir_ / "source.safetensors", source_);
    const format::Checkpoint checkpoint =
        must(format::Checkpoint::open(dir_ / "source.safetensors"));
    format::WeightTable weights = find_weights(checkpoint);
    format::PackLayout layout{.extents = {{.name = "base", .tier = Tier::kBase, .weights = {0}},
                                          {.name = "layers.0", .tier = Tier::kDisk, .weights = {1}},
                                          {.name = "layers.1", .tier = Tier::kRam, .weights = {2}},
                                          {.name = "layers.2", .tier = Tier::kDisk, .weights = {3}},
                                          {.name = "layers.3", .tier = Tier::kGpu, .weights = {4}}},
                              .aliases = {{"head.weight", "embed.weight"}},
                              .plan_toml = "# the plan goes here\n"};
    format::PackOptions options;
    options.generator = "trash-panda golden";
    options.reserve_bytes = 0;
    manifest_ =
        must(format::write_pack(FileSystem::posix(), checkpoint, weights, layout, path(), options));
    manifest_.source_path = "source.safetensors";  // And not this test's temporary folder.
    write_text(path() / format::kManifestName, format::write_manifest(manifest_));
  }

  [[nodiscard]] std::filesystem::path path() const { return dir_ / "v1_raw.panda"; }
  [[nodiscard]] const std::string& source() const { return source_; }
  [[nodiscard]] const format::Manifest& manifest() const { return manifest_; }

 private:
  static void add_block(SafetensorsBuilder& builder, unsigned block) {
    const std::string name = fmt::format("layers.{}.weight", block);
    const auto first = static_cast<char>(0x30 + 8 * block);
    builder.add(name, format::Dtype::kF8E4M3, {2, 3},
                {first, char(first + 1), char(first + 2), char(first + 3), char(first + 4),
                 char(first + 5)});
    builder.add(name + "_scale_inv", format::Dtype::kF32, {2, 1},
                bytes_of(std::vector<float>{0.5F, 2.0F}));
  }

  /// Rows of a group of 32 and one of 8. Its codes are 0.5, 1, 2 and NaN.
  static void add_mx_block(SafetensorsBuilder& builder) {
    std::string payload;
    for (int i = 0; i < 80; ++i) {
      payload += static_cast<char>(0x20 + i);
    }
    builder.add("layers.3.weight", format::Dtype::kF8E4M3, {2, 40}, payload);
    builder.add("layers.3.weight_scale_inv", format::Dtype::kU8, {2, 2}, "\x7e\x7f\x80\xff");
  }

  static format::WeightTable find_weights(const format::Checkpoint& checkpoint) {
    format::WeightTable table;
    for (std::size_t i = 0; i < checkpoint.tensors().size(); ++i) {
      const format::TensorRecord& record = checkpoint.tensors()[i];
      if (record.name.ends_with("_scale_inv")) {
        const bool is_mx = record.dtype == format::Dtype::kU8;
        table.weights.back().scale = format::WeightScale{
            .tensor_index = i,
            .granularity = is_mx ? format::Granularity::kBlock : format::Granularity::kRow,
            .shape = record.shape,
            .block_shape = is_mx ? format::Shape{1, 32} : format::Shape{},
            .dtype = is_mx ? format::Dtype::kF8E8M0 : format::Dtype::kF32,
            .transform = format::ScaleTransform::kNone};
      } else {
        table.weights.push_back(
            {.name = record.name, .tensor_index = i, .dtype = record.dtype, .scale = {}});
      }
    }
    return table;
  }

  TempDir dir_;
  std::string source_;
  format::Manifest manifest_;
};

/// The pack `golden/v1_index.panda` as this code writes it: of two files and their index, which
/// says more than where tensors are. A file has metadata without entries.
class GoldenIndexPack {
 public:
  GoldenIndexPack() {
    using format::Dtype;
    using format::Tier;
    const std::filesystem::path folder = source();
    std::filesystem::create_directory(folder);
    const std::string first = "unet-00001-of-00002.safetensors";
    const std::string second = "unet-00002-of-00002.safetensors";
    SafetensorsBuilder()
        .metadata("format", "pt")
        .add("embed", Dtype::kU8, {3}, "abc")
        .write(folder / first);
    SafetensorsBuilder()
        .empty_metadata()
        .add("layers.0.w", Dtype::kU8, {4}, "defg")
        .write(folder / second);
    write_text(folder / "unet.safetensors.index.json",
               fmt::format("{{\n  \"metadata\": {{\n    \"made_by\": \"a \\\"tool\\\"\",\n"
                           "    \"total_size\": 7\n  }},\n  \"weight_map\": {{\n"
                           "    \"embed\": \"{}\",\n    \"layers.0.w\": \"{}\"\n  }}\n}}\n",
                           first, second));
    const format::Checkpoint checkpoint = must(format::Checkpoint::open(folder));
    format::WeightTable weights;
    for (std::size_t i = 0; i < 2; ++i) {
      weights.weights.push_back({.name = checkpoint.tensors()[i].name,
                                 .tensor_index = i,
                                 .dtype = checkpoint.tensors()[i].dtype,
                                 .scale = {}});
    }
    const format::PackLayout layout{
        .extents = {{.name = "base", .tier = Tier::kBase, .weights = {0}},
                    {.name = "layers.0", .tier = Tier::kDisk, .weights = {1}}},
        .aliases = {},
        .plan_toml = "# the plan goes here\n"};
    format::PackOptions options;
    options.generator = "trash-panda golden";
    options.reserve_bytes = 0;
    format::Manifest manifest =
        must(format::write_pack(FileSystem::posix(), checkpoint, weights, layout, path(), options));
    manifest.source_path = "source_index";
    write_text(path() / format::kManifestName, format::write_manifest(manifest));
  }

  [[nodiscard]] std::filesystem::path path() const { return dir_ / "v1_index.panda"; }
  [[nodiscard]] std::filesystem::path source() const { return dir_ / "source_index"; }

 private:
  TempDir dir_;
};

/// The pack `golden/v1_exponent.panda` as this code writes it: a block with weights in the exponent
/// code, of BF16 and of F32, between tensors that stay raw, and a base tensor.
class GoldenCodedPack {
 public:
  GoldenCodedPack() {
    using format::Dtype;
    using format::Tier;
    SafetensorsBuilder builder;
    builder.metadata("format", "pt");
    builder.add("embed.weight", Dtype::kI16, {3}, bytes_of(std::vector<std::int16_t>{1, 2, 3}));
    builder.add("layers.0.norm", Dtype::kBf16, {3}, upper_halves(3, 1));
    builder.add("layers.0.weight", Dtype::kBf16, {131, 130}, upper_halves(131 * 130, 2));
    builder.add("layers.0.wide", Dtype::kF32, {128, 65}, whole_values(128 * 65, 3));
    builder.add("layers.0.bias", Dtype::kF32, {2}, whole_values(2, 4));
    source_ = builder.file();
    write_text(dir_ / "source_exponent.safetensors", source_);
    const format::Checkpoint checkpoint =
        must(format::Checkpoint::open(dir_ / "source_exponent.safetensors"));
    format::WeightTable weights;
    for (std::size_t i = 0; i < checkpoint.tensors().size(); ++i) {
      weights.weights.push_back({.name = checkpoint.tensors()[i].name,
                                 .tensor_index = i,
                                 .dtype = checkpoint.tensors()[i].dtype,
                                 .scale = {}});
    }
    const format::PackLayout layout{.extents = {{.name = "base",
                                                 .tier = Tier::kBase,
                                                 .weights = {0},
                                                 .coded = format::CodedFloats::kAll},
                                                {.name = "layers.0",
                                                 .tier = Tier::kDisk,
                                                 .weights = {1, 2, 3, 4},
                                                 .coded = format::CodedFloats::kAll}},
                                    .aliases = {},
                                    .plan_toml = "# the plan goes here\n"};
    format::PackOptions options;
    options.generator = "trash-panda golden";
    options.reserve_bytes = 0;
    manifest_ =
        must(format::write_pack(FileSystem::posix(), checkpoint, weights, layout, path(), options));
    manifest_.source_path = "source_exponent.safetensors";
    write_text(path() / format::kManifestName, format::write_manifest(manifest_));
  }

  [[nodiscard]] std::filesystem::path path() const { return dir_ / "v1_exponent.panda"; }
  [[nodiscard]] const std::string& source() const { return source_; }

 private:
  /// Sums of random bytes, about normally distributed, by arithmetic that is the same everywhere.
  static std::vector<float> values(std::size_t count, std::uint64_t seed) {
    std::mt19937_64 engine(seed);
    std::vector<float> values(count);
    for (float& value : values) {
      const std::uint64_t bits = engine();
      int sum = -8 * 255 / 2;
      for (unsigned byte = 0; byte < 8; ++byte) {
        sum += static_cast<int>(bits >> 8 * byte & 0xff);
      }
      value = static_cast<float>(sum) / 16384.0F;
    }
    return values;
  }
  static std::string whole_values(std::size_t count, std::uint64_t seed) {
    return bytes_of(values(count, seed));
  }
  static std::string upper_halves(std::size_t count, std::uint64_t seed) {
    std::vector<std::uint16_t> halves;
    for (const float value : values(count, seed)) {
      halves.push_back(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16));
    }
    return bytes_of(halves);
  }

  TempDir dir_;
  std::string source_;
  format::Manifest manifest_;
};

/// The pack `golden/v1_zstd.panda` as this code and the libzstd at hand write it: a block with an
/// fp8 weight in the zstd code, whose scale stays raw, a bf16 weight in the exponent code, and
/// integers of two planes, of which one is no smaller as a frame.
class GoldenZstdPack {
 public:
  GoldenZstdPack() {
    using format::Dtype;
    using format::Tier;
    SafetensorsBuilder builder;
    builder.add("ids", Dtype::kI16, {130, 131}, numbers(130 * 131));
    builder.add("layers.0.weight", Dtype::kF8E4M3, {200, 201}, codes(200 * 201));
    builder.add("layers.0.weight_scale", Dtype::kF32, {}, bytes_of(std::vector<float>{0.5F}));
    builder.add("layers.0.up", Dtype::kBf16, {128, 130}, ones(128 * 130));
    builder.add("layers.0.norm", Dtype::kBf16, {3}, ones(3));
    source_ = builder.file();
    write_text(dir_ / "source_zstd.safetensors", source_);
    checkpoint_ = must(format::Checkpoint::open(dir_ / "source_zstd.safetensors"));
    weights_ = must(format::find_weights(*checkpoint_));
    format::PackLayout layout{.extents = {{.name = "base", .tier = Tier::kBase, .weights = {}},
                                          {.name = "layers.0", .tier = Tier::kDisk, .weights = {}}},
                              .aliases = {},
                              .plan_toml = "# the plan goes here\n"};
    for (std::size_t i = 0; i < weights_.weights.size(); ++i) {
      layout.extents[weights_.weights[i].name == "ids" ? 0 : 1].weights.push_back(i);
    }
    for (format::ExtentLayout& extent : layout.extents) {
      extent.coded = format::CodedFloats::kAll;
      extent.rest = format::CodedRest::kZstd;
    }
    format::PackOptions options;
    options.generator = "trash-panda golden";
    options.reserve_bytes = 0;
    format::Manifest manifest = must(
        format::write_pack(FileSystem::posix(), *checkpoint_, weights_, layout, path(), options));
    manifest.source_path = "source_zstd.safetensors";
    write_text(path() / format::kManifestName, format::write_manifest(manifest));
  }

  [[nodiscard]] std::filesystem::path path() const { return dir_ / "v1_zstd.panda"; }
  [[nodiscard]] const std::string& source() const { return source_; }
  [[nodiscard]] const format::Checkpoint& checkpoint() const { return *checkpoint_; }
  [[nodiscard]] const format::WeightTable& weights() const { return weights_; }

 private:
  /// The upper byte repeats, the lower one does not.
  static std::string numbers(std::size_t count) {
    std::mt19937_64 engine(1);
    std::vector<std::uint16_t> values(count);
    for (std::size_t i = 0; i < count; ++i) {
      values[i] = static_cast<std::uint16_t>(i / 1000 % 16 << 8 | (engine() & 0xff));
    }
    return bytes_of(values);
  }
  /// Codes of fp8 as weights have them: small numbers of either sign.
  static std::string codes(std::size_t count) {
    std::mt19937_64 engine(2);
    std::string codes(count, '\0');
    for (char& code : codes) {
      const std::uint64_t bits = engine();
      const auto exponent = static_cast<unsigned>(9 - std::countr_zero(bits >> 8 | 1U << 8));
      code = static_cast<char>((bits & 0x87) | exponent << 3);
    }
    return codes;
  }
  static std::string ones(std::size_t count) {
    return bytes_of(std::vector<std::uint16_t>(count, 0x3f80));
  }

  TempDir dir_;
  std::string source_;
  std::optional<format::Checkpoint> checkpoint_;
  format::WeightTable weights_;
};

}  // namespace trash_panda::testing
