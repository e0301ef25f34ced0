#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "trash_panda/base/error.h"

namespace trash_panda {

/// Page-aligned anonymous memory, zeroed when made, given back to the system when destroyed.
///
/// For direct reads and slots: sizes are exact (rounded up to pages only), so that what is booked
/// is what is taken. Not pinned and not registered with any device.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  AlignedBuffer(AlignedBuffer&& other) noexcept;
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept;
  AlignedBuffer(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(const AlignedBuffer&) = delete;
  ~AlignedBuffer();

  /// @param size_bytes  Rounded up to whole pages; 0 gives an empty buffer.
  /// @retval kFailed  The system refused the memory; the message has the size.
  static Result<AlignedBuffer> create(std::uint64_t size_bytes);

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::uint64_t size_bytes() const { return size_bytes_; }
  [[nodiscard]] std::span<std::byte> span() const { return {data_, size_bytes_}; }

 private:
  AlignedBuffer(std::byte* data, std::uint64_t size_bytes) : data_(data), size_bytes_(size_bytes) {}

  std::byte* data_ = nullptr;
  std::uint64_t size_bytes_ = 0;
};

}  // namespace trash_panda
