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
/// piece after the other, each into a buffer of its own that was touched before.
///
/// @return Seconds from the first read to the end of the last.
Result<double> read_plainly(std::span<const PlainRange> ranges, const PlainSetting& setting);

}  // namespace trash_panda::bench
