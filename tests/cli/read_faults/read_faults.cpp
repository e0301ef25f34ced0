// Loaded into the program by LD_PRELOAD: reads of some files are as those of a drive that fails, or
// of a slow one.
//
//   TP_FAIL_READS_OF=TEXT   reads of files whose path has TEXT in it give EIO
//   TP_SLOW_READS_OF=TEXT   they take 200 ms more

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <sys/syscall.h>

// Not <unistd.h>, which may give pread() another name than it has in the library.
extern "C" long syscall(long number, ...);

namespace {

bool is_of(int fd, const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr) {
    return false;
  }
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  std::array<char, 4096> path{};
  return ::syscall(SYS_readlink, link.c_str(), path.data(), path.size() - 1) > 0 &&
         std::strstr(path.data(), text) != nullptr;
}

long read_with_faults(int fd, void* buffer, std::size_t size_bytes, long offset_bytes) {
  if (is_of(fd, "TP_FAIL_READS_OF")) {
    errno = EIO;
    return -1;
  }
  if (is_of(fd, "TP_SLOW_READS_OF")) {
    const struct timespec pause = {.tv_sec = 0, .tv_nsec = 200'000'000};
    ::nanosleep(&pause, nullptr);
  }
  return ::syscall(SYS_pread64, fd, buffer, size_bytes, offset_bytes);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) long pread(int fd, void* buffer,
                                                             std::size_t size_bytes,
                                                             long offset_bytes) {
  return read_with_faults(fd, buffer, size_bytes, offset_bytes);
}

extern "C" __attribute__((visibility("default"))) long pread64(int fd, void* buffer,
                                                               std::size_t size_bytes,
                                                               long offset_bytes) {
  return read_with_faults(fd, buffer, size_bytes, offset_bytes);
}
