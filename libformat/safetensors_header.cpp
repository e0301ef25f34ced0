#include "trash_panda/format/safetensors_header.h"

#include <cstring>
#include <optional>

#include <fmt/format.h>

#include "file_sniff.h"
#include "header_parser.h"

namespace trash_panda::format {

namespace {

/// The length field is little-endian whatever this machine is.
std::uint64_t read_le64(std::span<const std::byte> bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < kLengthFieldBytes; ++i) {
    value |= std::to_integer<std::uint64_t>(bytes[i]) << (8 * i);
  }
  return value;
}

Error header_past_end(std::uint64_t header_bytes, std::uint64_t file_size_bytes) {
  return Error(ErrorCode::kCorrupt, fmt::format("header of {} bytes does not fit in a file of {}",
                                                header_bytes, file_size_bytes))
      .with_reason("header_length")
      .with_hint("the file is incomplete: download it again");
}

}  // namespace

Result<std::uint64_t> read_header_size(std::span<const std::byte> head,
                                       std::uint64_t file_size_bytes) {
  if (file_size_bytes < kLengthFieldBytes) {
    return std::unexpected(
        Error(ErrorCode::kCorrupt,
              fmt::format("a file of {} bytes is too short for a safetensors header",
                          file_size_bytes))
            .with_reason("too_short")
            .with_hint("the file is incomplete: download it again"));
  }
  TP_ASSERT(head.size() >= kLengthFieldBytes);
  const std::uint64_t header_bytes = read_le64(head);
  // Subtracted, not added: a hostile length must not wrap.
  const bool fits = header_bytes <= file_size_bytes - kLengthFieldBytes;
  if (header_bytes <= kHeaderBytesMax && fits) {
    return header_bytes;
  }
  if (const std::optional<ForeignFormat> format = sniff_foreign_format(head)) {
    return std::unexpected(foreign_format_error(*format));
  }
  if (header_bytes > kHeaderBytesMax) {
    return std::unexpected(
        Error(ErrorCode::kUnsupported,
              fmt::format("header of {} bytes is longer than the format's limit of {}",
                          header_bytes, kHeaderBytesMax))
            .with_reason("header_too_large")
            .with_hint("probably not a safetensors file, or one that is damaged"));
  }
  return std::unexpected(header_past_end(header_bytes, file_size_bytes));
}

Result<SafetensorsHeader> parse_header(std::string_view text, std::uint64_t file_size_bytes) {
  if (file_size_bytes < kLengthFieldBytes || file_size_bytes - kLengthFieldBytes < text.size()) {
    return std::unexpected(header_past_end(text.size(), file_size_bytes));
  }
  JsonParser parser;
  std::string padded;
  padded.reserve(text.size() + kJsonPaddingBytes);
  padded.append(text).append(kJsonPaddingBytes, ' ');
  return parse_padded_header(parser, std::string_view(padded).substr(0, text.size()), padded.size(),
                             file_size_bytes);
}

}  // namespace trash_panda::format
