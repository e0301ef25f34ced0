#include "tensor_maker.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "trash_panda/base/printable.h"
#include "trash_panda/base/units.h"
#include "trash_panda/format/chunk_code.h"
#include "trash_panda/runtime/expand.h"

namespace trash_panda::runtime {

namespace {

/// Made by a thread at a time: long enough that taking it costs nothing, short enough that threads
/// end together.
constexpr std::uint64_t kJobBytes = 512 * kKiB;

/// Bytes on a multiple of the width of their elements: as they lie in packs, else a copy.
class AlignedBytes {
 public:
  AlignedBytes(std::span<const std::byte> bytes, format::Dtype dtype) : bytes_(bytes) {
    const std::uint64_t width_bytes = std::max(format::dtype_bits(dtype) / 8, 1U);
    if (reinterpret_cast<std::uintptr_t>(bytes.data()) % width_bytes != 0) {
      copy_.assign(bytes.begin(), bytes.end());
      bytes_ = copy_;
    }
  }
  AlignedBytes(const AlignedBytes&) = delete;
  AlignedBytes& operator=(const AlignedBytes&) = delete;

  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }
  template <class T>
  [[nodiscard]] std::span<const T> elements() const {
    return {reinterpret_cast<const T*>(bytes_.data()), bytes_.size() / sizeof(T)};
  }

 private:
  std::span<const std::byte> bytes_;
  std::vector<std::byte> copy_;
};

void make_raw(const TensorStep& step, std::span<const std::byte> payload,
              std::span<std::byte> extent, std::span<std::byte> target) {
  const format::PackedTensor& tensor = *step.stored;
  if (step.dtype == tensor.dtype) {
    if (!payload.empty()) {
      std::memcpy(target.data(), payload.data(), payload.size());
    }
    return;
  }
  const AlignedBytes aligned(payload, tensor.dtype);
  ExpandSource source = {
      .dtype = tensor.dtype, .shape = &tensor.shape, .payload = aligned.bytes(), .scale = {}};
  const format::PackedTensor& scale_tensor = step.scale == nullptr ? tensor : *step.scale;
  const AlignedBytes scale(step.scale == nullptr ? payload : stored_bytes(scale_tensor, extent),
                           scale_tensor.dtype);
  if (step.scale != nullptr) {
    if (step.scale->dtype == format::Dtype::kF8E8M0) {
      source.scale_codes = scale.elements<std::uint8_t>();
    } else {
      source.scale = scale.elements<float>();
    }
    source.granularity = tensor.scale->granularity;
    if (tensor.scale->block_shape.size() == 2) {
      source.block_rows = tensor.scale->block_shape[0];
      source.block_columns = tensor.scale->block_shape[1];
    }
  }
  expand(source, step.dtype, target);
}

/// @param dtype  Of the target.
Result<void> make_chunk(const format::PackedTensor& stored, format::Dtype dtype,
                        std::span<const std::byte> coded, std::span<std::byte> target,
                        TensorMaker::Scratch& between) {
  if (dtype == stored.dtype) {
    return format::decode_chunk(stored.coding, stored.dtype, coded, target,
                                format::DecodedUse::kLater);
  }
  const std::uint64_t count = target.size() / (format::dtype_bits(dtype) / 8);
  between.resize(count * (format::dtype_bits(stored.dtype) / 8));
  TP_RETURN_IF_ERROR(
      format::decode_chunk(stored.coding, stored.dtype, coded, between, format::DecodedUse::kSoon));
  const format::Shape shape = {count};
  expand({.dtype = stored.dtype, .shape = &shape, .payload = between, .scale = {}}, dtype, target);
  return {};
}

template <class T>
Result<T> named(const format::PackedTensor& tensor, Result<T> result) {
  return result ? std::move(result)
                : std::unexpected(std::move(result).error().with_context(
                      fmt::format("\"{}\"", printable(tensor.name))));
}

}  // namespace

std::size_t tensor_thread_count() {
  return std::min<std::size_t>(kTensorThreadCountMax,
                               std::max(std::thread::hardware_concurrency(), 1U));
}

Result<void> TensorMaker::begin(const TensorLayout& layout, std::span<std::byte> stored,
                                std::span<std::byte> compute) {
  const std::lock_guard lock(mutex_);
  TP_ASSERT(is_over());
  clear();
  times_.began = times_.ended = std::chrono::steady_clock::now();
  stored_ = stored;
  for (const TensorStep& step : layout.steps) {
    if (step.is_in_place) {
      continue;
    }
    Result<void> added =
        add(step, compute.subspan(step.compute_offset_bytes, step.size_bytes), compute);
    if (!added) {
      clear();
      return added;
    }
  }
  // The largest first, so that threads end together, and what is alike as it lies in memory.
  std::ranges::sort(jobs_, [](const Job& one, const Job& other) {
    return one.target.size() != other.target.size() ? one.target.size() > other.target.size()
                                                    : one.target.data() < other.target.data();
  });
  first_scaled_ = jobs_.size();
  jobs_.insert(jobs_.end(), scaled_.begin(), scaled_.end());
  return {};
}

void TensorMaker::clear() {
  offsets_.clear();
  scaled_.clear();
  jobs_.clear();
  target_bytes_ = 0;
  first_scaled_ = 0;
  next_ = 0;
  failure_.reset();
}

