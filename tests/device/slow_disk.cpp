#include "device/support/slow_disk.h"

#include <atomic>
#include <sys/syscall.h>
#include <unistd.h>

#include "device/support/fake_gpu.h"

namespace {

std::atomic<int> slow_disks = 0;

ssize_t slow_pread(int file, void* target, std::size_t size_bytes, off_t offset_bytes) {
  const ssize_t got = ::syscall(SYS_pread64, file, target, size_bytes, offset_bytes);
  if (got > 0 && slow_disks > 0) {
    trash_panda::testing::fake().disk_read(static_cast<std::uint64_t>(got));
  }
  return got;
}

}  // namespace

// In place of the C library's, in this program only.
extern "C" ssize_t pread(int file, void* target, std::size_t size_bytes, off_t offset_bytes) {
  return slow_pread(file, target, size_bytes, offset_bytes);
}
extern "C" ssize_t pread64(int file, void* target, std::size_t size_bytes, off64_t offset_bytes) {
  return slow_pread(file, target, size_bytes, offset_bytes);
}

namespace trash_panda::testing {

SlowDisk::SlowDisk() {
  ++slow_disks;
}

SlowDisk::~SlowDisk() {
  --slow_disks;
}

}  // namespace trash_panda::testing
