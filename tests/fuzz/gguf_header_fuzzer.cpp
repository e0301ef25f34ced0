// The start of a GGUF file. Its last eight bytes are read once more as the size of the file, so
// that inputs without their data get past the check of sizes.

#include <algorithm>
#include <cstring>
#include <set>
#include <span>

#include "fuzz_target.h"
#include "gguf_header.h"

namespace trash_panda::fuzz {

namespace {

using format::GgufHeader;
using format::TensorRecord;

/// Bytes of the tensor over bytes of a block are elements over elements of a block. Nothing is
/// multiplied that could overflow.
void check_gguf_blocks(const TensorRecord& tensor) {
  if (std::ranges::find(tensor.shape, 0U) != tensor.shape.end()) {
    TP_ASSERT(tensor.size_bytes == 0);
    return;
  }
  const format::GgmlType* type = tensor.ggml_type;
  const std::uint64_t block_bytes = type ? type->block_bytes : format::dtype_bits(tensor.dtype) / 8;
  const std::uint64_t block_elements = type ? type->block_elements : 1;
  TP_ASSERT(tensor.size_bytes % block_bytes == 0);
  std::uint64_t blocks = tensor.size_bytes / block_bytes;
  for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
    const bool is_row = i + 1 == tensor.shape.size();
    const std::uint64_t count = tensor.shape[i] / (is_row ? block_elements : 1);
    TP_ASSERT(!is_row || tensor.shape[i] % block_elements == 0);
    TP_ASSERT(blocks % count == 0);
    blocks /= count;
  }
  TP_ASSERT(blocks == 1);
}

void check_gguf_tensors(const GgufHeader& header, std::uint64_t file_size_bytes) {
  std::uint64_t end_bytes = header.data_offset_bytes;
  std::set<std::string_view> names;
  for (const TensorRecord& tensor : header.tensors) {
    TP_ASSERT(tensor.offset_bytes >= end_bytes);
    TP_ASSERT(tensor.offset_bytes - end_bytes < header.alignment_bytes);
    TP_ASSERT((tensor.offset_bytes - header.data_offset_bytes) % header.alignment_bytes == 0);
    TP_ASSERT(tensor.offset_bytes <= file_size_bytes);
    TP_ASSERT(tensor.size_bytes <= file_size_bytes - tensor.offset_bytes);
    TP_ASSERT(names.emplace(tensor.name).second);
    check_gguf_blocks(tensor);
    end_bytes = tensor.offset_bytes + tensor.size_bytes;
  }
  TP_ASSERT(file_size_bytes - end_bytes < header.alignment_bytes);
}

/// What is not there reads as bytes that are no header: zeros would be empty tensors without end.
Result<GgufHeader> parse(std::string_view head, std::uint64_t file_size_bytes) {
  const format::ReadAt read = [head](std::uint64_t offset_bytes,
                                     std::span<std::byte> target) -> Result<void> {
    const auto rest = head.substr(std::min<std::uint64_t>(offset_bytes, head.size()));
    const std::size_t found_bytes = std::min(rest.size(), target.size());
    std::memset(target.data(), 0xff, target.size());
    std::memcpy(target.data(), rest.data(), found_bytes);
    return {};
  };
  format::Checksum checksum;
  return format::read_gguf_header(read, file_size_bytes, checksum);
}

bool check_gguf(std::string_view input, std::uint64_t file_size_bytes) {
  const Result<GgufHeader> header = parse(input, file_size_bytes);
  if (!header) {
    check_refusal(header.error());
    return false;
  }
  TP_ASSERT(header->data_offset_bytes <= file_size_bytes);
  check_gguf_tensors(*header, file_size_bytes);
  // The data are not looked at.
  const auto again = parse(input.substr(0, header->data_offset_bytes), file_size_bytes);
  TP_ASSERT(again && again->tensors.size() == header->tensors.size());
  TP_ASSERT(again->metadata == header->metadata);
  return true;
}

bool fuzz_gguf_header(std::string_view input) {
  bool is_taken = check_gguf(input, input.size());
  std::uint64_t file_size_bytes = 0;
  if (input.size() >= sizeof(file_size_bytes)) {
    std::memcpy(&file_size_bytes, input.end() - sizeof(file_size_bytes), sizeof(file_size_bytes));
    if (file_size_bytes > input.size()) {
      is_taken = check_gguf(input, file_size_bytes) || is_taken;
    }
  }
  return is_taken;
}

[[maybe_unused]] const bool kGgufAdded = add_target("gguf_header", fuzz_gguf_header);

}  // namespace

}  // namespace trash_panda::fuzz
