#include "faulty_calls.h"

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace trash_panda::testing {

namespace {

std::atomic<bool> g_is_armed = false;
std::atomic<CallFault> g_fault = CallFault::kNone;
std::atomic<DirectFault> g_direct = DirectFault::kNone;
std::atomic<std::uint64_t> g_failing_call = FaultyCalls::kNever;
std::atomic<bool> g_is_every_other = false;
std::atomic<std::uint64_t> g_count = 0;
std::atomic<std::uint64_t> g_read_bytes = 0;

template <class Function>
Function system_call(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

/// Counts a call. @return What it is to do.
CallFault next_fault() {
  if (!g_is_armed) {
    return CallFault::kNone;
  }
  const std::uint64_t call = g_count++;
  const bool fails = g_is_every_other ? call % 2 == 0 : call == g_failing_call;
  return fails ? g_fault.load() : CallFault::kNone;
}

/// Fails with the errno of `fault`. @return Whether it does.
bool fails_with(CallFault fault) {
  switch (fault) {
    case CallFault::kNoSpace:
      errno = ENOSPC;
      return true;
    case CallFault::kIo:
      errno = EIO;
      return true;
    case CallFault::kInterrupted:
      errno = EINTR;
      return true;
    case CallFault::kNone:
    case CallFault::kShort:
      return false;
  }
  return false;
}

/// Of calls that never end with EINTR.
CallFault without_interruption(CallFault fault) {
  return fault == CallFault::kInterrupted ? CallFault::kNone : fault;
}

bool is_refused(int fd) {
  if (g_is_armed && g_direct == DirectFault::kRefusedLater &&
      (::fcntl(fd, F_GETFL) & O_DIRECT) != 0) {
    errno = EINVAL;
    return true;
  }
  return false;
}

/// Half, in whole sectors where there are several: direct reads and writes stay possible.
std::size_t short_size(CallFault fault, std::size_t size) {
  constexpr std::size_t kSector = 512;
  if (fault != CallFault::kShort || size < 2) {
    return size;
  }
  return size >= 2 * kSector ? size / 2 / kSector * kSector : size / 2;
}

}  // namespace

FaultyCalls::FaultyCalls(CallFault fault, std::uint64_t call) {
  g_count = 0;
  g_read_bytes = 0;
  g_fault = fault;
  g_failing_call = call;
  g_is_armed = true;
}

FaultyCalls::FaultyCalls(CallFault fault) : FaultyCalls(fault, kNever) {
  g_is_every_other = true;
}

FaultyCalls::FaultyCalls(DirectFault fault) : FaultyCalls(CallFault::kNone, kNever) {
  g_direct = fault;
}

FaultyCalls::~FaultyCalls() {
  g_is_armed = false;
  g_is_every_other = false;
  g_direct = DirectFault::kNone;
}

std::uint64_t FaultyCalls::count() {
  return g_count;
}

std::uint64_t FaultyCalls::read_bytes() {
  return g_read_bytes;
}

namespace {

int call_open(const char* path, int flags, mode_t mode) {
  static const auto kOpen = system_call<int (*)(const char*, int, ...)>("open64");
  if (fails_with(next_fault())) {
    return -1;
  }
  if (g_is_armed && g_direct == DirectFault::kRefusedByOpen && (flags & O_DIRECT) != 0) {
    errno = EINVAL;
    return -1;
  }
  return kOpen(path, flags, mode);
}

ssize_t call_pread(int fd, void* target, std::size_t size, off_t offset) {
  static const auto kPread = system_call<ssize_t (*)(int, void*, std::size_t, off_t)>("pread64");
  const CallFault fault = next_fault();
  if (is_refused(fd) || fails_with(fault)) {
    return -1;
  }
  const ssize_t got = kPread(fd, target, short_size(fault, size), offset);
  g_read_bytes += got > 0 ? static_cast<std::uint64_t>(got) : 0;
  return got;
}

ssize_t call_pwrite(int fd, const void* bytes, std::size_t size, off_t offset) {
  static const auto kPwrite =
      system_call<ssize_t (*)(int, const void*, std::size_t, off_t)>("pwrite64");
  const CallFault fault = next_fault();
  if (is_refused(fd) || fails_with(fault)) {
    return -1;
  }
  return kPwrite(fd, bytes, short_size(fault, size), offset);
}

}  // namespace
}  // namespace trash_panda::testing

using trash_panda::testing::fails_with;
using trash_panda::testing::next_fault;
using trash_panda::testing::system_call;
using trash_panda::testing::without_interruption;

extern "C" {

int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return trash_panda::testing::call_open(path, flags, mode);
}

int open64(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return trash_panda::testing::call_open(path, flags, mode);
}

ssize_t pread(int fd, void* target, std::size_t size, off_t offset) {
  return trash_panda::testing::call_pread(fd, target, size, offset);
}

ssize_t pread64(int fd, void* target, std::size_t size, off_t offset) {
  return trash_panda::testing::call_pread(fd, target, size, offset);
}

ssize_t pwrite(int fd, const void* bytes, std::size_t size, off_t offset) {
  return trash_panda::testing::call_pwrite(fd, bytes, size, offset);
}

ssize_t pwrite64(int fd, const void* bytes, std::size_t size, off_t offset) {
  return trash_panda::testing::call_pwrite(fd, bytes, size, offset);
}

int fdatasync(int) {
  return fails_with(next_fault()) ? -1 : 0;
}

int fsync(int) {
  return fails_with(next_fault()) ? -1 : 0;
}

int ftruncate(int fd, off_t size) noexcept {
  static const auto kTruncate = system_call<int (*)(int, off_t)>("ftruncate64");
  return fails_with(next_fault()) ? -1 : kTruncate(fd, size);
}

int close(int fd) {
  static const auto kClose = system_call<int (*)(int)>("close");
  const auto fault = next_fault();
  // The descriptor is gone whatever it returns, as on Linux.
  const int closed = kClose(fd);
  return fails_with(fault) ? -1 : closed;
}

int mkdir(const char* path, mode_t mode) noexcept {
  static const auto kMkdir = system_call<int (*)(const char*, mode_t)>("mkdir");
  return fails_with(without_interruption(next_fault())) ? -1 : kMkdir(path, mode);
}

int renameat2(int from_fd, const char* from, int to_fd, const char* to,
              unsigned int flags) noexcept {
  static const auto kRename =
      system_call<int (*)(int, const char*, int, const char*, unsigned int)>("renameat2");
  return fails_with(without_interruption(next_fault())) ? -1
                                                        : kRename(from_fd, from, to_fd, to, flags);
}

}  // extern "C"