Result<void> TensorMaker::add(const TensorStep& step, std::span<std::byte> target,
                              std::span<std::byte> compute) {
  const format::PackedTensor& stored = *step.stored;
  target_bytes_ += target.size();
  const std::span<const std::byte> source = stored_bytes(stored, stored_);
  Job whole = {.step = &step,
               .dtype = step.dtype,
               .chunk_count = 0,
               .first_chunk = 0,
               .source = source,
               .target = target};
  if (stored.coding == format::TensorCoding::kRaw) {
    jobs_.push_back(whole);
    return {};
  }
  if (step.scale == nullptr) {
    return named(stored, add_chunks(step, step.dtype, source, target));
  }
  const std::span<std::byte> decoded =
      compute.subspan(step.decoded_offset_bytes, stored.size_bytes);
  whole.source = decoded;
  scaled_.push_back(whole);
  return named(stored, add_chunks(step, stored.dtype, source, decoded));
}

Result<void> TensorMaker::add_chunks(const TensorStep& step, format::Dtype dtype,
                                     std::span<const std::byte> coded,
                                     std::span<std::byte> target) {
  const format::PackedTensor& stored = *step.stored;
  const std::size_t first = offsets_.size();
  TP_RETURN_IF_ERROR(format::append_chunk_offsets(stored.coding, stored.dtype, coded,
                                                  stored.size_bytes, offsets_));
  std::uint64_t chunk_bytes = format::chunk_raw_bytes(stored.coding, stored.dtype);
  if (dtype != stored.dtype) {  // Then both have whole bytes.
    chunk_bytes = chunk_bytes / format::dtype_bits(stored.dtype) * format::dtype_bits(dtype);
  }
  const std::size_t chunk_count = offsets_.size() - 1 - first;
  const std::size_t together = std::max<std::uint64_t>(kJobBytes / chunk_bytes, 1);
  for (std::size_t chunk = 0; chunk < chunk_count; chunk += together) {
    const std::uint64_t begin = chunk * chunk_bytes;
    jobs_.push_back(
        {.step = &step,
         .dtype = dtype,
         .chunk_count = std::min(together, chunk_count - chunk),
         .first_chunk = first + chunk,
         .source = coded,
         .target = target.subspan(begin, std::min(together * chunk_bytes, target.size() - begin))});
  }
  return {};
}

Result<void> TensorMaker::make(const Job& job, Scratch& scratch) const {
  if (job.chunk_count == 0) {
    make_raw(*job.step, job.source, stored_, job.target);
    return {};
  }
  const format::PackedTensor& stored = *job.step->stored;
  const std::uint64_t width_bits = format::dtype_bits(job.dtype);
  const std::uint64_t chunk_bytes = format::chunk_raw_bytes(stored.coding, stored.dtype) * 8 /
                                    format::dtype_bits(stored.dtype) * width_bits / 8;
  for (std::size_t at = 0; at < job.chunk_count; ++at) {
    const std::uint64_t from = offsets_[job.first_chunk + at];
    const std::uint64_t to = offsets_[job.first_chunk + at + 1];
    const std::uint64_t begin = at * chunk_bytes;
    TP_RETURN_IF_ERROR(named(
        stored,
        make_chunk(stored, job.dtype, job.source.subspan(from, to - from),
                   job.target.subspan(begin, std::min(chunk_bytes, job.target.size() - begin)),
                   scratch)));
  }
  return {};
}

bool TensorMaker::is_over() const {
  return running_count_ == 0 && (failure_ || next_ == jobs_.size());
}

bool TensorMaker::can_take() const {
  return !failure_ && next_ < jobs_.size() && (next_ != first_scaled_ || running_count_ == 0);
}

void TensorMaker::work(Scratch& scratch) {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return can_take() || is_over(); });
    if (is_over()) {
      return;
    }
    const Job job = jobs_[next_++];
    ++running_count_;
    lock.unlock();
    Result<void> made = make(job, scratch);
    lock.lock();
    --running_count_;
    if (!made && !failure_) {
      failure_ = std::move(made).error();
    }
    if (running_count_ == 0) {
      times_.ended = std::chrono::steady_clock::now();
      changed_.notify_all();
    }
  }
}

Result<void> TensorMaker::finish(Scratch& scratch) {
  work(scratch);
  const std::lock_guard lock(mutex_);
  return failure_ ? std::unexpected(*failure_) : Result<void>();
}

void TensorMaker::give_up() {
  std::unique_lock lock(mutex_);
  next_ = jobs_.size();
  changed_.wait(lock, [this] { return running_count_ == 0; });
  changed_.notify_all();
}

TensorMaker::Times TensorMaker::times() const {
  const std::lock_guard lock(mutex_);
  return times_;
}

void view_tensors(const TensorLayout& layout, std::span<std::byte> stored,
                  std::span<std::byte> compute, std::vector<TensorView>& views) {
  views.clear();
  views.reserve(layout.steps.size());
  for (const TensorStep& step : layout.steps) {
    const std::span<std::byte> target =
        step.is_in_place ? stored_bytes(*step.stored, stored)
                         : compute.subspan(step.compute_offset_bytes, step.size_bytes);
    views.push_back({.name = step.stored->name,
                     .dtype = step.dtype,
                     .shape = &step.stored->shape,
                     .data = target.data(),
                     .size_bytes = step.size_bytes});
  }
}

}  // namespace trash_panda::runtime
