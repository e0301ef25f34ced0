#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include <fmt/format.h>

#include "trash_panda/base/file.h"
#include "trash_panda/format/pack_verify.h"

#include "source_tensors.h"
#include "tensor_pieces.h"
#include "tensor_stream.h"
#include "weight_rounding.h"

namespace trash_panda::format {

namespace {

/// Whether the source stores a weight in another dtype.
bool is_converted(const PackedTensor& tensor) {
  return tensor.is_narrowed() || tensor.source.is_rounded;
}

/// Names of an extent's scales that were made with their weights: they are compared with them.
std::unordered_set<std::string> made_scales(const PackedExtent& extent) {
  std::unordered_set<std::string> names;
  for (const PackedTensor& tensor : extent.tensors) {
    if (tensor.scale && tensor.source.is_rounded) {
      names.insert(tensor.name + "_scale");
    }
  }
  return names;
}

/// Reads the source's side, by the names that tensors have in packs.
class SourceTensors {
 public:
  SourceTensors(const Checkpoint& checkpoint, const WeightTable& weights)
      : checkpoint_(checkpoint), table_(weights) {
    for (const Weight& weight : weights.weights) {
      add(weight.name, weight);
    }
    for (const auto& [alias, target] : weights.aliases) {
      add(alias, *weights_.at(target));
    }
  }

  /// Whether a tensor of a pack may have the same values as what the source calls so.
  [[nodiscard]] bool has(const PackedTensor& tensor, const std::string& name) const {
    const Weight* weight = find(tensor, name);
    if (weight == nullptr) {
      return false;
    }
    if (tensor.is_scale) {
      return weight->scale->shape == tensor.shape && weight->scale->dtype == tensor.dtype;
    }
    const TensorRecord& record = checkpoint_.tensors()[weight->tensor_index];
    const bool has_dtype = is_converted(tensor)
                               ? record.dtype == tensor.source.dtype.value_or(tensor.dtype)
                               : weight->dtype == tensor.dtype;
    const bool has_scale = weight->scale.has_value();
    return has_dtype && record.shape == tensor.shape &&
           has_scale == (tensor.scale && !tensor.source.is_rounded);
  }

  /// Whether two names of a pack are one tensor of the source.
  [[nodiscard]] bool are_tied(const std::string& first, const std::string& second) const {
    const auto one = weights_.find(first);
    const auto other = weights_.find(second);
    return one != weights_.end() && other != weights_.end() && one->second == other->second;
  }

  [[nodiscard]] bool has_weight(const std::string& name) const { return weights_.contains(name); }

  [[nodiscard]] Dtype dtype_of(const std::string& name) const { return weights_.at(name)->dtype; }

  /// @param tensor  has() is true of it and `name`.
  /// @param target  Of a converted weight, elements as the source has them.
  Result<void> read(const PackedTensor& tensor, const std::string& name, std::uint64_t offset_bytes,
                    std::span<std::byte> target) const {
    const Weight& weight = *find(tensor, name);
    return tensor.is_scale
               ? read_scale_bytes(checkpoint_, *weight.scale, offset_bytes, target)
               : checkpoint_.read_tensor_part(weight.tensor_index, offset_bytes, target);
  }

  /// Names of the source's that a pack of it would have or list as left out, and this one does not.
  [[nodiscard]] std::vector<std::string_view> missing_from(const Manifest& manifest) const {
    std::unordered_set<std::string_view> packed;
    for (const PackedExtent& extent : manifest.extents) {
      for (const PackedTensor& tensor : extent.tensors) {
        packed.insert(tensor.name);
      }
    }
    std::vector<std::string_view> missing;
    for (const auto& [name, weight] : weights_) {
      if (!packed.contains(name) && !manifest.aliases.contains(name)) {
        missing.push_back(name);
      }
    }
    const std::unordered_set<std::string_view> left_out(manifest.left_out.begin(),
                                                        manifest.left_out.end());
    for (const std::size_t ignored : table_.ignored) {
      const std::string_view name = checkpoint_.tensors()[ignored].name;
      if (!left_out.contains(name)) {
        missing.push_back(name);
      }
    }
    std::ranges::sort(missing);
    return missing;
  }

