#pragma once

#include <chrono>
#include <cstdint>
#include <thread>

#include "trash_panda/base/progress.h"
#include "trash_panda/runtime/streamer.h"

namespace trash_panda::runtime {

/// Waits until nothing is read ahead any more, so that what is measured next has the drive alone;
/// or until `stop` is set.
inline void wait_until_idle(const Streamer& streamer, StopFlag stop = nullptr) {
  std::uint64_t before = UINT64_MAX;
  for (std::uint64_t now = streamer.stats().read_bytes_disk;
       now != before && (stop == nullptr || !*stop); now = streamer.stats().read_bytes_disk) {
    before = now;
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
}

}  // namespace trash_panda::runtime
