#include "tensor_stream.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "trash_panda/base/file.h"
#include "trash_panda/format/chunk_code.h"

namespace trash_panda::format {

namespace {

/// Read at a time; holds several of the longest chunks, of 65,536 F32.
constexpr std::uint64_t kWindowBytes = 4'194'304;

}  // namespace

Result<TensorStream> TensorStream::open(const std::filesystem::path& pack, const Manifest& manifest,
                                        const PackedExtent& extent, const PackedTensor& tensor) {
  TP_ASSIGN_OR_RETURN(BulkReader reader,
                      BulkReader::open(pack / manifest.shards[extent.shard_index].name));
  TensorStream stream(std::move(reader), extent.shard_index);
  TP_RETURN_IF_ERROR(stream.restart(pack, manifest, extent, tensor));
  return stream;
}

Result<void> TensorStream::restart(const std::filesystem::path& pack, const Manifest& manifest,
                                   const PackedExtent& extent, const PackedTensor& tensor) {
  if (extent.shard_index != shard_index_) {
    TP_ASSIGN_OR_RETURN(reader_, BulkReader::open(pack / manifest.shards[extent.shard_index].name));
    shard_index_ = extent.shard_index;
  }
  if (tensor.coding != TensorCoding::kRaw && window_.span().empty()) {
    TP_ASSIGN_OR_RETURN(window_, AlignedBuffer::create(2 * kWindowBytes + kBulkReadSlackBytes));
  }
  tensor_ = &tensor;
  at_bytes_ = extent.offset_bytes + tensor.stored_offset_bytes;
  end_bytes_ = at_bytes_ + tensor.stored_bytes;
  raw_left_bytes_ = tensor.size_bytes;
  coded_ = {};
  return {};
}

Result<std::span<const std::byte>> TensorStream::next(std::uint64_t size_bytes,
                                                      std::span<std::byte> buffer) {
  if (tensor_->coding != TensorCoding::kRaw) {
    return decode(size_bytes, buffer.first(size_bytes));
  }
  const std::uint64_t at_bytes = std::exchange(at_bytes_, at_bytes_ + size_bytes);
  return reader_.read(at_bytes, size_bytes, buffer);
}

/// Makes at least so many coded bytes available, or all that are left.
Result<void> TensorStream::refill(std::uint64_t needed_bytes) {
  const std::uint64_t left_bytes = end_bytes_ - at_bytes_;
  if (coded_.size() >= needed_bytes || left_bytes == 0) {
    return {};
  }
  // What is left over goes before what comes: reads are aligned, so they land behind it.
  std::byte* const start = window_.data();
  const std::size_t held_bytes = coded_.size();
  if (held_bytes > 0) {  // Nothing is held at first, not even a pointer.
    std::memmove(start, coded_.data(), held_bytes);
  }
  const std::uint64_t read_bytes = std::min(left_bytes, kWindowBytes);
  const std::span<std::byte> target = window_.span().subspan(kWindowBytes);
  TP_ASSIGN_OR_RETURN(const std::span<const std::byte> bytes,
                      reader_.read(at_bytes_, read_bytes, target));
  std::memmove(start + held_bytes, bytes.data(), bytes.size());
  coded_ = {start, held_bytes + bytes.size()};
  at_bytes_ += read_bytes;
  return {};
}

Result<std::span<const std::byte>> TensorStream::decode(std::uint64_t size_bytes,
                                                        std::span<std::byte> buffer) {
  const std::uint64_t whole_bytes = chunk_raw_bytes(tensor_->coding, tensor_->dtype);
  const auto damaged = [&] {
    return std::unexpected(Error(ErrorCode::kCorrupt, fmt::format("the code of \"{}\" is damaged",
                                                                  printable(tensor_->name)))
                               .with_reason("code"));
  };
  std::uint64_t made_bytes = 0;
  while (made_bytes < size_bytes) {
    TP_RETURN_IF_ERROR(refill(kCodedChunkHeadBytes));
    if (coded_.size() < kCodedChunkHeadBytes) {
      return damaged();
    }
    TP_ASSIGN_OR_RETURN(const CodedChunkSize chunk,
                        read_chunk_size(tensor_->coding, tensor_->dtype, coded_));
    TP_RETURN_IF_ERROR(refill(chunk.coded_bytes));
    // As in append_chunk_offsets(): only the last one is shorter.
    if (chunk.coded_bytes > coded_.size() || chunk.raw_bytes > size_bytes - made_bytes ||
        chunk.raw_bytes != std::min(whole_bytes, raw_left_bytes_)) {
      return damaged();
    }
    TP_RETURN_IF_ERROR(
        decode_chunk(tensor_->coding, tensor_->dtype, coded_.first(chunk.coded_bytes),
                     buffer.subspan(made_bytes, chunk.raw_bytes), DecodedUse::kSoon));
    coded_ = coded_.subspan(chunk.coded_bytes);
    made_bytes += chunk.raw_bytes;
    raw_left_bytes_ -= chunk.raw_bytes;
  }
  if (raw_left_bytes_ == 0 && (!coded_.empty() || at_bytes_ != end_bytes_)) {
    return damaged();  // There is something behind the code.
  }
  return buffer;
}

}  // namespace trash_panda::format
