#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "trash_panda/base/error.h"

#include "device.h"
#include "tensor_layout.h"

namespace trash_panda::runtime {

/// Bytes of an entry of a chunk table.
inline constexpr std::uint64_t kChunkEntryBytes = sizeof(std::uint32_t);

/// What an extent takes in the memory of a device that decodes: its bytes, and the table of its
/// chunks.
[[nodiscard]] std::uint64_t device_bytes(const format::PackedExtent& extent,
                                         const TensorLayout& layout);

/// Where each chunk of an extent's exponent-coded tensors begins in the code of its tensor, in
/// units of format::kExponentChunkAlignBytes: a chunk's size is in its head, and so many heads are
/// quickly read on the CPU only. Empty where nothing is coded.
///
/// Checks besides what a decoder on a device relies on, so that whatever an extent holds nothing
/// outside of it is read or written.
///
/// @param extent  As it is stored.
/// @retval kCorrupt      The code of a tensor is damaged.
/// @retval kUnsupported  A tensor is in another code, or not where packs have codes.
Result<std::vector<std::uint32_t>> make_chunk_table(const TensorLayout& layout,
                                                    std::span<const std::byte> extent);

/// Queues the copies of an extent and of its chunk table.
///
/// @param target  At least device_bytes().
/// @param chunks  Taken by the call; few bytes, so that it does not wait for what is queued.
/// @retval kDevice  The driver refused; nothing that reads `extent` is queued.
Result<void> copy_extent(Device& device, std::span<std::byte> target,
                         std::span<const std::byte> extent, const TensorLayout& layout,
                         std::span<const std::uint32_t> chunks);

}  // namespace trash_panda::runtime
