#include "gguf_layout.h"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "gguf_stream.h"
#include "header_layout.h"

namespace trash_panda::format {

namespace {

Error broken_data(std::string message) {
  return gguf_error(ErrorCode::kCorrupt, std::move(message));
}

std::string describe_range(const TensorRecord& tensor) {
  return fmt::format("tensor {} at [{}, {}) of the data", quote_name(tensor.name),
                     tensor.offset_bytes, tensor.offset_bytes + tensor.size_bytes);
}

/// Up to the next multiple; alignments have at most 32 bits and `value` lies in a file.
std::uint64_t align_up(std::uint64_t value, std::uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

/// The first tensor in the order of the data that is not all there.
const TensorRecord* find_cut(const std::vector<TensorRecord>& tensors, std::uint64_t data_bytes) {
  const auto cut = std::ranges::find_if(tensors, [data_bytes](const TensorRecord& tensor) {
    return tensor.size_bytes > data_bytes || tensor.offset_bytes > data_bytes - tensor.size_bytes;
  });
  return cut == tensors.end() ? nullptr : &*cut;
}

Error truncated_at(const TensorRecord& cut, std::uint64_t data_bytes, const GgufData& data) {
  return broken_data(fmt::format("truncated: tensor {} takes {} bytes from {} of the data on, of "
                                 "which the file has {} (file size {})",
                                 quote_name(cut.name), cut.size_bytes, cut.offset_bytes, data_bytes,
                                 data.file_size_bytes))
      .with_hint("the file is incomplete: download it again");
}

/// Tensors follow each other with no more than padding between them.
Result<std::uint64_t> check_dense(const std::vector<TensorRecord>& tensors,
                                  std::uint64_t alignment_bytes) {
  std::uint64_t end_bytes = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorRecord& tensor = tensors[i];
    if (tensor.offset_bytes % alignment_bytes != 0) {
      return std::unexpected(broken_data(
          fmt::format("tensor {} begins at {} of the data, no multiple of the alignment of {}",
                      quote_name(tensor.name), tensor.offset_bytes, alignment_bytes)));
    }
    if (tensor.offset_bytes < end_bytes) {
      return std::unexpected(broken_data(
          fmt::format("{} overlaps {}", describe_range(tensor), describe_range(tensors[i - 1]))));
    }
    if (tensor.offset_bytes > align_up(end_bytes, alignment_bytes)) {
      return std::unexpected(broken_data(
          fmt::format("{} bytes before tensor {} belong to no tensor: it begins at {} of the data, "
                      "and what is before ends at {}",
                      tensor.offset_bytes - end_bytes, quote_name(tensor.name), tensor.offset_bytes,
                      end_bytes)));
    }
    end_bytes = tensor.offset_bytes + tensor.size_bytes;
  }
  return end_bytes;
}

}  // namespace

Result<std::uint64_t> lay_out_gguf(std::vector<TensorRecord>& tensors, const GgufData& data) {
  const auto place = [](const TensorRecord& tensor) {
    return std::pair(tensor.offset_bytes, tensor.size_bytes);
  };
  if (!std::ranges::is_sorted(tensors, {}, place)) {
    std::ranges::stable_sort(tensors, {}, place);
  }
  // A file of keys alone may end where they do.
  const std::uint64_t data_offset_bytes =
      std::min(align_up(data.header_bytes, data.alignment_bytes), data.file_size_bytes);
  const std::uint64_t data_bytes = data.file_size_bytes - data_offset_bytes;
  if (const TensorRecord* cut = find_cut(tensors, data_bytes)) {
    return std::unexpected(truncated_at(*cut, data_bytes, data));
  }
  TP_ASSIGN_OR_RETURN(const std::uint64_t end_bytes, check_dense(tensors, data.alignment_bytes));
  // Some writers pad the last tensor, too.
  if (data_bytes > align_up(end_bytes, data.alignment_bytes)) {
    return std::unexpected(broken_data(fmt::format(
        "{} trailing bytes after the last tensor: the file has {} bytes of data, its header "
        "describes {}",
        data_bytes - end_bytes, data_bytes, end_bytes)));
  }
  for (TensorRecord& tensor : tensors) {
    tensor.offset_bytes += data_offset_bytes;
  }
  return data_offset_bytes;
}

}  // namespace trash_panda::format