 private:
  void add(std::string_view name, const Weight& weight) {
    weights_.emplace(name, &weight);
    if (weight.scale) {
      scales_.emplace(std::string(name) + "_scale", &weight);
    }
  }

  /// @return Null where the source has no such tensor.
  [[nodiscard]] const Weight* find(const PackedTensor& tensor, const std::string& name) const {
    const auto& places = tensor.is_scale ? scales_ : weights_;
    const auto found = places.find(name);
    return found == places.end() ? nullptr : found->second;
  }

  const Checkpoint& checkpoint_;
  const WeightTable& table_;
  // Tied names too.
  std::unordered_map<std::string, const Weight*> weights_;  ///< By name.
  std::unordered_map<std::string, const Weight*> scales_;   ///< By the scale's name.
};

/// A tensor of a pack, and the name under which the source has what it must equal.
struct Pair {
  TensorPlace place;
  std::string source_name;
};

/// All that a pack and its source have to compare.
struct Pairing {
  std::vector<Pair> pairs;
  std::vector<Pair> unmatched;             ///< Those the source has not, or not as in the pack.
  std::vector<std::string_view> unpacked;  ///< Names of the source that the pack has not.
};

/// Pairs tensors, and the names that are tied to them, with the source's.
class Pairer {
 public:
  Pairer(const Manifest& manifest, const SourceTensors& source)
      : manifest_(manifest), source_(source) {
    for (const auto& [alias, target] : manifest.aliases) {
      aliases_of_[target].push_back(alias);
    }
  }

  [[nodiscard]] Pairing pair() {
    for (std::size_t e = 0; e < manifest_.extents.size(); ++e) {
      const PackedExtent& extent = manifest_.extents[e];
      const std::unordered_set<std::string> made = made_scales(extent);
      for (std::size_t t = 0; t < extent.tensors.size(); ++t) {
        const PackedTensor& tensor = extent.tensors[t];
        const TensorPlace place = {.extent_index = e, .tensor_index = t};
        if (!made.contains(tensor.name)) {
          add(place, tensor.name);
        }
        add_aliases(place, tensor);
      }
    }
    pairing_.unpacked = source_.missing_from(manifest_);
    return std::move(pairing_);
  }

 private:
  void add(const TensorPlace& place, const std::string& source_name) {
    const PackedTensor& tensor = manifest_.extents[place.extent_index].tensors[place.tensor_index];
    auto& pairs = source_.has(tensor, source_name) ? pairing_.pairs : pairing_.unmatched;
    pairs.push_back({.place = place, .source_name = source_name});
  }

  /// What the source stores a second time is compared a second time.
  void add_aliases(const TensorPlace& place, const PackedTensor& tensor) {
    const auto found = aliases_of_.find(tensor.name);
    if (found == aliases_of_.end()) {
      return;
    }
    const PackedExtent& extent = manifest_.extents[place.extent_index];
    for (const std::string& alias : found->second) {
      const bool must_be_there = manifest_.stored_aliases.contains(alias);
      if ((!must_be_there && !source_.has_weight(alias)) || source_.are_tied(alias, tensor.name)) {
        continue;
      }
      add(place, alias);
      if (tensor.scale && !tensor.source.is_rounded) {
        add({.extent_index = place.extent_index,
             .tensor_index = scale_index(extent, place.tensor_index)},
            alias + "_scale");
      }
    }
  }

  const Manifest& manifest_;
  const SourceTensors& source_;
  std::unordered_map<std::string_view, std::vector<std::string>> aliases_of_;
  Pairing pairing_;
};

class SourceComparison {
 public:
  SourceComparison(const std::filesystem::path& pack, const Manifest& manifest,
                   const SourceTensors& source, const VerifyOptions& options)
      : pack_(pack), manifest_(manifest), source_(source), options_(options) {}

  Result<void> run(const Pairing& pairing) {
    for (const Pair& pair : pairing.unmatched) {
      add_mismatch(pair, "is not in the source, or of another shape or dtype");
    }
    for (const std::string_view name : pairing.unpacked) {
      report_.mismatches.push_back(
          fmt::format("\"{}\" of the source is not in the pack", printable(name)));
    }
    std::vector<TensorPlace> places;
    places.reserve(pairing.pairs.size());
    for (const Pair& pair : pairing.pairs) {
      places.push_back(pair.place);
      progress_.total_bytes += tensor_at(pair.place).size_bytes;
    }
    return for_each_piece(
        pack_, manifest_, places, options_.stop,
        [&](const TensorPiece& piece, const Result<std::span<const std::byte>>& bytes) {
          return compare(pairing.pairs[piece.place_index], piece, bytes);
        });
  }

