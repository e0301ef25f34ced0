#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trash_panda/base/error.h"
#include "trash_panda/format/checkpoint.h"
#include "trash_panda/format/tensor_record.h"
#include "trash_panda/format/tier.h"
#include "trash_panda/format/weights.h"

namespace trash_panda::format {

/// Value of the manifest's member "format".
inline constexpr std::string_view kPackFormat = "trash-panda/pack";
/// Version of the pack format that this code writes. Readers refuse any other.
inline constexpr std::uint32_t kPackVersion = 1;

/// Name of the file whose presence makes a folder a pack; written last.
inline constexpr std::string_view kManifestName = "manifest.json";
inline constexpr std::string_view kPackPlanName = "plan.toml";

/// Names of the U8 tensors that cover padding in the shards begin with this: safetensors allows no
/// holes. They are not listed in the manifest, and no tensor of a model may be called so.
inline constexpr std::string_view kPadPrefix = "__pad__.";

/// Names of the U8 tensors that stand for coded tensors in the shards begin with this, so that no
/// other program takes a code for weights. No tensor of a model may be called so.
inline constexpr std::string_view kCodedPrefix = "__coded__.";

/// Codec of extents that are stored as they are.
inline constexpr std::string_view kCodecRaw = "raw";
/// Codec of extents some of whose tensors are stored in the exponent code. @see exponent_code.h
inline constexpr std::string_view kCodecExponent = "exponent";
/// Codec of extents some of whose tensors are stored in the zstd code, and others perhaps in the
/// exponent code. @see zstd_code.h
inline constexpr std::string_view kCodecZstd = "zstd";

/// How the bytes of one tensor are stored.
enum class TensorCoding : std::uint8_t {
  kRaw,       ///< As they are.
  kExponent,  ///< In the exponent code.
  kZstd,      ///< In the zstd code.
};

/// "raw", "exponent", "zstd".
[[nodiscard]] std::string_view tensor_coding_name(TensorCoding coding);
[[nodiscard]] std::optional<TensorCoding> parse_tensor_coding(std::string_view name);

/// How the scale of a packed weight is laid out; the scale itself is the tensor
/// `<name>_scale` of the same extent.
struct PackedScale {
  Granularity granularity;
  Shape block_shape;        ///< Empty unless Granularity::kBlock.
  std::string source_name;  ///< Name of the stored scale in the source checkpoint.

  bool operator==(const PackedScale&) const = default;
};

/// How the source stores a tensor, as far as that is not as the pack says it.
struct PackedSource {
  std::uint32_t file_index = 0;     ///< Into Manifest::source_files.
  std::string name = {};            ///< Empty: the same; of a scale, PackedScale::source_name.
  std::optional<Dtype> dtype = {};  ///< Nothing: the same.
  std::optional<Shape> shape = {};  ///< Nothing: the same.
  /// Values were put into another order or width than the source has, so that its bytes can't be
  /// made from them again. Scales only.
  bool is_normalized = false;
  /// Values were rounded to the tensor's dtype. Weights only.
  bool is_rounded = false;

  bool operator==(const PackedSource&) const = default;
};

/// One tensor of an extent.
struct PackedTensor {
  std::string name;
  Dtype dtype;
  Shape shape;
  std::uint64_t offset_bytes;        ///< From the start of the raw extent; of kTensorAlignment.
  std::uint64_t size_bytes;          ///< Raw.
  std::optional<PackedScale> scale;  ///< Of a weight that has one.
  bool is_scale = false;             ///< This tensor is the scale of another one.
  PackedSource source = {};
  // As it lies in the shard; the same as above in extents of codec "raw".
  TensorCoding coding = TensorCoding::kRaw;
  std::uint64_t stored_offset_bytes = 0;  ///< From the start of the extent; of kTensorAlignment.
  std::uint64_t stored_bytes = 0;

  bool operator==(const PackedTensor&) const = default;

