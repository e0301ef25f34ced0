#pragma once

#include <cstdint>
#include <span>

#include "trash_panda/base/aligned_buffer.h"
#include "trash_panda/base/error.h"
#include "trash_panda/base/file.h"
#include "trash_panda/base/progress.h"

#include "probe_effort.h"
#include "read_trial.h"

namespace trash_panda::runtime {

/// Part of a file.
struct PlainRange {
  const File* file;
  std::uint64_t offset_bytes;
  std::uint64_t size_bytes;
};

struct PlainRead {
  double seconds;  ///< From the first read to the end of the last.
  std::uint64_t read_bytes;
};

/// The limit that streaming is held to: threads that do nothing but read `ranges`, one piece after
/// the other, into memory that was touched before, around and around.
///
/// @param setting       Its depth is the number of threads, each with one read at a time.
/// @param memory_bytes  Of that memory; at least one piece for each thread. What fits into the
///                      caches of CPU or drive is read faster, but is of no use to a model.
/// @retval kInterrupted  `stop` was set.
/// @retval kCorrupt      A file ends before.
/// @retval kFailed       The system refused memory, a thread or a read.
Result<PlainRead> read_plainly(std::span<const PlainRange> ranges, const ReadSetting& setting,
                               std::uint64_t memory_bytes = 0, StopFlag stop = nullptr);

/// The same, but of a file around and around, for about `duration`; as ReadTrials::read_rate() does
/// through an engine.
///
/// @param memory  At least `setting.in_flight_bytes()`, touched before.
/// @return Bytes per second.
/// @retval kInterrupted  `stop` was set.
/// @retval kCorrupt      The file ends before the end of `area`.
/// @retval kFailed       The system refused a thread or a read.
Result<double> plain_read_rate(const File& file, ReadArea& area, const ReadSetting& setting,
                               const AlignedBuffer& memory, Seconds duration, StopFlag stop);

}  // namespace trash_panda::runtime