  [[nodiscard]] VerifyReport take_report() {
    report_.verified_bytes = progress_.done_bytes;
    report_.extent_count = manifest_.extents.size();
    return std::move(report_);
  }

 private:
  [[nodiscard]] const PackedTensor& tensor_at(const TensorPlace& place) const {
    return manifest_.extents[place.extent_index].tensors[place.tensor_index];
  }

  void add_mismatch(const Pair& pair, std::string_view how) {
    const PackedExtent& extent = manifest_.extents[pair.place.extent_index];
    report_.mismatches.push_back(fmt::format(
        "{}: extent \"{}\": \"{}\" {}", printable(manifest_.shards[extent.shard_index].name),
        printable(extent.name), printable(pair.source_name), how));
  }

  /// Compares a piece; what can't be decoded differs.
  Result<void> compare(const Pair& pair, const TensorPiece& piece,
                       const Result<std::span<const std::byte>>& bytes) {
    Result<void> compared =
        bytes ? compare_bytes(pair, piece, *bytes) : std::unexpected(bytes.error());
    if (!compared && compared.error().code() == ErrorCode::kCorrupt) {
      add_mismatch(pair, fmt::format("can't be decoded: {}", compared.error().message()));
      wanted_.reset();
      compared = {};
    }
    if (bytes) {
      progress_.done_bytes += bytes->size();
    }
    if (options_.progress) {
      options_.progress(progress_);
    }
    return compared;
  }

  Result<void> compare_bytes(const Pair& pair, const TensorPiece& piece,
                             std::span<const std::byte> bytes) {
    if (piece.offset_bytes == 0) {
      wanted_.reset();
      is_equal_ = true;
      TP_ASSIGN_OR_RETURN(Wanted wanted, want(pair));
      wanted_.emplace(std::move(wanted));
    }
    if (!wanted_) {
      return {};  // Told already.
    }
    TP_ASSIGN_OR_RETURN(const bool is_piece_equal, wanted_->is_equal(piece.offset_bytes, bytes));
    is_equal_ = is_equal_ && is_piece_equal;
    if (piece.is_last && !(is_equal_ && wanted_->has_right_scale())) {
      add_mismatch(pair, "differs from the source");
    }
    return {};
  }

  /// What a tensor's bytes have to be.
  class Wanted {
   public:
    Wanted(const SourceTensors& source, const PackedTensor& tensor, const std::string& name,
           std::optional<WeightConversion> conversion)
        : source_(source), tensor_(tensor), name_(name), conversion_(conversion) {}

    Result<bool> is_equal(std::uint64_t offset_bytes, std::span<const std::byte> bytes) {
      wanted_.resize(bytes.size());
      if (!conversion_) {
        TP_RETURN_IF_ERROR(source_.read(tensor_, name_, offset_bytes, wanted_));
        return std::memcmp(wanted_.data(), bytes.data(), bytes.size()) == 0;
      }
      const Dtype dtype = source_.dtype_of(name_);
      const std::uint64_t source_width = dtype_bits(dtype) / 8;
      const std::uint64_t width = dtype_bits(tensor_.dtype) / 8;
      unconverted_.resize(bytes.size() / width * source_width);
      TP_RETURN_IF_ERROR(
          source_.read(tensor_, name_, offset_bytes / width * source_width, unconverted_));
      if (conversion_->is_exact && !are_bf16(unconverted_)) {
        return false;
      }
      if (conversion_->scale) {
        largest_ = std::max(largest_, largest_magnitude(dtype, unconverted_));
      }
      TP_RETURN_IF_ERROR(convert_weight(*conversion_, dtype, unconverted_, wanted_));
      return std::memcmp(wanted_.data(), bytes.data(), bytes.size()) == 0;
    }

    /// Once all of the weight was compared.
    [[nodiscard]] bool has_right_scale() const {
      return !conversion_ || !conversion_->scale || *conversion_->scale == fp8_scale(largest_);
    }

