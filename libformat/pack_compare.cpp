#include <algorithm>
#include <cstring>
#include <string_view>
#include <unordered_map>

#include <fmt/format.h>

#include "trash_panda/base/file.h"
#include "trash_panda/format/pack_verify.h"

#include "chunk_pipeline.h"
#include "tensor_stream.h"

namespace trash_panda::format {

namespace {

constexpr std::size_t kCompareBufferCount = 3;

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
    const auto& names = tensor.is_scale ? scales_ : weights_;
    const auto found = names.find(tensor.name);
    return found != names.end() &&
           (tensor.is_scale ? scale_size_bytes(*found->second->scale)
                            : checkpoint_.tensors()[found->second->tensor_index].size_bytes) ==
               tensor.size_bytes;
  }

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

  Result<void> compare_tensor(const PackedExtent& extent, const PackedTensor& tensor) {
    const auto differs = [&](std::string_view how) {
      report_.mismatches.push_back(fmt::format(
          "{}: extent \"{}\": \"{}\" {}", printable(manifest_.shards[extent.shard_index].name),
          printable(extent.name), printable(tensor.name), how));
    };
    if (!source_.has(tensor)) {
      differs("is not in the source, or of another size");
      return {};
    }
    bool is_equal = true;
    Result<void> compared = compare_bytes(extent, tensor, is_equal);
    if (!compared && compared.error().code() == ErrorCode::kCorrupt) {
      differs(fmt::format("can't be decoded: {}", compared.error().message()));
      return {};
    }
    if (compared && !is_equal) {
      differs("differs from the source");
    }
    return compared;
  }

  [[nodiscard]] VerifyReport take_report() {
    report_.verified_bytes = progress_.done_bytes;
    report_.extent_count = manifest_.extents.size();
    return std::move(report_);
  }

 private:
  Result<void> compare_bytes(const PackedExtent& extent, const PackedTensor& tensor,
                             bool& is_equal) {
    TP_ASSIGN_OR_RETURN(TensorStream stream, TensorStream::open(pack_, manifest_, extent, tensor));
    const std::uint64_t piece_count =
        (tensor.size_bytes + TensorStream::kPieceBytes - 1) / TensorStream::kPieceBytes;
    const auto size_of_piece = [&](std::size_t i) {
      return std::min(TensorStream::kPieceBytes, tensor.size_bytes - i * TensorStream::kPieceBytes);
    };
    const auto fill = [&](std::size_t i, std::span<std::byte> buffer) {
      return stream.next(size_of_piece(i), buffer);
    };
    std::vector<std::byte> wanted;
    const auto compare = [&](std::size_t i, std::span<const std::byte> bytes) -> Result<void> {
      wanted.resize(bytes.size());
      TP_RETURN_IF_ERROR(source_.read(tensor, i * TensorStream::kPieceBytes, wanted));
      is_equal = is_equal && std::memcmp(wanted.data(), bytes.data(), bytes.size()) == 0;
      progress_.done_bytes += bytes.size();
      if (options_.progress) {
        options_.progress(progress_);
      }
      return {};
    };
    return run_chunk_pipeline(piece_count,
                              {.buffer_bytes = TensorStream::kPieceBytes + kBulkReadSlackBytes,
                               .buffer_count = kCompareBufferCount,
                               .thread_count = 1,
                               .stop = options_.stop},
                              fill, {compare});
  }

  const std::filesystem::path& pack_;
  const Manifest& manifest_;
  const SourceTensors& source_;
  const VerifyOptions& options_;
  Progress progress_;
  VerifyReport report_;
};

/// A checkpoint of other files may still have the same tensors, such as one that was unpacked.
Result<void> check_tensors_are_there(const Manifest& manifest, const SourceTensors& source,
                                     const Checkpoint& checkpoint) {
  for (const PackedExtent& extent : manifest.extents) {
    for (const PackedTensor& tensor : extent.tensors) {
      if (!source.has(tensor)) {
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
  for (const PackedExtent& extent : manifest.extents) {
    for (const PackedTensor& tensor : extent.tensors) {
      TP_RETURN_IF_ERROR(comparison.compare_tensor(extent, tensor));
    }
  }
  return comparison.take_report();
}

}  // namespace trash_panda::format
