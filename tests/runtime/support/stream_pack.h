#pragma once

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trash_panda/format/checkpoint.h"
#include "trash_panda/format/pack_writer.h"
#include "trash_panda/format/weights.h"
#include "trash_panda/plan/plan_toml.h"
#include "trash_panda/runtime/streamer.h"

#include "format/support/checkpoint_builder.h"
#include "format/support/sample_pack.h"
#include "runtime/support/slow_floats.h"

namespace trash_panda::testing {

/// A tensor as a user of a streamer should see it.
struct ExpectedTensor {
  format::Dtype dtype;
  std::string bytes;

  bool operator==(const ExpectedTensor&) const = default;
};

/// Default options, read through the backend of TP_TEST_IO, where that is set: the tests run once
/// for each.
inline runtime::StreamOptions stream_options() {
  runtime::StreamOptions options;
  if (const char* backend = std::getenv("TP_TEST_IO"); backend != nullptr) {
    options.io = must(runtime::parse_io_backend(backend));
  }
  return options;
}

/// A pack of blocks that hold every kind of tensor, and what streaming it must give.
///
/// The expectation is worked out from the checkpoint's bytes by slow_floats.h, with nothing of the
/// code that streams.
class StreamPack {
 public:
  struct Options {
    std::vector<format::Tier> tiers;            ///< One a block.
    std::uint64_t extra_bytes_of_block_1 = 0;   ///< Makes that block longer than one read chunk.
    std::uint64_t planned_lookahead_bytes = 0;  ///< Into the pack's plan.toml.
    plan::Rates planned_rates = {};             ///< Into the pack's plan.toml.
  };

  explicit StreamPack(Options options) : options_(std::move(options)) {
    add_base();
    for (std::size_t block = 0; block < options_.tiers.size(); ++block) {
      add_block(block);
    }
    builder_.write(dir_ / "model.safetensors");
    const format::Checkpoint checkpoint =
        must(format::Checkpoint::open(dir_ / "model.safetensors"));
    const format::WeightTable weights = must(format::find_weights(checkpoint));
    format::PackOptions pack_options;
    pack_options.generator = "trash-panda test";
    pack_options.reserve_bytes = 0;
    manifest_ = must(format::write_pack(FileSystem::posix(), checkpoint, weights, layout(weights),
                                        path(), pack_options));
  }

  [[nodiscard]] std::filesystem::path path() const { return dir_ / "model.panda"; }
  /// What it was packed from.
  [[nodiscard]] std::filesystem::path checkpoint() const { return dir_ / "model.safetensors"; }
  [[nodiscard]] const format::Manifest& manifest() const { return manifest_; }
  [[nodiscard]] std::size_t block_count() const { return options_.tiers.size(); }
  [[nodiscard]] const format::PackedExtent& extent(std::string_view name) const {
    for (const format::PackedExtent& extent : manifest_.extents) {
      if (extent.name == name) {
        return extent;
      }
    }
    throw std::runtime_error("no such extent");
  }
  [[nodiscard]] static std::string block_name(std::size_t block) {
    return fmt::format("layers.{}", block);
  }
  [[nodiscard]] std::filesystem::path shard_path(const format::PackedExtent& extent) const {
    return path() / manifest_.shards[extent.shard_index].name;
  }

  /// Bytes of the extents of a tier.
  [[nodiscard]] std::uint64_t stored_bytes(format::Tier tier) const {
    std::uint64_t total_bytes = 0;
    for (const format::PackedExtent& extent : manifest_.extents) {
      total_bytes += extent.tier == tier ? extent.stored_bytes : 0;
    }
    return total_bytes;
  }

  /// Tensors whose name begins with `prefix`, expanded to `compute`; nothing: as stored.
  [[nodiscard]] std::map<std::string, ExpectedTensor> expected(
      const std::string& prefix, std::optional<format::Dtype> compute) const {
    std::map<std::string, ExpectedTensor> found;
    for (const auto& [name, dtype] : dtypes_) {
      if (name.starts_with(prefix)) {
        add_expected(name, dtype, compute, found);
      }
    }
    return found;
  }

  /// Flips one bit of an extent on disk.
  void flip_bit(const format::PackedExtent& extent, std::uint64_t offset_in_extent_bytes) const {
    std::fstream file(shard_path(extent), std::ios::binary | std::ios::in | std::ios::out);
    const auto at = static_cast<std::streamoff>(extent.offset_bytes + offset_in_extent_bytes);
    file.seekg(at);
    const auto byte = static_cast<char>(file.get() ^ 1);
    file.seekp(at);
    file.put(byte);
  }

