#pragma once

#include <bit>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "trash_panda/format/checkpoint.h"
#include "trash_panda/format/pack_writer.h"
#include "trash_panda/format/weights.h"

#include "base/support/temp_dir.h"
#include "format/support/checkpoint_builder.h"

namespace trash_panda::testing {

/// Upper halves of normally distributed F32: weights as models have them.
inline std::string gaussian_bf16(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<float> normal(0.0F, 0.02F);
  std::vector<std::uint16_t> values(count);
  for (std::uint16_t& value : values) {
    value = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(normal(engine)) >> 16);
  }
  return bytes_of(values);
}

/// A checkpoint with what coded packs must get right, and its layout: weights of more than a chunk
/// and of no whole number of elements, random bits, F32, tensors that stay raw between them, before
/// them and behind them, an empty one, a weight with a scale, an extent with nothing to code.
class CodedSample {
 public:
  CodedSample() {
    using format::Dtype;
    builder_.add("embed.weight", Dtype::kBf16, {300, 301}, gaussian_bf16(300 * 301, 1));
    for (const std::string layer : {"layers.0.", "layers.1."}) {
      builder_.add_random(layer + "norm", Dtype::kBf16, {77});
      builder_.add(layer + "w", Dtype::kBf16, {257, 512}, gaussian_bf16(257 * 512, 2));
      builder_.add_random(layer + "noise", Dtype::kBf16, {16'385});
      builder_.add_random(layer + "f32", Dtype::kF32, {8, 1025});
      builder_.add_random(layer + "fp8", Dtype::kF8E4M3, {64, 65});
      builder_.add(layer + "fp8_scale", Dtype::kF32, {}, bytes_of(std::vector<float>{0.25F}));
      builder_.add(layer + "empty", Dtype::kF16, {0, 4}, "");
    }
    builder_.add_random("layers.2.ids", Dtype::kI64, {9000});
    builder_.write(dir_ / "model.safetensors");
    checkpoint_ = must(format::Checkpoint::open(dir_ / "model.safetensors"));
    lay_out();
    options_.generator = "trash-panda test";
    options_.reserve_bytes = 0;
    options_.journal_bytes = 1;
  }

  Result<format::Manifest> write(FileSystem& file_system = FileSystem::posix()) {
    return format::write_pack(file_system, *checkpoint_, weights_, layout_, target(), options_);
  }

  [[nodiscard]] const TempDir& dir() const { return dir_; }
  [[nodiscard]] std::filesystem::path target() const { return dir_ / "model.panda"; }
  [[nodiscard]] const format::Checkpoint& checkpoint() const { return *checkpoint_; }
  [[nodiscard]] const format::WeightTable& weights() const { return weights_; }
  format::PackLayout& layout() { return layout_; }
  format::PackOptions& options() { return options_; }
  /// What the tensors must hold, decoded.
  [[nodiscard]] const std::map<std::string, std::string>& tensors() const {
    return builder_.tensors();
  }

 private:
  void lay_out() {
    using format::Tier;
    layout_.plan_toml = "# a plan\n";
    layout_.extents = {{.name = "base", .tier = Tier::kBase, .weights = {}},
                       {.name = "layers.0", .tier = Tier::kDisk, .weights = {}},
                       {.name = "layers.1", .tier = Tier::kDisk, .weights = {}},
                       {.name = "layers.2", .tier = Tier::kRam, .weights = {}}};
    for (format::ExtentLayout& extent : layout_.extents) {
      extent.coded = format::CodedFloats::kAll;
    }
    for (std::size_t i = 0; i < checkpoint_->tensors().size(); ++i) {
      const std::string name(checkpoint_->tensors()[i].name);
      if (name.ends_with("_scale")) {
        weights_.weights.back().scale =
            format::WeightScale{.tensor_index = i,
                                .granularity = format::Granularity::kTensor,
                                .shape = {},
                                .block_shape = {},
                                .transform = format::ScaleTransform::kNone};
        continue;
      }
      const std::size_t extent =
          name.starts_with("layers.") ? static_cast<std::size_t>(name[7] - '0') + 1 : 0;
      layout_.extents[extent].weights.push_back(weights_.weights.size());
      weights_.weights.push_back({.name = checkpoint_->tensors()[i].name,
                                  .tensor_index = i,
                                  .dtype = checkpoint_->tensors()[i].dtype,
                                  .scale = {}});
    }
  }

  TempDir dir_;
  SafetensorsBuilder builder_;
  std::optional<format::Checkpoint> checkpoint_;
  format::WeightTable weights_;
  format::PackLayout layout_;
  format::PackOptions options_;
};

}  // namespace trash_panda::testing
