#include "strided_read.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace trash_panda::format {

namespace {

/// Longest run of the file that is read at a time.
constexpr std::uint64_t kWindowBytesMax = 4'194'304;

/// A read costs about as much as copying this many bytes, so shorter runs are read whole, however
/// few of their bytes are wanted.
constexpr std::uint64_t kSparseWindowBytes = 32'768;

/// Of longer runs at least one byte in this many is wanted.
constexpr std::uint64_t kSparsenessMax = 4;

/// One dimension of a tensor: how many steps, and how far apart in the file and in row-major order.
struct Dimension {
  std::uint64_t size;
  std::uint64_t stride;         ///< In elements of the file.
  std::uint64_t target_stride;  ///< In elements of the result.
};

/// A box of elements: some steps of every dimension.
struct Box {
  std::vector<Dimension> dimensions;  ///< Those of more than one step.
  std::uint64_t source_element;       ///< Of its first element, in the file.
  std::uint64_t target_element;       ///< Of its first element, in the result.

  [[nodiscard]] std::uint64_t count() const {
    std::uint64_t count = 1;
    for (const Dimension& dimension : dimensions) {
      count *= dimension.size;
    }
    return count;
  }
  /// Elements from its first to behind its last in the file.
  [[nodiscard]] std::uint64_t span() const {
    std::uint64_t last = 0;
    for (const Dimension& dimension : dimensions) {
      last += (dimension.size - 1) * dimension.stride;
    }
    return last + 1;
  }
};

/// The dimensions of a tensor, outermost first; those that go on from one another as one.
std::vector<Dimension> merged_dimensions(const TensorRecord& tensor) {
  std::vector<Dimension> dimensions;
  std::uint64_t target_stride = 1;
  for (std::size_t i = tensor.shape.size(); i-- > 0;) {
    const std::uint64_t size = tensor.shape[i];
    if (size == 1) {
      continue;
    }
    const bool goes_on = !dimensions.empty() &&
                         tensor.strides[i] == dimensions.back().stride * dimensions.back().size &&
                         target_stride == dimensions.back().target_stride * dimensions.back().size;
    if (goes_on) {
      dimensions.back().size *= size;
    } else {
      dimensions.push_back(
          {.size = size, .stride = tensor.strides[i], .target_stride = target_stride});
    }
    target_stride *= size;
  }
  std::ranges::reverse(dimensions);
  return dimensions;
}

/// Gathers boxes of one tensor.
class Gatherer {
 public:
  Gatherer(const File& file, const TensorRecord& tensor, std::span<std::byte> target)
      : file_(file),
        offset_bytes_(tensor.offset_bytes),
        width_bytes_(dtype_bits(tensor.dtype) / 8),
        target_(target) {}

  /// Gathers the elements [first, end) of the dimensions from `depth` on, in row-major order. So
  /// few dimensions have more than one step that this never goes deep.
  Result<void> gather_range(std::span<const Dimension> dimensions, std::uint64_t source_element,
                            std::uint64_t first, std::uint64_t end) {
    if (first >= end) {
      return {};
    }
    if (dimensions.empty()) {
      return gather(
          {.dimensions = {}, .source_element = source_element, .target_element = done_++});
    }
    const Dimension& outer = dimensions.front();
    const std::span<const Dimension> inner = dimensions.subspan(1);
    const std::uint64_t inner_count = outer.target_stride;
    std::uint64_t step = first / inner_count;
    if (first % inner_count != 0 || end - first < inner_count) {
      const std::uint64_t inner_first = first % inner_count;
      const std::uint64_t inner_end = std::min(inner_count, inner_first + (end - first));
      TP_RETURN_IF_ERROR(
          gather_range(inner, source_element + step * outer.stride, inner_first, inner_end));
      first += inner_end - inner_first;
      ++step;
    }
    const std::uint64_t whole_steps = (end - first) / inner_count;
    if (whole_steps > 0) {
      Box box{.dimensions = {{.size = whole_steps,
                              .stride = outer.stride,
                              .target_stride = outer.target_stride}},
              .source_element = source_element + step * outer.stride,
              .target_element = done_};
      box.dimensions.insert(box.dimensions.end(), inner.begin(), inner.end());
      TP_RETURN_IF_ERROR(gather(box));
      done_ += whole_steps * inner_count;
      first += whole_steps * inner_count;
      step += whole_steps;
    }
    return gather_range(inner, source_element + step * outer.stride, 0, end - first);
  }

