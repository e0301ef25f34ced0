#include "exponent/chunk.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include <fmt/format.h>

namespace trash_panda::format {

// Fields and elements are copied to and from memory as they are.
static_assert(std::endian::native == std::endian::little);

namespace {

constexpr std::size_t kElementCountOffset = 4;
constexpr std::size_t kFormOffset = 8;
constexpr std::size_t kFirstTableOffset = 9;
constexpr std::size_t kSecondTableOffset = 12;
constexpr std::size_t kReservedOffset = 19;

template <class T>
T load_field(const std::byte* from) {
  T value{};
  std::memcpy(&value, from, sizeof value);
  return value;
}

std::unexpected<Error> bad_head(std::string what) {
  return std::unexpected(
      Error(ErrorCode::kCorrupt, std::move(what)).with_reason("exponent_chunk_head"));
}

bool is_form_of(ChunkForm form, Dtype dtype) {
  switch (form) {
    case ChunkForm::kRaw:
      return true;
    case ChunkForm::kCodedBf16:
      return dtype == Dtype::kBf16;
    case ChunkForm::kCodedF32:
      return dtype == Dtype::kF32;
  }
  return false;
}

}  // namespace

std::size_t exponent_element_bytes(Dtype dtype) {
  TP_ASSERT(has_exponent_code(dtype));
  return dtype_bits(dtype) / 8;
}

ChunkLayout chunk_layout(ChunkForm form, std::size_t element_count) {
  ChunkLayout layout{};
  layout.tile_count = (element_count + kTileElements - 1) / kTileElements;
  layout.group_count = (element_count + kGroupElements - 1) / kGroupElements;
  const std::size_t filled_count = layout.group_count * kGroupElements;
  layout.rests = round_up_to(kTileRecordsOffset + layout.tile_count * kTileRecordBytes,
                             kExponentChunkAlignBytes);
  layout.codes = layout.rests + filled_count;
  layout.lower_halves = layout.codes + filled_count / 4;
  layout.escapes = layout.lower_halves + (form == ChunkForm::kCodedF32 ? 2 * filled_count : 0);
  return layout;
}

void write_chunk_head(const ChunkHead& head, std::byte* chunk) {
  std::memset(chunk, 0, kTileRecordsOffset);
  std::memcpy(chunk, &head.coded_bytes, sizeof head.coded_bytes);
  std::memcpy(chunk + kElementCountOffset, &head.element_count, sizeof head.element_count);
  chunk[kFormOffset] = static_cast<std::byte>(head.form);
  std::memcpy(chunk + kFirstTableOffset, head.tables.first.data(), head.tables.first.size());
  std::memcpy(chunk + kSecondTableOffset, head.tables.second.data(), head.tables.second.size());
}

Result<ChunkHead> read_chunk_head(Dtype dtype, std::span<const std::byte> head) {
  TP_ASSERT(head.size() >= kExponentChunkHeadBytes);
  ChunkHead read{.coded_bytes = load_field<std::uint32_t>(head.data()),
                 .element_count = load_field<std::uint32_t>(head.data() + kElementCountOffset),
                 .form = static_cast<ChunkForm>(head[kFormOffset]),
                 .tables = {}};
  std::memcpy(read.tables.first.data(), head.data() + kFirstTableOffset, read.tables.first.size());
  std::memcpy(read.tables.second.data(), head.data() + kSecondTableOffset,
              read.tables.second.size());
  if (!is_form_of(read.form, dtype)) {
    return bad_head(fmt::format("a chunk says form {}, which {} has not",
                                static_cast<unsigned>(read.form), dtype_name(dtype)));
  }
  if (read.element_count == 0 || read.element_count > kExponentChunkElements) {
    return bad_head(fmt::format("a chunk says {} elements, and can have 1 to {}",
                                read.element_count, kExponentChunkElements));
  }
  const std::size_t reserved = read.form == ChunkForm::kRaw ? kFirstTableOffset : kReservedOffset;
  const std::size_t reserved_end =
      read.form == ChunkForm::kRaw ? kExponentChunkHeadBytes : kTileRecordsOffset;
  if (!std::ranges::all_of(head.subspan(reserved, reserved_end - reserved),
                           [](std::byte byte) { return byte == std::byte{0}; })) {
    return bad_head("a chunk's head has bytes in use that are reserved");
  }
  const std::size_t raw_bytes = read.element_count * exponent_element_bytes(dtype);
  const std::size_t bytes_max = raw_chunk_bytes(raw_bytes);
  const std::size_t bytes_min =
      read.form == ChunkForm::kRaw
          ? bytes_max
          : coded_chunk_bytes(chunk_layout(read.form, read.element_count).escapes);
  if (read.coded_bytes < bytes_min || read.coded_bytes > bytes_max) {
    return bad_head(fmt::format("a chunk of {} elements says that it takes {} bytes, not {} to {}",
                                read.element_count, read.coded_bytes, bytes_min, bytes_max));
  }
  return read;
}

EscapeCounts read_tile_record(const std::byte* chunk, std::size_t tile) {
  const std::byte* record = chunk + kTileRecordsOffset + tile * kTileRecordBytes;
  return {.escape_count = load_field<std::uint16_t>(record),
          .literal_count = load_field<std::uint16_t>(record + 2)};
}

void write_tile_record(const EscapeCounts& counts, std::size_t tile, std::byte* chunk) {
  const std::array<std::uint16_t, 2> fields = {static_cast<std::uint16_t>(counts.escape_count),
                                               static_cast<std::uint16_t>(counts.literal_count)};
  std::memcpy(chunk + kTileRecordsOffset + tile * kTileRecordBytes, fields.data(),
              kTileRecordBytes);
}

}  // namespace trash_panda::format
