#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "trash_panda/base/error.h"
#include "trash_panda/base/progress.h"

namespace trash_panda::format {

struct ChunkPipelineOptions {
  std::uint64_t buffer_bytes;  ///< Of each buffer; page-aligned.
  std::size_t buffer_count;    ///< All the memory that is taken; at least 1.
  unsigned thread_count;       ///< That fill buffers; at least 1.
  StopFlag stop = nullptr;
};

/// Fills chunk `chunk_index`, using `buffer`; called from several threads at once, in no order.
/// @return The chunk's bytes, which may lie anywhere inside `buffer`.
using ChunkFill = std::function<Result<std::span<const std::byte>>(std::size_t chunk_index,
                                                                   std::span<std::byte> buffer)>;
/// Works on a chunk; called in order, from one thread.
using ChunkUse =
    std::function<Result<void>(std::size_t chunk_index, std::span<const std::byte> bytes)>;

/// Reads ahead on threads while others work through what was read, in order: so that a drive never
/// waits for a checksum, nor a checksum for more than the drive.
///
/// Every chunk goes through all `stages`, one after the other. The last one runs on the calling
/// thread, those before it each on a thread of its own. Ends at the first error in chunk order,
/// after the threads have finished what they were doing.
///
/// @retval kInterrupted  `options.stop` was set; looked at before each chunk.
Result<void> run_chunk_pipeline(std::size_t chunk_count, const ChunkPipelineOptions& options,
                                const ChunkFill& fill, const std::vector<ChunkUse>& stages);

}  // namespace trash_panda::format
