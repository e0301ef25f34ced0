#include "trash_panda/base/aligned_buffer.h"

#include <cerrno>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "trash_panda/base/units.h"

namespace trash_panda {

Result<AlignedBuffer> AlignedBuffer::create(std::uint64_t size_bytes) {
  if (size_bytes == 0) {
    return AlignedBuffer();
  }
  const auto page_bytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  TP_ASSIGN_OR_RETURN(const std::uint64_t rounded_bytes, round_up(size_bytes, page_bytes));
  void* data =
      ::mmap(nullptr, rounded_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    return std::unexpected(Error::from_errno(
        errno, fmt::format("can't get a buffer of {}", format_bytes(rounded_bytes))));
  }
  return AlignedBuffer(static_cast<std::byte*>(data), rounded_bytes);
}

AlignedBuffer::AlignedBuffer(AlignedBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_bytes_(std::exchange(other.size_bytes_, 0)) {}

AlignedBuffer& AlignedBuffer::operator=(AlignedBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_bytes_, other.size_bytes_);
  return *this;
}

AlignedBuffer::~AlignedBuffer() {
  if (data_ != nullptr) {
    ::munmap(data_, size_bytes_);
  }
}

}  // namespace trash_panda