 private:
  using Dtype = format::Dtype;

  void add(const std::string& name, Dtype dtype, const format::Shape& shape, std::string bytes) {
    builder_.add(name, dtype, shape, std::move(bytes));
    dtypes_.emplace(name, dtype);
  }

  /// Noise without the codes of NaN, whose payloads are the processor's business.
  [[nodiscard]] std::string fp8_noise(std::size_t size_bytes) {
    std::string bytes = random_bytes(size_bytes, ++seed_);
    for (char& code : bytes) {
      code = (code & 0x7f) == 0x7f ? char{0x38} : code;
    }
    return bytes;
  }

  [[nodiscard]] std::string float_noise(std::size_t count, int exponent) {
    const std::string noise = random_bytes(count * 2, ++seed_);
    std::vector<float> values(count);
    for (std::size_t at = 0; at < count; ++at) {
      std::int16_t integer = 0;
      std::memcpy(&integer, noise.data() + 2 * at, 2);
      values[at] = std::ldexp(static_cast<float>(integer) + 0.37F, exponent);
    }
    return bytes_of(values);
  }

  /// Exponent codes near 1, and the subnormal 2^-127.
  [[nodiscard]] std::string exponent_noise(std::size_t count) {
    std::string codes = random_bytes(count, ++seed_);
    for (char& code : codes) {
      code = static_cast<char>(code == 0 ? 0 : 116 + (code & 15));
    }
    return codes;
  }

  void add_base() {
    add("embed.weight", Dtype::kF32, {50, 30}, float_noise(1500, -14));
    add("embed.positions", Dtype::kI64, {3}, bytes_of(std::vector<std::int64_t>{5, -6, 7}));
    add("head.weight", Dtype::kF8E4M3, {20, 30}, fp8_noise(600));
    add("head.weight_scale", Dtype::kF32, {}, bytes_of(std::vector<float>{0.0123F}));
  }

  void add_block(std::size_t block) {
    const std::string prefix = block_name(block) + ".";
    add(prefix + "norm.weight", Dtype::kF32, {77}, float_noise(77, -15));
    add(prefix + "half.weight", Dtype::kF16, {3, 5}, half_noise(15));
    add(prefix + "attention.weight", Dtype::kBf16, {60, 70}, bf16_noise(60 * 70));
    add(prefix + "up.weight", Dtype::kF8E4M3, {200, 150}, fp8_noise(200 * 150));
    add(prefix + "up.weight_scale_inv", Dtype::kF32, {2, 2}, float_noise(4, -18));
    add(prefix + "down.weight", Dtype::kF8E4M3, {40, 90}, fp8_noise(40 * 90));
    add(prefix + "down.weight_scale", Dtype::kF32, {40, 1}, float_noise(40, -18));
    // Rows of three groups of 32, the last of which is cut.
    add(prefix + "gate.weight", Dtype::kF8E4M3, {24, 70}, fp8_noise(24 * 70));
    add(prefix + "gate.weight_scale", Dtype::kF8E8M0, {24, 3}, exponent_noise(24 * 3));
    add(prefix + "steps", Dtype::kI32, {4}, random_bytes(16, ++seed_));
    add(prefix + "table", Dtype::kF64, {2}, bytes_of(std::vector<double>{1.0 / 3, -1e-9}));
    if (block == 1 && options_.extra_bytes_of_block_1 > 0) {
      const std::uint64_t count = options_.extra_bytes_of_block_1 / 2;
      add(prefix + "long.weight", Dtype::kBf16, {count}, bf16_noise(count));
    }
  }

  [[nodiscard]] std::string bf16_noise(std::size_t count) {
    std::string bytes = random_bytes(count * 2, ++seed_);
    for (std::size_t at = 1; at < bytes.size(); at += 2) {
      bytes[at] = static_cast<char>((bytes[at] & 0x80) | 0x3e);  // Near 0.25: no infinity, no NaN.
    }
    return bytes;
  }

  [[nodiscard]] std::string half_noise(std::size_t count) {
    std::string bytes = random_bytes(count * 2, ++seed_);
    for (std::size_t at = 1; at < bytes.size(); at += 2) {
      bytes[at] = static_cast<char>(bytes[at] & 0xbb);
    }
    return bytes;
  }

