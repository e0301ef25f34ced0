#include "trash_panda/format/weight_scan.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

#include "chunk_pipeline.h"
#include "weight_rounding.h"

namespace trash_panda::format {

namespace {

constexpr std::uint64_t kPieceBytes = 4'194'304;
constexpr std::size_t kBufferCount = 4;
constexpr unsigned kThreadCount = 3;
/// What is almost never left of F32 that are no BF16 after so many of them is doubt.
constexpr std::uint64_t kSampleBytes = 65'536;
/// As for codes: what is smaller is biases and norms.
constexpr std::uint64_t kNarrowedBytesMin = 32'768;
constexpr std::uint64_t kMatrixElementsMin = 4'096;

bool is_large_matrix(const Weight& weight, const TensorRecord& record) {
  const std::uint64_t elements = record.size_bytes * 8 / dtype_bits(weight.dtype);
  return record.shape.size() == 2 && elements >= kMatrixElementsMin &&
         (weight.name == "weight" || weight.name.ends_with(".weight"));
}

bool can_round(Dtype from, Dtype to) {
  switch (to) {
    case Dtype::kBf16:
      return from == Dtype::kF32 || from == Dtype::kF16;
    case Dtype::kF16:
      return from == Dtype::kF32;
    default:
      return from == Dtype::kF32 || from == Dtype::kF16 || from == Dtype::kBf16;
  }
}

class WeightScanner {
 public:
  WeightScanner(const Checkpoint& checkpoint, const WeightTable& weights,
                const ConversionRequest& request)
      : checkpoint_(checkpoint), weights_(weights), request_(request) {}

  Result<ConversionChoice> run() {
    for (const Weight& weight : weights_.weights) {
      progress_.total_bytes +=
          may_be_narrow(weight) || is_rounded(weight) ? record_of(weight).size_bytes : 0;
    }
    for (std::size_t i = 0; i < weights_.weights.size(); ++i) {
      TP_RETURN_IF_ERROR(look_at(i));
    }
    return std::move(choice_);
  }

 private:
  [[nodiscard]] const TensorRecord& record_of(const Weight& weight) const {
    return checkpoint_.tensors()[weight.tensor_index];
  }
  [[nodiscard]] bool is_rounded(const Weight& weight) const {
    return request_.rounded_to && !weight.scale && can_round(weight.dtype, *request_.rounded_to) &&
           is_large_matrix(weight, record_of(weight));
  }
  [[nodiscard]] bool may_be_narrow(const Weight& weight) const {
    // A matrix that becomes fp8 gets smaller than that.
    return request_.narrows && !weight.scale && weight.dtype == Dtype::kF32 &&
           record_of(weight).size_bytes >= kNarrowedBytesMin &&
           !(is_rounded(weight) && request_.rounded_to == Dtype::kF8E4M3);
  }

  Result<void> look_at(std::size_t weight_index) {
    const Weight& weight = weights_.weights[weight_index];
    if (may_be_narrow(weight)) {
      TP_ASSIGN_OR_RETURN(const bool is_narrow, is_narrow_throughout(weight_index));
      if (is_narrow) {
        choice_.conversions[weight_index] = {.dtype = Dtype::kBf16, .is_exact = true};
        return {};
      }
    }
    if (!is_rounded(weight)) {
      return {};
    }
    WeightConversion conversion = {.dtype = *request_.rounded_to};
    if (conversion.dtype == Dtype::kF8E4M3) {
      TP_ASSIGN_OR_RETURN(conversion.scale, find_fp8_scale(weight_index));
      if (!conversion.scale) {
        choice_.kept.emplace_back(weight.name);
        return {};
      }
    }
    choice_.conversions[weight_index] = conversion;
    return {};
  }

  /// What an earlier scan found for a weight; null: nothing.
  [[nodiscard]] const WeightConversion* known(std::size_t weight_index) const {
    const auto found = request_.known->find(weight_index);
    return found == request_.known->end() ? nullptr : &found->second;
  }

