#pragma once

#include <cstdint>
#include <span>

#include "trash_panda/base/error.h"
#include "trash_panda/base/file.h"

namespace trash_panda::bench {

struct PlainSetting {
  std::uint64_t request_bytes;
  unsigned depth;  ///< Threads, each with one read at a time.
};

/// Part of a file.
struct PlainRange {
  const File* file;
  std::uint64_t offset_bytes;
  std::uint64_t size_bytes;
};

/// The limit that streaming is held to: threads that do nothing but read `ranges` directly, one
/// piece after the other, into memory that was touched before, around and around.
///
/// @param memory_bytes  Of that memory; at least one piece for each thread. What fits into the
///                      caches of CPU or drive is read faster, but is of no use to a model.
/// @return Seconds from the first read to the end of the last.
Result<double> read_plainly(std::span<const PlainRange> ranges, const PlainSetting& setting,
                            std::uint64_t memory_bytes = 0);

}  // namespace trash_panda::bench