   private:
    const SourceTensors& source_;
    const PackedTensor& tensor_;
    const std::string& name_;  ///< In the source.
    std::optional<WeightConversion> conversion_;
    float largest_ = 0;
    std::vector<std::byte> unconverted_;
    std::vector<std::byte> wanted_;
  };

  Result<Wanted> want(const Pair& pair) const {
    const PackedExtent& extent = manifest_.extents[pair.place.extent_index];
    const PackedTensor& tensor = tensor_at(pair.place);
    if (!is_converted(tensor)) {
      return Wanted(source_, tensor, pair.source_name, std::nullopt);
    }
    WeightConversion conversion = {.dtype = tensor.dtype, .is_exact = tensor.is_narrowed()};
    if (tensor.scale) {
      const PackedTensor& scale = extent.tensors[scale_index(extent, pair.place.tensor_index)];
      TP_ASSIGN_OR_RETURN(conversion.scale, read_float(extent, scale));
    }
    return Wanted(source_, tensor, pair.source_name, conversion);
  }

  /// The only value of a scale per tensor.
  Result<float> read_float(const PackedExtent& extent, const PackedTensor& scale) const {
    TP_ASSIGN_OR_RETURN(TensorStream stream, TensorStream::open(pack_, manifest_, extent, scale));
    TP_ASSIGN_OR_RETURN(const AlignedBuffer buffer,
                        AlignedBuffer::create(TensorStream::kPieceBytes + kBulkReadSlackBytes));
    float value = 0;
    if (scale.size_bytes != sizeof(value)) {
      return std::unexpected(
          Error(ErrorCode::kCorrupt,
                fmt::format("\"{}\" is no scale of a tensor", printable(scale.name))));
    }
    TP_ASSIGN_OR_RETURN(const std::span<const std::byte> bytes,
                        stream.next(sizeof(value), buffer.span()));
    std::memcpy(&value, bytes.data(), sizeof(value));
    return value;
  }

  const std::filesystem::path& pack_;
  const Manifest& manifest_;
  const SourceTensors& source_;
  const VerifyOptions& options_;
  Progress progress_;
  VerifyReport report_;
  // Of the tensor that is being compared.
  std::optional<Wanted> wanted_;
  bool is_equal_ = true;
};

/// A checkpoint of other files may still have the same tensors, such as one that was unpacked.
Result<void> check_has_same_tensors(const Manifest& manifest, const Pairing& pairing,
                                    const Checkpoint& checkpoint) {
  std::string difference;
  if (!pairing.unmatched.empty()) {
    const Pair& pair = pairing.unmatched.front();
    const PackedTensor& tensor =
        manifest.extents[pair.place.extent_index].tensors[pair.place.tensor_index];
    difference = fmt::format("has no \"{}\" that is {} {}", printable(pair.source_name),
                             dtype_name(tensor.source.dtype.value_or(tensor.dtype)),
                             to_string(tensor.shape));
  } else if (!pairing.unpacked.empty()) {
    difference =
        fmt::format("has a \"{}\", the pack has none", printable(pairing.unpacked.front()));
  } else {
    return {};
  }
  return std::unexpected(
      Error(ErrorCode::kStale, fmt::format("{} is another checkpoint than the pack was made from: "
                                           "it {}",
                                           printable(checkpoint.path()), difference))
          .with_hint(fmt::format("the pack's source was {}",
                                 printable(std::string_view(manifest.source_path)))));
}

}  // namespace

Result<VerifyReport> compare_with_source(const std::filesystem::path& pack,
                                         const Checkpoint& checkpoint, const WeightTable& weights,
                                         const VerifyOptions& options) {
  TP_ASSIGN_OR_RETURN(const Manifest manifest, read_manifest(pack));
  const SourceTensors source(checkpoint, weights);
  const Pairing pairing = Pairer(manifest, source).pair();
  if (manifest.source_fingerprint != checkpoint.fingerprint()) {
    TP_RETURN_IF_ERROR(check_has_same_tensors(manifest, pairing, checkpoint));
  }
  SourceComparison comparison(pack, manifest, source, options);
  TP_RETURN_IF_ERROR(comparison.run(pairing));
  return comparison.take_report();
}

}  // namespace trash_panda::format