  Result<bool> is_narrow_throughout(std::size_t weight_index) {
    if (request_.known) {
      const WeightConversion* found = known(weight_index);
      return found != nullptr && found->is_exact;
    }
    const Weight& weight = weights_.weights[weight_index];
    const std::uint64_t size_bytes = record_of(weight).size_bytes;
    std::vector<std::byte> sample(std::min(kSampleBytes, size_bytes));
    TP_RETURN_IF_ERROR(checkpoint_.read_tensor_part(weight.tensor_index, 0, sample));
    const bool is_likely = are_bf16(sample);
    if (!is_likely || request_.depth == ScanDepth::kSample) {
      advance(size_bytes);
      return is_likely;
    }
    bool is_narrow = true;
    TP_RETURN_IF_ERROR(read(weight, [&](std::span<const std::byte> bytes) {
      is_narrow = is_narrow && are_bf16(bytes);
    }));
    return is_narrow;
  }

  /// The scale of a weight that becomes F8_E4M3; nothing where a value is not finite.
  Result<std::optional<float>> find_fp8_scale(std::size_t weight_index) {
    if (request_.known) {
      const WeightConversion* found = known(weight_index);
      return found == nullptr ? std::nullopt : found->scale;
    }
    TP_ASSIGN_OR_RETURN(const float largest, find_largest(weights_.weights[weight_index]));
    return std::isfinite(largest) ? std::optional(fp8_scale(largest)) : std::nullopt;
  }

  /// The largest magnitude of a weight's values; NaN if there is one.
  Result<float> find_largest(const Weight& weight) {
    float largest = 0;
    if (request_.depth == ScanDepth::kSample) {
      advance(record_of(weight).size_bytes);
      return largest;
    }
    TP_RETURN_IF_ERROR(read(weight, [&](std::span<const std::byte> bytes) {
      const float here = largest_magnitude(weight.dtype, bytes);
      largest = std::isnan(largest) || here <= largest ? largest : here;  // A NaN stays.
    }));
    return largest;
  }

  /// Reads all of a weight, in order.
  template <class Use>
  Result<void> read(const Weight& weight, Use&& use) {
    const std::uint64_t size_bytes = record_of(weight).size_bytes;
    const auto fill = [&](std::size_t i,
                          std::span<std::byte> buffer) -> Result<std::span<const std::byte>> {
      const std::uint64_t at = i * kPieceBytes;
      const std::span<std::byte> target = buffer.first(std::min(kPieceBytes, size_bytes - at));
      TP_RETURN_IF_ERROR(checkpoint_.read_tensor_part(weight.tensor_index, at, target));
      return target;
    };
    const auto take = [&](std::size_t, std::span<const std::byte> bytes) -> Result<void> {
      use(bytes);
      advance(bytes.size());
      return {};
    };
    return run_chunk_pipeline((size_bytes + kPieceBytes - 1) / kPieceBytes,
                              {.buffer_bytes = kPieceBytes,
                               .buffer_count = kBufferCount,
                               .thread_count = kThreadCount,
                               .stop = request_.stop},
                              fill, {take});
  }

  void advance(std::uint64_t bytes) {
    progress_.done_bytes = std::min(progress_.done_bytes + bytes, progress_.total_bytes);
    if (request_.progress) {
      request_.progress(progress_);
    }
  }

  const Checkpoint& checkpoint_;
  const WeightTable& weights_;
  const ConversionRequest& request_;
  Progress progress_;
  ConversionChoice choice_;
};

}  // namespace

Result<ConversionChoice> choose_conversions(const Checkpoint& checkpoint,
                                            const WeightTable& weights,
                                            const ConversionRequest& request) {
  TP_ASSERT(!request.rounded_to || *request.rounded_to == Dtype::kBf16 ||
            *request.rounded_to == Dtype::kF16 || *request.rounded_to == Dtype::kF8E4M3);
  return WeightScanner(checkpoint, weights, request).run();
}

}  // namespace trash_panda::format
