#include "trash_panda/format/zstd_code.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>

#include <fmt/format.h>
#include <zstd.h>

namespace trash_panda::format {

namespace {

/// The highest width of an element in bytes, and so the most planes.
constexpr std::size_t kPlanesMax = 8;
/// Higher levels take many times longer for a percent.
constexpr int kLevel = 1;

/// The head of a chunk, as it lies there. Little-endian, as this machine.
struct ChunkHead {
  std::uint32_t coded_bytes;
  std::uint32_t raw_bytes;
  std::uint8_t plane_count;  ///< Width of an element in bytes; 0: the chunk is stored as it is.
  std::array<std::uint8_t, 7> reserved;
  std::array<std::uint32_t, kPlanesMax> planes_bytes;  ///< Stored; as many as raw: no frame.
  std::array<std::uint8_t, 16> more_reserved;
};
static_assert(sizeof(ChunkHead) == kZstdChunkHeadBytes);

std::uint64_t padded(std::uint64_t size_bytes) {
  return (size_bytes + kZstdChunkAlignBytes - 1) / kZstdChunkAlignBytes * kZstdChunkAlignBytes;
}

std::size_t width_of(Dtype dtype) {
  return std::max(1U, dtype_bits(dtype) / 8);
}

Error damaged(std::string_view how) {
  return Error(ErrorCode::kCorrupt, fmt::format("a chunk of zstd code {}", how))
      .with_reason("code");
}

struct FreeContext {
  void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
  void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
};

/// What a thread needs again and again.
struct Workspace {
  std::unique_ptr<ZSTD_CCtx, FreeContext> compression;
  std::unique_ptr<ZSTD_DCtx, FreeContext> decompression;
  std::unique_ptr<std::byte[]> plane;  ///< kZstdChunkBytes.
};

Result<Workspace*> workspace() {
  thread_local Workspace space;
  if (!space.plane) {
    space.compression.reset(ZSTD_createCCtx());
    space.decompression.reset(ZSTD_createDCtx());
    if (!space.compression || !space.decompression) {
      return std::unexpected(Error(ErrorCode::kFailed, "there is no memory for libzstd"));
    }
    space.plane = std::make_unique_for_overwrite<std::byte[]>(kZstdChunkBytes);
  }
  return &space;
}

void take_plane(std::span<const std::byte> raw, std::size_t width, std::size_t plane,
                std::span<std::byte> target) {
  for (std::size_t i = 0; i < target.size(); ++i) {
    target[i] = raw[i * width + plane];
  }
}

void put_plane(std::span<const std::byte> bytes, std::size_t width, std::size_t plane,
               std::span<std::byte> raw) {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    raw[i * width + plane] = bytes[i];
  }
}

/// Stores a plane, as a frame if that is smaller. @return The bytes that it takes.
std::size_t store_plane(Workspace& space, std::span<const std::byte> plane,
                        std::span<std::byte> target) {
  const std::size_t size = ZSTD_compressCCtx(space.compression.get(), target.data(),
                                             std::min(target.size(), plane.size() - 1),
                                             plane.data(), plane.size(), kLevel);
  if (ZSTD_isError(size) == 0) {
    return size;
  }
  std::memcpy(target.data(), plane.data(), plane.size());
  return plane.size();
}

/// @return The size of the chunk.
std::uint64_t encode_chunk(Workspace& space, std::size_t width, std::span<const std::byte> raw,
                           std::span<std::byte> coded) {
  ChunkHead head = {};
  head.raw_bytes = static_cast<std::uint32_t>(raw.size());
  head.plane_count = static_cast<std::uint8_t>(width);
  const std::size_t plane_bytes = raw.size() / width;
  std::size_t end_bytes = kZstdChunkHeadBytes;
  for (std::size_t i = 0; i < width; ++i) {
    std::span<const std::byte> plane = raw;
    if (width > 1) {
      const std::span<std::byte> sorted(space.plane.get(), plane_bytes);
      take_plane(raw, width, i, sorted);
      plane = sorted;
    }
    const std::size_t stored_bytes = store_plane(space, plane, coded.subspan(end_bytes));
    head.planes_bytes.at(i) = static_cast<std::uint32_t>(stored_bytes);
    end_bytes += stored_bytes;
  }
  if (end_bytes == kZstdChunkHeadBytes + raw.size()) {  // Nothing was gained: without sorting.
    head.plane_count = 0;
    head.planes_bytes = {};
    std::memcpy(coded.data() + kZstdChunkHeadBytes, raw.data(), raw.size());
  }
  head.coded_bytes = static_cast<std::uint32_t>(padded(end_bytes));
  std::memcpy(coded.data(), &head, sizeof(head));
  std::memset(coded.data() + end_bytes, 0, head.coded_bytes - end_bytes);
  return head.coded_bytes;
}

bool is_zero(std::span<const std::uint8_t> bytes) {
  return std::ranges::all_of(bytes, [](std::uint8_t byte) { return byte == 0; });
}

/// Reads a head and checks all of it.
Result<ChunkHead> read_head(Dtype dtype, std::span<const std::byte> bytes) {
  TP_ASSERT(bytes.size() >= kZstdChunkHeadBytes);
  ChunkHead head;
  std::memcpy(&head, bytes.data(), sizeof(head));
  const std::size_t width = width_of(dtype);
  if (head.raw_bytes == 0 || head.raw_bytes > kZstdChunkBytes || head.raw_bytes % width != 0) {
    return std::unexpected(damaged(
        fmt::format("says that it holds {} bytes of {}", head.raw_bytes, dtype_name(dtype))));
  }
  if (head.plane_count != 0 && head.plane_count != width) {
    return std::unexpected(
        damaged(fmt::format("of {} has {} planes", dtype_name(dtype), head.plane_count)));
  }
  const std::size_t plane_bytes = head.plane_count == 0 ? 0 : head.raw_bytes / head.plane_count;
  std::uint64_t stored_bytes = head.plane_count == 0 ? head.raw_bytes : 0;
  for (std::size_t i = 0; i < kPlanesMax; ++i) {
    const std::uint32_t size_bytes = head.planes_bytes.at(i);
    if (i < head.plane_count ? size_bytes == 0 || size_bytes > plane_bytes : size_bytes != 0) {
      return std::unexpected(
          damaged(fmt::format("has {} bytes for plane {} of {}", size_bytes, i, plane_bytes)));
    }
    stored_bytes += size_bytes;
  }
  if (head.coded_bytes != padded(kZstdChunkHeadBytes + stored_bytes)) {
    return std::unexpected(damaged(
        fmt::format("of {} stored bytes says that it has {}", stored_bytes, head.coded_bytes)));
  }
  if (!is_zero(head.reserved) || !is_zero(head.more_reserved)) {
    return std::unexpected(damaged("has reserved bytes that are not zero"));
  }
  return head;
}

/// Decodes a plane that is a frame.
Result<void> decode_plane(Workspace& space, std::span<const std::byte> frame,
                          std::span<std::byte> plane) {
  // One frame and nothing behind it: the library would go on with what follows.
  if (ZSTD_findFrameCompressedSize(frame.data(), frame.size()) != frame.size()) {
    return std::unexpected(damaged("has a plane that is not one frame"));
  }
  const std::size_t size = ZSTD_decompressDCtx(space.decompression.get(), plane.data(),
                                               plane.size(), frame.data(), frame.size());
  if (size != plane.size()) {
    return std::unexpected(
        damaged(ZSTD_isError(size) != 0
                    ? fmt::format("can't be decoded: {}", ZSTD_getErrorName(size))
                    : fmt::format("has a plane of {} bytes instead of {}", size, plane.size())));
  }
  return {};
}

}  // namespace

