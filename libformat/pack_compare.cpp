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
      : checkpoint_(checkpoint) {
    for (const Weight& weight : weights.weights) {
      weights_.emplace(weight.name, &weight);
      if (weight.scale) {
        scales_.emplace(weight.scale_name(), &weight);
      }
    }
  }

  [[nodiscard]] bool has(const PackedTensor& tensor) const {
    if (tensor.is_scale) {
      const auto scaled = scales_.find(tensor.name);
      return scaled != scales_.end() &&
             scale_size_bytes(*scaled->second->scale) == tensor.size_bytes;
    }
    const auto found = weights_.find(tensor.name);
    // Elements of a converted weight have another width than in the pack.
    return found != weights_.end() &&
           checkpoint_.tensors()[found->second->tensor_index].size_bytes *
                   dtype_bits(tensor.dtype) ==
               tensor.size_bytes * dtype_bits(found->second->dtype) &&
           (is_converted(tensor) || found->second->dtype == tensor.dtype);
  }

  [[nodiscard]] Dtype dtype_of(const PackedTensor& weight) const {
    return weights_.at(weight.name)->dtype;
  }

  /// @param target  Of a converted weight, elements as the source has them.
  Result<void> read(const PackedTensor& tensor, std::uint64_t offset_bytes,
                    std::span<std::byte> target) const {
    if (tensor.is_scale) {
      return read_scale_bytes(checkpoint_, *scales_.at(tensor.name)->scale, offset_bytes, target);
    }
    return checkpoint_.read_tensor_part(weights_.at(tensor.name)->tensor_index, offset_bytes,
                                        target);
  }

 private:
  const Checkpoint& checkpoint_;
  std::unordered_map<std::string, const Weight*> weights_;  ///< By name.
  std::unordered_map<std::string, const Weight*> scales_;   ///< By the scale's name.
};

class SourceComparison {
 public:
  SourceComparison(const std::filesystem::path& pack, const Manifest& manifest,
                   const SourceTensors& source, const VerifyOptions& options)
      : pack_(pack), manifest_(manifest), source_(source), options_(options) {
    for (const PackedExtent& extent : manifest.extents) {
      for (const PackedTensor& tensor : extent.tensors) {
        progress_.total_bytes += tensor.size_bytes;
      }
    }
  }

  Result<void> run() {
    std::vector<TensorPlace> places;
    for (std::size_t e = 0; e < manifest_.extents.size(); ++e) {
      const std::vector<PackedTensor>& tensors = manifest_.extents[e].tensors;
      const std::unordered_set<std::string> made = made_scales(manifest_.extents[e]);
      for (std::size_t t = 0; t < tensors.size(); ++t) {
        if (made.contains(tensors[t].name)) {
          progress_.done_bytes += tensors[t].size_bytes;
        } else if (source_.has(tensors[t])) {
          places.push_back({.extent_index = e, .tensor_index = t});
        } else {
          add_mismatch({.extent_index = e, .tensor_index = t},
                       "is not in the source, or of another size");
        }
      }
    }
    return for_each_piece(
        pack_, manifest_, places, options_.stop,
        [&](const TensorPiece& piece, const Result<std::span<const std::byte>>& bytes) {
          return compare(places[piece.place_index], piece, bytes);
        });
  }

  [[nodiscard]] VerifyReport take_report() {
    report_.verified_bytes = progress_.done_bytes;
    report_.extent_count = manifest_.extents.size();
    return std::move(report_);
  }

 private:
  void add_mismatch(const TensorPlace& place, std::string_view how) {
    const PackedExtent& extent = manifest_.extents[place.extent_index];
    report_.mismatches.push_back(fmt::format(
        "{}: extent \"{}\": \"{}\" {}", printable(manifest_.shards[extent.shard_index].name),
        printable(extent.name), printable(extent.tensors[place.tensor_index].name), how));
  }