  /// F32 of the source that is BF16 here, without loss.
  [[nodiscard]] bool is_narrowed() const {
    return !is_scale && dtype == Dtype::kBf16 && source.dtype == Dtype::kF32 && !source.is_rounded;
  }
  /// The dtype that whoever asks for none gets: that of the source, where it was narrowed.
  [[nodiscard]] Dtype value_dtype() const { return is_narrowed() ? Dtype::kF32 : dtype; }
};

/// Tensors start on multiples of this within an extent, raw and stored: one cache line pair, and
/// what vector loads and device copies like.
inline constexpr std::uint64_t kTensorAlignment = 256;

/// One block's bytes (or a group of base tensors), contiguous and page-aligned in a shard.
struct PackedExtent {
  std::string name;  ///< Of the block ("model.layers.0"), or of the base extent.
  Tier tier;
  std::uint32_t shard_index;          ///< Into Manifest::shards.
  std::uint64_t offset_bytes;         ///< From the start of the shard; a multiple of the page size.
  std::uint64_t stored_bytes;         ///< A multiple of the page size.
  std::uint64_t raw_bytes;            ///< When decoded; equals stored_bytes for codec "raw".
  std::string codec;                  ///< "raw", "exponent" or "zstd".
  std::string checksum;               ///< xxh3-128 of the stored bytes, hex.
  std::vector<PackedTensor> tensors;  ///< By offset.

  bool operator==(const PackedExtent&) const = default;
};

/// One shard file: a valid safetensors file.
struct PackedShard {
  std::string name;
  std::uint64_t size_bytes;
  std::uint64_t header_bytes;   ///< Length field, header and its padding: where the data start.
  std::string header_checksum;  ///< xxh3-128 of the first header_bytes, hex.
};

/// One file of the source checkpoint.
struct SourceFile {
  std::string name;
  std::uint64_t size_bytes;
  /// Its `__metadata__`; nothing where it has none.
  std::optional<std::map<std::string, std::string>> metadata = {};
};

/// All that a pack's manifest says. Plain data.
struct Manifest {
  std::string generator;  ///< "trash-panda 0.1.0".
  std::string source_path;
  std::string source_fingerprint;
  std::vector<SourceFile> source_files;
  /// Nothing where the source has no index, or the pack was made before packs said so.
  std::optional<CheckpointIndex> source_index = {};
  std::uint64_t page_bytes;
  std::vector<PackedShard> shards;
  std::vector<PackedExtent> extents;  ///< Base extents first, then blocks in execution order.
  std::map<std::string, std::string> aliases;  ///< Tied name → name of the stored tensor.
  /// Aliases that the source stores as tensors of their own: name → file, into source_files.
  std::map<std::string, std::uint32_t> stored_aliases;
  std::vector<std::string> left_out;  ///< Tensors of the source that are no parameters.
  std::string plan_checksum;          ///< xxh3-128 of plan.toml, hex.
};

/// Writes the manifest as JSON, deterministically: equal manifests give equal bytes.
[[nodiscard]] std::string write_manifest(const Manifest& manifest);

/// Reads and validates a manifest: its own checksum, version, known codecs and dtypes, sizes that
/// agree with shapes, tensors inside their extents, extents that cover their shards without hole or
/// overlap, scales that fit their weights, unique names, shard names without a path.
///
/// @param where  Name of the file, for messages.
/// @retval kCorrupt      The manifest is damaged; the message says where.
/// @retval kUnsupported  Another version, or a codec, dtype or feature that is not known here.
/// @see docs/pack_format.md
Result<Manifest> parse_manifest(std::string_view text, std::string_view where);

/// Reads `<pack>/manifest.json`, whatever there is of the shards.
/// @retval kMissing  `pack` is no folder, or holds no manifest.
Result<Manifest> read_manifest_only(const std::filesystem::path& pack);

/// Reads `<pack>/manifest.json` and checks that every shard is there with its size.
/// @retval kMissing  `pack` is no folder, or holds no manifest.
Result<Manifest> read_manifest(const std::filesystem::path& pack);

}  // namespace trash_panda::format
