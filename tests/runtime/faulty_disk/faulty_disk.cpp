// A library for LD_PRELOAD that makes the system calls of reading behave as real ones may, but
// rarely do. TP_TEST_DISK says how:
//
//   refuse_direct   open() with O_DIRECT fails with EINVAL, as on some network filesystems
//   refuse_reads    it succeeds, but reading from such a file fails with EINVAL
//   half_reads      pread() returns half of what was asked, in whole pages
//   interrupted     every other pread() fails with EINTR
//   broken          while tp_test_break_disk(true) holds, every third pread() fails with EIO
//   slow            pread() takes up to 2 ms longer

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <dlfcn.h>
#include <fcntl.h>
#include <string_view>
#include <unistd.h>

namespace {

enum class Fault { kNone, kRefuseDirect, kRefuseReads, kHalfReads, kInterrupted, kBroken, kSlow };

Fault fault() {
  static const Fault kFault = [] {
    const char* text = std::getenv("TP_TEST_DISK");
    const std::string_view name = text == nullptr ? "" : text;
    return name == "refuse_direct"  ? Fault::kRefuseDirect
           : name == "refuse_reads" ? Fault::kRefuseReads
           : name == "half_reads"   ? Fault::kHalfReads
           : name == "interrupted"  ? Fault::kInterrupted
           : name == "broken"       ? Fault::kBroken
           : name == "slow"         ? Fault::kSlow
                                    : Fault::kNone;
  }();
  return kFault;
}

using Open = int (*)(const char*, int, ...);
using Pread = ssize_t (*)(int, void*, std::size_t, off_t);

template <class Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

std::atomic<bool> is_broken = false;

ssize_t faulty_pread(int fd, void* target, std::size_t size_bytes, off_t offset_bytes) {
  static const auto kPread = next<Pread>("pread64");
  static std::atomic<unsigned> calls = 0;
  constexpr std::size_t kPageBytes = 4096;
  if (fault() == Fault::kInterrupted && calls++ % 2 == 0) {
    errno = EINTR;
    return -1;
  }
  if (is_broken && calls++ % 3 == 0) {
    errno = EIO;
    return -1;
  }
  if (fault() == Fault::kSlow) {
    ::usleep(calls++ * 7919 % 2000);
  }
  if (fault() == Fault::kRefuseReads && (::fcntl(fd, F_GETFL) & O_DIRECT) != 0) {
    errno = EINVAL;
    return -1;
  }
  if (fault() == Fault::kHalfReads && size_bytes > kPageBytes) {
    size_bytes = size_bytes / 2 / kPageBytes * kPageBytes;
    size_bytes = size_bytes == 0 ? kPageBytes : size_bytes;
  }
  return kPread(fd, target, size_bytes, offset_bytes);
}

int faulty_open(const char* path, int flags, mode_t mode) {
  static const auto kOpen = next<Open>("open64");
  if (fault() == Fault::kRefuseDirect && (flags & O_DIRECT) != 0) {
    errno = EINVAL;
    return -1;
  }
  return kOpen(path, flags, mode);
}

}  // namespace

#define TP_EXPORT extern "C" __attribute__((visibility("default")))

/// Of the disk "broken": no other ever is.
TP_EXPORT void tp_test_break_disk(bool is_to_break) {
  is_broken = is_to_break && fault() == Fault::kBroken;
}

TP_EXPORT int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return faulty_open(path, flags, mode);
}

TP_EXPORT int open64(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return faulty_open(path, flags, mode);
}

TP_EXPORT ssize_t pread(int fd, void* target, std::size_t size_bytes, off_t offset_bytes) {
  return faulty_pread(fd, target, size_bytes, offset_bytes);
}

TP_EXPORT ssize_t pread64(int fd, void* target, std::size_t size_bytes, off_t offset_bytes) {
  return faulty_pread(fd, target, size_bytes, offset_bytes);
}
