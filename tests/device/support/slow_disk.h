#pragma once

namespace trash_panda::testing {

/// While one of these lives, every pread() of this program takes as long as the fake machine's disk
/// takes for its bytes, in simulated time.
class SlowDisk {
 public:
  SlowDisk();
  SlowDisk(const SlowDisk&) = delete;
  SlowDisk& operator=(const SlowDisk&) = delete;
  ~SlowDisk();
};

}  // namespace trash_panda::testing