  [[nodiscard]] format::PackLayout layout(const format::WeightTable& weights) const {
    format::PackLayout layout;
    layout.extents.push_back({.name = "base", .tier = format::Tier::kBase, .weights = {}});
    for (std::size_t block = 0; block < options_.tiers.size(); ++block) {
      layout.extents.push_back(
          {.name = block_name(block), .tier = options_.tiers[block], .weights = {}});
    }
    for (std::size_t at = 0; at < weights.weights.size(); ++at) {
      const std::string name(weights.weights[at].name);
      std::size_t extent = 0;
      if (name.starts_with("layers.")) {
        extent = 1 + std::stoul(name.substr(7));
      }
      layout.extents[extent].weights.push_back(at);
    }
    layout.aliases.emplace("tied.weight", "embed.weight");
    plan::Plan plan;
    plan.model_path = "model.safetensors";
    plan.lookahead_bytes = options_.planned_lookahead_bytes;
    plan.rates = options_.planned_rates;
    layout.plan_toml = plan::write_plan_toml(plan);
    return layout;
  }

  [[nodiscard]] static const SlowFormat* slow_format(Dtype dtype) {
    switch (dtype) {
      case Dtype::kF8E4M3:
        return &kSlowE4M3;
      case Dtype::kF16:
        return &kSlowF16;
      case Dtype::kBf16:
        return &kSlowBf16;
      case Dtype::kF32:
        return &kSlowF32;
      default:
        return nullptr;
    }
  }

  void add_expected(const std::string& name, Dtype dtype, std::optional<Dtype> compute,
                    std::map<std::string, ExpectedTensor>& found) const {
    const bool is_scale = name.find("_scale") != std::string::npos;
    const std::string& bytes = builder_.tensors().at(name);
    if (is_scale) {
      if (!compute) {
        const std::size_t end = name.find("_scale") + std::strlen("_scale");
        found.emplace(name.substr(0, end), ExpectedTensor{dtype, bytes});
      }
      return;
    }
    if (!compute || *compute == dtype || slow_format(dtype) == nullptr) {
      found.emplace(name, ExpectedTensor{dtype, bytes});
      return;
    }
    found.emplace(name, ExpectedTensor{*compute, expand(name, dtype, *compute)});
  }

  [[nodiscard]] float scale_of(const std::string& name, std::size_t element) const {
    std::string scale_name = name + "_scale";
    std::size_t index = 0;
    if (name.ends_with("up.weight")) {
      scale_name += "_inv";
      index = element / 150 / 128 * 2 + element % 150 / 128;
    } else if (name.ends_with("down.weight")) {
      index = element / 90;
    }
    if (name.ends_with("gate.weight")) {
      index = element / 70 * 3 + element % 70 / 32;
      const auto code = static_cast<unsigned char>(builder_.tensors().at(scale_name)[index]);
      return std::ldexp(1.0F, code - 127);
    }
    float scale = 0;
    std::memcpy(&scale, builder_.tensors().at(scale_name).data() + 4 * index, sizeof scale);
    return scale;
  }

  [[nodiscard]] std::string expand(const std::string& name, Dtype from, Dtype to) const {
    const std::string& bytes = builder_.tensors().at(name);
    const std::size_t from_bytes = format::dtype_bits(from) / 8;
    const std::size_t to_bytes = format::dtype_bits(to) / 8;
    std::string out(bytes.size() / from_bytes * to_bytes, '\0');
    for (std::size_t at = 0; at < bytes.size() / from_bytes; ++at) {
      std::uint32_t code = 0;
      std::memcpy(&code, bytes.data() + at * from_bytes, from_bytes);
      double value = slow_decode(*slow_format(from), code);
      if (from == Dtype::kF8E4M3) {
        value = static_cast<double>(
            static_cast<float>(value * static_cast<double>(scale_of(name, at))));
      }
      const std::uint32_t result = slow_encode(*slow_format(to), value);
      std::memcpy(out.data() + at * to_bytes, &result, to_bytes);
    }
    return out;
  }

  Options options_;
  TempDir dir_;
  SafetensorsBuilder builder_;
  std::map<std::string, Dtype> dtypes_;
  std::uint64_t seed_ = 1000;
  format::Manifest manifest_;
};

}  // namespace trash_panda::testing