  /// Compares a piece; what can't be decoded differs.
  Result<void> compare(const TensorPlace& place, const TensorPiece& piece,
                       const Result<std::span<const std::byte>>& bytes) {
    Result<void> compared =
        bytes ? compare_bytes(place, piece, *bytes) : std::unexpected(bytes.error());
    if (!compared && compared.error().code() == ErrorCode::kCorrupt) {
      add_mismatch(place, fmt::format("can't be decoded: {}", compared.error().message()));
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

  Result<void> compare_bytes(const TensorPlace& place, const TensorPiece& piece,
                             std::span<const std::byte> bytes) {
    const PackedExtent& extent = manifest_.extents[place.extent_index];
    if (piece.offset_bytes == 0) {
      wanted_.reset();
      is_equal_ = true;
      TP_ASSIGN_OR_RETURN(Wanted wanted, want(extent, place.tensor_index));
      wanted_.emplace(std::move(wanted));
    }
    if (!wanted_) {
      return {};  // Told already.
    }
    TP_ASSIGN_OR_RETURN(const bool is_piece_equal, wanted_->is_equal(piece.offset_bytes, bytes));
    is_equal_ = is_equal_ && is_piece_equal;
    if (piece.is_last && !(is_equal_ && wanted_->has_right_scale())) {
      add_mismatch(place, "differs from the source");
    }
    return {};
  }

  /// What a tensor's bytes have to be.
  class Wanted {
   public:
    Wanted(const SourceTensors& source, const PackedTensor& tensor,
           std::optional<WeightConversion> conversion)
        : source_(source), tensor_(tensor), conversion_(conversion) {}

    Result<bool> is_equal(std::uint64_t offset_bytes, std::span<const std::byte> bytes) {
      wanted_.resize(bytes.size());
      if (!conversion_) {
        TP_RETURN_IF_ERROR(source_.read(tensor_, offset_bytes, wanted_));
        return std::memcmp(wanted_.data(), bytes.data(), bytes.size()) == 0;
      }
      const Dtype dtype = source_.dtype_of(tensor_);
      const std::uint64_t source_width = dtype_bits(dtype) / 8;
      const std::uint64_t width = dtype_bits(tensor_.dtype) / 8;
      unconverted_.resize(bytes.size() / width * source_width);
      TP_RETURN_IF_ERROR(source_.read(tensor_, offset_bytes / width * source_width, unconverted_));
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
    std::optional<WeightConversion> conversion_;
    float largest_ = 0;
    std::vector<std::byte> unconverted_;
    std::vector<std::byte> wanted_;
  };

  Result<Wanted> want(const PackedExtent& extent, std::size_t tensor_index) const {
    const PackedTensor& tensor = extent.tensors[tensor_index];
    if (!is_converted(tensor)) {
      return Wanted(source_, tensor, std::nullopt);
    }
    WeightConversion conversion = {.dtype = tensor.dtype, .is_exact = tensor.is_narrowed()};
    if (tensor.scale) {
      const PackedTensor& scale = extent.tensors[scale_index(extent, tensor_index)];
      TP_ASSIGN_OR_RETURN(conversion.scale, read_float(extent, scale));
    }
    return Wanted(source_, tensor, conversion);
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
Result<void> check_tensors_are_there(const Manifest& manifest, const SourceTensors& source,
                                     const Checkpoint& checkpoint) {
  for (const PackedExtent& extent : manifest.extents) {
    const std::unordered_set<std::string> made = made_scales(extent);
    for (const PackedTensor& tensor : extent.tensors) {
      if (!made.contains(tensor.name) && !source.has(tensor)) {
        return std::unexpected(
            Error(ErrorCode::kStale,
                  fmt::format("{} is another checkpoint than the pack was made from: it has no "
                              "\"{}\" of {} bytes",
                              printable(checkpoint.path()), printable(tensor.name),
                              tensor.size_bytes))
                .with_hint(fmt::format("the pack's source was {}",
                                       printable(std::string_view(manifest.source_path)))));
      }
    }
  }
  return {};
}

}  // namespace

Result<VerifyReport> compare_with_source(const std::filesystem::path& pack,
                                         const Checkpoint& checkpoint, const WeightTable& weights,
                                         const VerifyOptions& options) {
  TP_ASSIGN_OR_RETURN(const Manifest manifest, read_manifest(pack));
  const SourceTensors source(checkpoint, weights);
  if (manifest.source_fingerprint != checkpoint.fingerprint()) {
    TP_RETURN_IF_ERROR(check_tensors_are_there(manifest, source, checkpoint));
  }
  SourceComparison comparison(pack, manifest, source, options);
  TP_RETURN_IF_ERROR(comparison.run());
  return comparison.take_report();
}

}  // namespace trash_panda::format
