#include "host_device.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "trash_panda/base/printable.h"
#include "trash_panda/base/units.h"
#include "trash_panda/format/exponent_code.h"
#include "trash_panda/runtime/expand.h"

namespace trash_panda::runtime {

namespace {

std::span<std::byte> bytes_of(const format::PackedTensor& tensor, std::span<std::byte> extent) {
  return extent.subspan(tensor.stored_offset_bytes, tensor.stored_bytes);
}

/// Canonical scales start on kTensorAlignment, so they are read where they lie.
template <class T>
std::span<const T> elements_of(const format::PackedTensor& tensor, std::span<std::byte> extent) {
  const std::span<std::byte> bytes = bytes_of(tensor, extent);
  return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
}

void make_tensor(const TensorStep& step, std::span<std::byte> stored, std::span<std::byte> target) {
  const format::PackedTensor& tensor = *step.stored;
  const std::span<std::byte> payload = bytes_of(tensor, stored);
  if (step.dtype == tensor.dtype) {
    if (!payload.empty()) {
      std::memcpy(target.data(), payload.data(), payload.size());
    }
    return;
  }
  ExpandSource source = {
      .dtype = tensor.dtype, .shape = &tensor.shape, .payload = payload, .scale = {}};
  if (step.scale != nullptr) {
    if (step.scale->dtype == format::Dtype::kF8E8M0) {
      source.scale_codes = elements_of<std::uint8_t>(*step.scale, stored);
    } else {
      source.scale = elements_of<float>(*step.scale, stored);
    }
    source.granularity = tensor.scale->granularity;
    if (tensor.scale->block_shape.size() == 2) {
      source.block_rows = tensor.scale->block_shape[0];
      source.block_columns = tensor.scale->block_shape[1];
    }
  }
  expand(source, step.dtype, target);
}

/// Decodes all coded tensors of an extent, on this thread and, where there is much to do, on
/// others.
class CodedTensors {
 public:
  void add(const TensorStep& step, std::span<const std::byte> coded, std::span<std::byte> target) {
    tensors_.push_back({.step = &step, .coded = coded, .target = target, .chunk_offsets = {}});
    coded_bytes_ += coded.size();
  }

  Result<void> decode() {
    for (std::size_t t = 0; t < tensors_.size(); ++t) {
      const format::PackedTensor& stored = *tensors_[t].step->stored;
      TP_ASSIGN_OR_RETURN(
          tensors_[t].chunk_offsets,
          named(stored, format::exponent_chunk_offsets(stored.dtype, tensors_[t].coded,
                                                       element_count(stored))));
      for (std::size_t chunk = 0; chunk + 1 < tensors_[t].chunk_offsets.size(); ++chunk) {
        chunks_.push_back({.tensor = t, .chunk = chunk});
      }
    }
    const std::size_t helper_count = std::min<std::size_t>(
        std::min<std::uint64_t>(coded_bytes_ / kBytesPerThread, kDecodeThreadCountMax - 1),
        std::max(std::thread::hardware_concurrency(), 1U) - 1);
    std::vector<std::jthread> helpers;
    // Where the system refuses threads, this one does it all.
    try {
      while (helpers.size() < helper_count) {
        helpers.emplace_back([this] { decode_chunks(); });
      }
    } catch (const std::system_error&) {
    }
    decode_chunks();
    helpers.clear();  // Waits for them.
    return std::move(failure_);
  }

 private:
  /// What is worth a thread's start.
  static constexpr std::uint64_t kBytesPerThread = 8 * kMiB;
  /// Decoding costs about as much as copying: a few threads take all of the memory's bandwidth.
  static constexpr std::size_t kDecodeThreadCountMax = 4;

  struct Coded {
    const TensorStep* step;
    std::span<const std::byte> coded;
    std::span<std::byte> target;
    std::vector<std::uint64_t> chunk_offsets;
  };
  struct Chunk {
    std::size_t tensor;
    std::size_t chunk;
  };

  static std::uint64_t element_count(const format::PackedTensor& tensor) {
    return tensor.size_bytes / (format::dtype_bits(tensor.dtype) / 8);
  }

  template <class T>
  static Result<T> named(const format::PackedTensor& tensor, Result<T> result) {
    return result ? std::move(result)
                  : std::unexpected(std::move(result).error().with_context(
                        fmt::format("\"{}\"", printable(tensor.name))));
  }

  void decode_chunks() {
    // Chunks that are expanded on come through here, and stay in the core's cache.
    std::vector<std::byte> between;
    for (std::size_t next = next_++; next < chunks_.size() && !has_failed_; next = next_++) {
      const Coded& tensor = tensors_[chunks_[next].tensor];
      Result<void> decoded =
          named(*tensor.step->stored, decode_chunk(tensor, chunks_[next].chunk, between));
      if (!decoded && !has_failed_.exchange(true)) {
        failure_ = std::move(decoded);
      }
    }
  }

  static Result<void> decode_chunk(const Coded& tensor, std::size_t chunk,
                                   std::vector<std::byte>& between) {
    const format::PackedTensor& stored = *tensor.step->stored;
    const std::uint64_t first = chunk * format::kExponentChunkElements;
    const std::uint64_t count =
        std::min(element_count(stored) - first, format::kExponentChunkElements);
    const std::span<const std::byte> coded = tensor.coded.subspan(
        tensor.chunk_offsets[chunk], tensor.chunk_offsets[chunk + 1] - tensor.chunk_offsets[chunk]);
    const std::uint64_t target_width = format::dtype_bits(tensor.step->dtype) / 8;
    const std::span<std::byte> target =
        tensor.target.subspan(first * target_width, count * target_width);
    if (tensor.step->dtype == stored.dtype) {
      return format::decode_exponent_chunk(stored.dtype, coded, target);
    }
    between.resize(count * (format::dtype_bits(stored.dtype) / 8));
    TP_RETURN_IF_ERROR(format::decode_exponent_chunk(stored.dtype, coded, between,
                                                     {.use = format::DecodedUse::kSoon}));
    const format::Shape shape = {count};
    expand({.dtype = stored.dtype, .shape = &shape, .payload = between, .scale = {}},
           tensor.step->dtype, target);
    return {};
  }

  std::vector<Coded> tensors_;
  std::vector<Chunk> chunks_;
  std::uint64_t coded_bytes_ = 0;
  std::atomic<std::size_t> next_ = 0;
  std::atomic<bool> has_failed_ = false;
  Result<void> failure_;  ///< Written by the one thread that set `has_failed_`.
};

}  // namespace

Result<std::vector<TensorView>> HostDevice::place(const TensorLayout& layout,
                                                  std::span<std::byte> stored,
                                                  std::span<std::byte> compute) {
  CodedTensors coded;
  std::vector<TensorView> views;
  views.reserve(layout.steps.size());
  for (const TensorStep& step : layout.steps) {
    std::span<std::byte> target;
    if (step.is_in_place) {
      target = bytes_of(*step.stored, stored);
    } else {
      target = compute.subspan(step.compute_offset_bytes, step.size_bytes);
      if (step.stored->coding == format::TensorCoding::kRaw) {
        make_tensor(step, stored, target);
      } else {
        coded.add(step, bytes_of(*step.stored, stored), target);
      }
    }
    views.push_back({.name = step.stored->name,
                     .dtype = step.dtype,
                     .shape = &step.stored->shape,
                     .data = target.data(),
                     .size_bytes = step.size_bytes});
  }
  TP_RETURN_IF_ERROR(coded.decode());
  return views;
}

}  // namespace trash_panda::runtime
