#include "page_writer.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace trash_panda::format {

namespace {

constexpr std::uint64_t kRequestBytes = 4'194'304;
constexpr std::uint64_t kPageBytes = 4096;

constexpr std::array<std::byte, kPageBytes> kZeros{};

bool is_whole_pages(std::span<const std::byte> bytes) {
  return (bytes.size() | reinterpret_cast<std::uintptr_t>(bytes.data())) % kPageBytes == 0;
}

}  // namespace

Result<PageWriter> PageWriter::create(WritableFile& file, std::uint64_t offset_bytes) {
  TP_ASSIGN_OR_RETURN(AlignedBuffer buffer, AlignedBuffer::create(kRequestBytes));
  return PageWriter(file, offset_bytes, std::move(buffer));
}

Result<void> PageWriter::append(std::span<const std::byte> bytes) {
  if (held_bytes_ == 0 && is_whole_pages(bytes)) {
    return write(bytes);
  }
  while (!bytes.empty()) {
    const std::size_t taken_bytes =
        std::min<std::size_t>(bytes.size(), buffer_.size_bytes() - held_bytes_);
    std::memcpy(buffer_.data() + held_bytes_, bytes.data(), taken_bytes);
    held_bytes_ += taken_bytes;
    bytes = bytes.subspan(taken_bytes);
    if (held_bytes_ == buffer_.size_bytes()) {
      TP_RETURN_IF_ERROR(flush());
    }
  }
  return {};
}

Result<void> PageWriter::append_zeros(std::uint64_t size_bytes) {
  while (size_bytes > 0) {
    const std::uint64_t piece_bytes = std::min(size_bytes, kPageBytes);
    TP_RETURN_IF_ERROR(append(std::span(kZeros).first(piece_bytes)));
    size_bytes -= piece_bytes;
  }
  return {};
}

Result<void> PageWriter::flush() {
  return write(buffer_.span().first(std::exchange(held_bytes_, 0)));
}

Result<void> PageWriter::write(std::span<const std::byte> bytes) {
  TP_RETURN_IF_ERROR(file_->write_at(offset_bytes_, bytes));
  offset_bytes_ += bytes.size();
  return {};
}

}  // namespace trash_panda::format