std::uint64_t zstd_coded_bytes_max(std::uint64_t raw_bytes) {
  const std::uint64_t rest_bytes = raw_bytes % kZstdChunkBytes;
  return raw_bytes / kZstdChunkBytes * padded(kZstdChunkHeadBytes + kZstdChunkBytes) +
         (rest_bytes == 0 ? 0 : padded(kZstdChunkHeadBytes + rest_bytes));
}

Result<std::uint64_t> encode_zstd(Dtype dtype, std::span<const std::byte> raw,
                                  std::span<std::byte> coded) {
  TP_ASSERT(raw.size() % width_of(dtype) == 0 && coded.size() >= zstd_coded_bytes_max(raw.size()));
  TP_ASSIGN_OR_RETURN(Workspace* const space, workspace());
  std::uint64_t coded_bytes = 0;
  while (!raw.empty()) {
    const std::span<const std::byte> chunk =
        raw.first(std::min<std::size_t>(raw.size(), kZstdChunkBytes));
    coded_bytes += encode_chunk(*space, width_of(dtype), chunk, coded.subspan(coded_bytes));
    raw = raw.subspan(chunk.size());
  }
  return coded_bytes;
}

Result<ZstdChunkSize> read_zstd_chunk_size(Dtype dtype, std::span<const std::byte> head) {
  TP_ASSIGN_OR_RETURN(const ChunkHead read, read_head(dtype, head));
  return ZstdChunkSize{.coded_bytes = read.coded_bytes, .raw_bytes = read.raw_bytes};
}

Result<void> decode_zstd_chunk(Dtype dtype, std::span<const std::byte> coded_chunk,
                               std::span<std::byte> raw) {
  if (coded_chunk.size() < kZstdChunkHeadBytes) {
    return std::unexpected(damaged("is shorter than its head"));
  }
  TP_ASSIGN_OR_RETURN(const ChunkHead head, read_head(dtype, coded_chunk));
  if (head.coded_bytes != coded_chunk.size() || head.raw_bytes != raw.size()) {
    return std::unexpected(
        damaged(fmt::format("of {} bytes for {} is where one of {} for {} has to be",
                            head.coded_bytes, head.raw_bytes, coded_chunk.size(), raw.size())));
  }
  std::span<const std::byte> rest = coded_chunk.subspan(kZstdChunkHeadBytes);
  if (head.plane_count == 0) {
    std::memcpy(raw.data(), rest.data(), raw.size());
    return {};
  }
  TP_ASSIGN_OR_RETURN(Workspace* const space, workspace());
  const std::size_t width = head.plane_count;
  const std::size_t plane_bytes = raw.size() / width;
  const std::span<std::byte> scratch(space->plane.get(), plane_bytes);
  for (std::size_t i = 0; i < width; ++i) {
    std::span<const std::byte> plane = rest.first(head.planes_bytes.at(i));
    rest = rest.subspan(plane.size());
    if (plane.size() < plane_bytes) {
      const std::span<std::byte> target = width == 1 ? raw : scratch;
      TP_RETURN_IF_ERROR(decode_plane(*space, plane, target));
      plane = target;
    }
    if (width > 1) {
      put_plane(plane, width, i, raw);
    } else if (plane.data() != raw.data()) {
      std::memcpy(raw.data(), plane.data(), raw.size());
    }
  }
  return {};
}

}  // namespace trash_panda::format
