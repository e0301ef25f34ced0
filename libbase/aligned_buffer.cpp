#include "trash_panda/base/aligned_buffer.h"

#include <cerrno>
#include <cstdint>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "trash_panda/base/units.h"

namespace trash_panda {

namespace {

/// Of x86-64 and, with pages of 4 KiB, of arm64.
constexpr std::uint64_t kHugePageBytes = 2 * kMiB;

void* map_pages(std::uint64_t size_bytes) {
  return ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

/// Maps so much that a huge page's multiple is within, and gives back what lies around it.
void* map_on_huge_pages(std::uint64_t size_bytes) {
  void* mapped = map_pages(size_bytes + kHugePageBytes);
  if (mapped == MAP_FAILED) {
    return MAP_FAILED;
  }
  auto* begin = static_cast<std::byte*>(mapped);
  const std::uint64_t misplaced = reinterpret_cast<std::uintptr_t>(begin) % kHugePageBytes;
  const std::uint64_t head_bytes = misplaced == 0 ? 0 : kHugePageBytes - misplaced;
  if (head_bytes != 0) {
    ::munmap(begin, head_bytes);
  }
  ::munmap(begin + head_bytes + size_bytes, kHugePageBytes - head_bytes);
  // A refusal costs speed only.
  ::madvise(begin + head_bytes, size_bytes, MADV_HUGEPAGE);
  return begin + head_bytes;
}

}  // namespace

Result<AlignedBuffer> AlignedBuffer::create(std::uint64_t size_bytes) {
  if (size_bytes == 0) {
    return AlignedBuffer();
  }
  const auto page_bytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  TP_ASSIGN_OR_RETURN(const std::uint64_t rounded_bytes, round_up(size_bytes, page_bytes));
  // Neighbouring bytes are then neighbours in RAM too, so that a direct read of 2 MiB is one
  // request of the drive instead of one in many pieces, at up to twice the rate.
  void* data = rounded_bytes < kHugePageBytes || rounded_bytes > SIZE_MAX - kHugePageBytes
                   ? map_pages(rounded_bytes)
                   : map_on_huge_pages(rounded_bytes);
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
