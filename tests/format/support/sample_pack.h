#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trash_panda/format/checkpoint.h"
#include "trash_panda/format/pack_writer.h"
#include "trash_panda/format/weights.h"

#include "base/support/temp_dir.h"
#include "format/support/checkpoint_builder.h"

namespace trash_panda::testing {

/// A small checkpoint and what packs it, without the code that finds weights and blocks: names
/// that begin with "layers.N." are block N, all others are base.
///
/// It has what packs must get right: scales per tensor and per block, one of them stored as BF16,
/// fp8 in a U8 tensor, an empty tensor, a scalar, sizes that are no multiple of anything, an alias.
class SamplePack {
 public:
  SamplePack() {
    using format::Dtype;
    builder_.add_random("embed.weight", Dtype::kBf16, {10, 16});
    builder_.add("step", Dtype::kI64, {}, bytes_of(std::vector<std::int64_t>{7}));
    for (const std::string layer : {"layers.0.", "layers.1.", "layers.2.", "layers.3."}) {
      builder_.add_random(layer + "attn.weight", Dtype::kBf16, {16, 16});
      builder_.add_random(layer + "mlp.weight", Dtype::kF8E4M3, {16, 33});
      builder_.add(layer + "mlp.weight_scale", Dtype::kF32, {1},
                   bytes_of(std::vector<float>{0.5F}));
      builder_.add_random(layer + "up.weight", Dtype::kU8, {5, 6});
      builder_.add(layer + "up.scale", Dtype::kBf16, {2, 2},
                   bytes_of(std::vector<std::uint16_t>{0x3f80, 0x4000, 0xbf80, 0x3f00}));
      builder_.add(layer + "empty", Dtype::kF16, {0, 4}, "");
    }
    builder_.write(checkpoint_path());
    reopen();
    lay_out();
    options_.generator = "trash-panda test";
    options_.reserve_bytes = 0;
  }

  [[nodiscard]] std::filesystem::path checkpoint_path() const { return dir_ / "model.safetensors"; }
  [[nodiscard]] std::filesystem::path target() const { return dir_ / "model.panda"; }
  [[nodiscard]] const TempDir& dir() const { return dir_; }
  [[nodiscard]] const format::Checkpoint& checkpoint() const { return *checkpoint_; }
  [[nodiscard]] const SafetensorsBuilder& builder() const { return builder_; }
  format::WeightTable& weights() { return weights_; }
  format::PackLayout& layout() { return layout_; }
  format::PackOptions& options() { return options_; }

  /// As another run would find the checkpoint.
  void reopen() {
    weights_ = {};
    checkpoint_ = must(format::Checkpoint::open(checkpoint_path()));
    find_weights();
  }

  Result<format::Manifest> lay_out_pack() {
    return format::lay_out_pack(*checkpoint_, weights_, layout_, options_);
  }
  Result<format::Manifest> write(FileSystem& file_system = FileSystem::posix()) {
    return format::write_pack(file_system, *checkpoint_, weights_, layout_, target(), options_);
  }

  /// What the pack's tensors must hold, by name: the source's bytes, and scales as F32.
  [[nodiscard]] std::map<std::string, std::string> expected_tensors() const {
    std::map<std::string, std::string> expected = builder_.tensors();
    for (const std::string layer : {"layers.0.", "layers.1.", "layers.2.", "layers.3."}) {
      expected.erase(layer + "up.scale");
      expected[layer + "up.weight_scale"] = bytes_of(std::vector<float>{1.0F, 2.0F, -1.0F, 0.5F});
    }
    return expected;
  }

 private:
  void find_weights() {
    const std::vector<format::TensorRecord>& tensors = checkpoint_->tensors();
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const std::string name(tensors[i].name);
      if (name.ends_with("scale")) {
        continue;
      }
      format::Weight weight{
          .name = tensors[i].name, .tensor_index = i, .dtype = tensors[i].dtype, .scale = {}};
      if (name.ends_with("mlp.weight")) {
        weight.scale = format::WeightScale{.tensor_index = *checkpoint_->find(name + "_scale"),
                                           .granularity = format::Granularity::kTensor,
                                           .shape = {},
                                           .block_shape = {},
                                           .transform = format::ScaleTransform::kNone};
      }
      if (name.ends_with("up.weight")) {
        const std::string scale = name.substr(0, name.size() - 6) + "scale";
        weight.dtype = format::Dtype::kF8E5M2;
        weight.scale = format::WeightScale{.tensor_index = *checkpoint_->find(scale),
                                           .granularity = format::Granularity::kBlock,
                                           .shape = {2, 2},
                                           .block_shape = {4, 4},
                                           .transform = format::ScaleTransform::kNone};
      }
      weights_.weights.push_back(std::move(weight));
    }
  }

  void lay_out() {
    using format::Tier;
    layout_.plan_toml = "# a plan\n";
    layout_.aliases = {{"head.weight", "embed.weight"}};
    layout_.extents.push_back({.name = "base", .tier = Tier::kBase, .weights = {}});
    for (const Tier tier : {Tier::kGpu, Tier::kDisk, Tier::kRam, Tier::kDisk}) {
      layout_.extents.push_back({.name = fmt::format("layers.{}", layout_.extents.size() - 1),
                                 .tier = tier,
                                 .weights = {}});
    }
    for (std::size_t i = 0; i < weights_.weights.size(); ++i) {
      const std::string_view name = weights_.weights[i].name;
      const std::size_t extent =
          name.starts_with("layers.") ? static_cast<std::size_t>(name[7] - '0') + 1 : 0;
      layout_.extents[extent].weights.push_back(i);
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
