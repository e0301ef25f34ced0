#include "gguf_stream.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

namespace trash_panda::format {

Error gguf_error(ErrorCode code, std::string message) {
  return Error(code, std::move(message)).with_reason("gguf");
}

GgufStream::GgufStream(const ReadAt& read_at, std::uint64_t file_size_bytes, Checksum& checksum)
    : read_at_(read_at),
      file_size_bytes_(file_size_bytes),
      checksum_(checksum),
      window_(std::min(file_size_bytes, kGgufWindowBytes)) {}

Result<void> GgufStream::check_length(std::uint64_t size_bytes) const {
  if (size_bytes > remaining_bytes()) {
    return std::unexpected(
        gguf_error(ErrorCode::kCorrupt,
                   fmt::format("truncated: {} bytes of the GGUF header follow at {}, but the file "
                               "ends at {}",
                               size_bytes, position_bytes_, file_size_bytes_))
            .with_hint("the file is incomplete or damaged: download it again"));
  }
  if (size_bytes > kGgufHeaderBytesMax - std::min(position_bytes_, kGgufHeaderBytesMax)) {
    return std::unexpected(
        gguf_error(ErrorCode::kUnsupported,
                   fmt::format("the GGUF header is longer than the limit of {} bytes: {} follow "
                               "at {}",
                               kGgufHeaderBytesMax, size_bytes, position_bytes_)));
  }
  return {};
}

Result<void> GgufStream::fill(std::uint64_t size_bytes) {
  if (end_ - begin_ >= size_bytes) {
    return {};
  }
  finish();
  const std::uint64_t unread_bytes = remaining_bytes() - end_;
  const std::size_t more = std::min<std::uint64_t>(window_.size() - end_, unread_bytes);
  TP_RETURN_IF_ERROR(read_at_(position_bytes_ + end_, std::span(window_).subspan(end_, more)));
  end_ += more;
  TP_ASSERT(end_ >= size_bytes);
  return {};
}

Result<std::span<const std::byte>> GgufStream::take(std::uint64_t size_bytes) {
  TP_ASSERT(size_bytes <= kGgufWindowBytes);
  TP_RETURN_IF_ERROR(check_length(size_bytes));
  TP_RETURN_IF_ERROR(fill(size_bytes));
  const std::span<const std::byte> bytes = std::span(window_).subspan(begin_, size_bytes);
  begin_ += size_bytes;
  position_bytes_ += size_bytes;
  return bytes;
}

Result<void> GgufStream::skip(std::uint64_t size_bytes) {
  TP_RETURN_IF_ERROR(check_length(size_bytes));
  while (size_bytes > 0) {
    const std::uint64_t piece = std::min(size_bytes, kGgufWindowBytes);
    TP_RETURN_IF_ERROR(take(piece));
    size_bytes -= piece;
  }
  return {};
}

void GgufStream::finish() {
  checksum_.update(std::span(window_).first(begin_));
  std::memmove(window_.data(), window_.data() + begin_, end_ - begin_);
  end_ -= begin_;
  begin_ = 0;
}

}  // namespace trash_panda::format