 private:
  /// Reads a box in one go where that is worth it, else its halves.
  Result<void> gather(const Box& box) {
    const std::uint64_t wanted_bytes = box.count() * width_bytes_;
    const std::uint64_t span_bytes = box.span() * width_bytes_;
    const bool is_dense =
        span_bytes <= kSparseWindowBytes || span_bytes / kSparsenessMax <= wanted_bytes;
    if (span_bytes <= kWindowBytesMax && is_dense) {
      return gather_window(box, span_bytes);
    }
    const auto widest = std::ranges::max_element(
        box.dimensions, {}, [](const Dimension& d) { return (d.size - 1) * d.stride; });
    const auto at = static_cast<std::size_t>(widest - box.dimensions.begin());
    Box low = box;
    Box high = box;
    low.dimensions[at].size = widest->size / 2;
    high.dimensions[at].size -= low.dimensions[at].size;
    high.source_element += low.dimensions[at].size * widest->stride;
    high.target_element += low.dimensions[at].size * widest->target_stride;
    TP_RETURN_IF_ERROR(gather(low));
    return gather(high);
  }

  Result<void> gather_window(const Box& box, std::uint64_t span_bytes) {
    window_.resize(std::max<std::size_t>(window_.size(), span_bytes));
    TP_RETURN_IF_ERROR(file_.read_exact_at(offset_bytes_ + box.source_element * width_bytes_,
                                           std::span(window_).first(span_bytes)));
    static constexpr Dimension kOne{.size = 1, .stride = 0, .target_stride = 0};
    const std::span<const Dimension> dimensions = box.dimensions;
    const Dimension& innermost = dimensions.empty() ? kOne : dimensions.back();
    const std::span<const Dimension> outer =
        dimensions.first(std::max<std::size_t>(dimensions.size(), 1) - 1);
    std::vector<std::uint64_t> steps(outer.size());
    std::uint64_t source = 0;
    std::uint64_t target = box.target_element;
    for (;;) {
      copy_run(source, target, innermost);
      std::size_t i = outer.size();
      while (i > 0 && ++steps[i - 1] == outer[i - 1].size) {
        --i;
        steps[i] = 0;
        source -= (outer[i].size - 1) * outer[i].stride;
        target -= (outer[i].size - 1) * outer[i].target_stride;
      }
      if (i == 0) {
        return {};
      }
      source += outer[i - 1].stride;
      target += outer[i - 1].target_stride;
    }
  }

  void copy_run(std::uint64_t source, std::uint64_t target, const Dimension& run) {
    switch (width_bytes_) {
      case 1:
        return copy_elements<1>(source, target, run);
      case 2:
        return copy_elements<2>(source, target, run);
      case 4:
        return copy_elements<4>(source, target, run);
      default:
        return copy_elements<8>(source, target, run);
    }
  }

  template <std::size_t kWidthBytes>
  void copy_elements(std::uint64_t source, std::uint64_t target, const Dimension& run) {
    TP_ASSERT(kWidthBytes == width_bytes_);
    const std::byte* from = window_.data() + source * kWidthBytes;
    std::byte* to = target_.data() + target * kWidthBytes;
    if (run.stride == 1 && run.target_stride == 1) {
      std::memcpy(to, from, run.size * kWidthBytes);
      return;
    }
    for (std::uint64_t i = 0; i < run.size; ++i) {
      std::memcpy(to + i * run.target_stride * kWidthBytes, from + i * run.stride * kWidthBytes,
                  kWidthBytes);
    }
  }

  const File& file_;
  std::uint64_t offset_bytes_;
  std::uint64_t width_bytes_;
  std::span<std::byte> target_;
  std::uint64_t done_ = 0;  ///< Elements of the target that are gathered or being so.
  std::vector<std::byte> window_;
};

Result<void> read_elements(const File& file, const TensorRecord& tensor, std::uint64_t first,
                           std::uint64_t end, std::span<std::byte> target) {
  const std::vector<Dimension> dimensions = merged_dimensions(tensor);
  return Gatherer(file, tensor, target).gather_range(dimensions, 0, first, end);
}

}  // namespace

Result<void> read_strided(const File& file, const TensorRecord& tensor, std::uint64_t offset_bytes,
                          std::span<std::byte> target) {
  const std::uint64_t width_bytes = dtype_bits(tensor.dtype) / 8;
  const std::uint64_t first = offset_bytes / width_bytes;
  const std::uint64_t end = (offset_bytes + target.size() + width_bytes - 1) / width_bytes;
  const std::uint64_t before_bytes = offset_bytes % width_bytes;
  if (before_bytes == 0 && (end - first) * width_bytes == target.size()) {
    return read_elements(file, tensor, first, end, target);
  }
  std::vector<std::byte> whole((end - first) * width_bytes);
  TP_RETURN_IF_ERROR(read_elements(file, tensor, first, end, whole));
  std::memcpy(target.data(), whole.data() + before_bytes, target.size());
  return {};
}

}  // namespace trash_panda::format
