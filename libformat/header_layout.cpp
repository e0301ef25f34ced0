#include "header_layout.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "trash_panda/base/file.h"

namespace trash_panda::format {

namespace {

/// Longest name that a message repeats in full.
constexpr std::size_t kQuotedBytesMax = 300;

constexpr std::string_view kDownloadWhole = "the file is incomplete: download it again";
constexpr std::string_view kWriteAgain =
    "the program that wrote the file broke the format: save it again with the safetensors library";

Error broken_layout(std::string_view reason, std::string message,
                    std::string_view hint = kWriteAgain) {
  return Error(ErrorCode::kCorrupt, std::move(message))
      .with_reason(reason)
      .with_hint(std::string(hint));
}

std::string range(std::uint64_t begin, std::uint64_t end) {
  return fmt::format("[{}, {})", begin, end);
}

/// Why a tensor does not begin where the one before it ends.
Error gap_or_overlap(const StatedTensor& tensor, const StatedTensor* previous,
                     std::uint64_t covered_bytes) {
  if (tensor.begin_bytes > covered_bytes) {
    return broken_layout(
        "offsets", fmt::format("{} bytes before tensor {} belong to no tensor: it begins at {} of "
                               "the data, and what is before ends at {}",
                               tensor.begin_bytes - covered_bytes, quote_name(tensor.name),
                               tensor.begin_bytes, covered_bytes));
  }
  return broken_layout(
      "offsets",
      fmt::format("tensor {} at {} of the data overlaps tensor {} at {}", quote_name(tensor.name),
                  range(tensor.begin_bytes, tensor.end_bytes), quote_name(previous->name),
                  range(previous->begin_bytes, previous->end_bytes)));
}

Result<void> check_range(const StatedTensor& tensor, const StatedTensor* previous,
                         std::uint64_t covered_bytes) {
  if (tensor.end_bytes < tensor.begin_bytes) {
    return std::unexpected(broken_layout(
        "offsets", fmt::format("tensor {} ends at {} of the data, before its begin at {}",
                               quote_name(tensor.name), tensor.end_bytes, tensor.begin_bytes)));
  }
  if (tensor.begin_bytes != covered_bytes) {
    return std::unexpected(gap_or_overlap(tensor, previous, covered_bytes));
  }
  TP_ASSIGN_OR_RETURN(const std::uint64_t size_bytes,
                      tensor_size_bytes(tensor.name, tensor.dtype, tensor.shape));
  const std::uint64_t range_bytes = tensor.end_bytes - tensor.begin_bytes;
  if (size_bytes != range_bytes) {
    return std::unexpected(broken_layout(
        "size_mismatch",
        fmt::format("tensor {} of dtype {} and shape {} takes {} bytes, but its offsets {} "
                    "span {}",
                    quote_name(tensor.name), dtype_name(tensor.dtype), to_string(tensor.shape),
                    size_bytes, range(tensor.begin_bytes, tensor.end_bytes), range_bytes)));
  }
  return {};
}

/// Holds the file's size against what its tensors need.
Result<void> check_file_size(std::uint64_t covered_bytes, std::uint64_t data_offset_bytes,
                             std::uint64_t file_size_bytes) {
  const std::uint64_t data_bytes = file_size_bytes - data_offset_bytes;
  if (covered_bytes > data_bytes) {
    return std::unexpected(broken_layout(
        "truncated",
        fmt::format("truncated: the file has {} bytes of tensor data, its header describes "
                    "{} ({} are missing; file size {})",
                    data_bytes, covered_bytes, covered_bytes - data_bytes, file_size_bytes),
        kDownloadWhole));
  }
  if (covered_bytes < data_bytes) {
    return std::unexpected(broken_layout(
        "trailing", fmt::format("{} trailing bytes after the last tensor: the file has {} "
                                "bytes of tensor data, its header describes {}",
                                data_bytes - covered_bytes, data_bytes, covered_bytes)));
  }
  return {};
}

}  // namespace

Result<std::uint64_t> tensor_size_bytes(std::string_view name, Dtype dtype, const Shape& shape) {
  std::uint64_t bits = 1;
  bool overflow = false;
  // A later zero does not mend an overflow: so the reference decides, and so no order matters.
  for (const std::uint64_t dimension : shape) {
    overflow = overflow || __builtin_mul_overflow(bits, dimension, &bits);
  }
  overflow = overflow || __builtin_mul_overflow(bits, std::uint64_t{dtype_bits(dtype)}, &bits);
  if (overflow) {
    return std::unexpected(broken_layout(
        "overflow", fmt::format("tensor {} of dtype {} and shape {} has more than 2^64 bits",
                                quote_name(name), dtype_name(dtype), to_string(shape))));
  }
  if (bits % 8 != 0) {
    return std::unexpected(broken_layout(
        "subbyte", fmt::format("tensor {} of dtype {} and shape {} takes {} bits, which is "
                               "no whole number of bytes",
                               quote_name(name), dtype_name(dtype), to_string(shape), bits)));
  }
  return bits / 8;
}

Result<std::vector<TensorRecord>> lay_out_tensors(std::vector<StatedTensor> stated,
                                                  TextArena& names, std::uint64_t data_offset_bytes,
                                                  std::uint64_t file_size_bytes) {
  const auto by_place = [](const StatedTensor& a, const StatedTensor& b) {
    return std::pair(a.begin_bytes, a.end_bytes) < std::pair(b.begin_bytes, b.end_bytes);
  };
  if (!std::ranges::is_sorted(stated, by_place)) {
    std::ranges::stable_sort(stated, by_place);
  }
  std::vector<TensorRecord> records;
  records.reserve(stated.size());
  std::uint64_t covered_bytes = 0;
  std::size_t names_bytes = 0;
  for (std::size_t i = 0; i < stated.size(); ++i) {
    StatedTensor& tensor = stated[i];
    TP_RETURN_IF_ERROR(check_range(tensor, i == 0 ? nullptr : &stated[i - 1], covered_bytes));
    covered_bytes = tensor.end_bytes;
    names_bytes += tensor.name.size();
    records.push_back({.name = {},
                       .dtype = tensor.dtype,
                       .shape = std::move(tensor.shape),
                       .file_index = 0,
                       .offset_bytes = data_offset_bytes + tensor.begin_bytes,
                       .size_bytes = tensor.end_bytes - tensor.begin_bytes});
  }
  TP_RETURN_IF_ERROR(check_file_size(covered_bytes, data_offset_bytes, file_size_bytes));
  names.reserve(names_bytes);
  for (std::size_t i = 0; i < stated.size(); ++i) {
    records[i].name = names.keep(stated[i].name);
  }
  return records;
}

std::string quote_name(std::string_view name) {
  if (name.size() <= kQuotedBytesMax) {
    return fmt::format("\"{}\"", printable(name));
  }
  std::size_t cut = kQuotedBytesMax;
  while (cut > 0 && (static_cast<unsigned char>(name[cut]) & 0xc0) == 0x80) {
    --cut;  // Not within a UTF-8 sequence.
  }
  return fmt::format("\"{}…\" ({} bytes)", printable(name.substr(0, cut)), name.size());
}

}  // namespace trash_panda::format
