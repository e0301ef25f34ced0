#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "trash_panda/base/error.h"
#include "trash_panda/base/units.h"
#include "trash_panda/format/checksum.h"

namespace trash_panda::format {

/// Fills `target` with the bytes of a file from `offset_bytes` on, all of which are in the file.
using ReadAt = std::function<Result<void>(std::uint64_t offset_bytes, std::span<std::byte> target)>;

/// Longest GGUF header that is read, in bytes. Real ones have some megabytes, most of it for a
/// tokenizer; a million tensors take less than half of this.
inline constexpr std::uint64_t kGgufHeaderBytesMax = 256 * kMiB;

/// Most bytes that are held of a header at once; also the longest run that take() gives.
inline constexpr std::uint64_t kGgufWindowBytes = 256 * kKiB;

/// Why a GGUF file is refused; the reason is "gguf". @param message  Names what is wrong with what.
Error gguf_error(ErrorCode code, std::string message);

/// The bytes of a GGUF header in order, through a window of fixed size, so that neither a long
/// tokenizer nor a hostile length takes memory.
class GgufStream {
 public:
  /// @param read_at   Lives as long as the stream.
  /// @param checksum  Is given each byte that is passed, once; complete after finish().
  GgufStream(const ReadAt& read_at, std::uint64_t file_size_bytes, Checksum& checksum);

  /// Bytes passed so far.
  [[nodiscard]] std::uint64_t position_bytes() const { return position_bytes_; }
  [[nodiscard]] std::uint64_t file_size_bytes() const { return file_size_bytes_; }
  /// Bytes of the file that are not passed yet.
  [[nodiscard]] std::uint64_t remaining_bytes() const { return file_size_bytes_ - position_bytes_; }

  /// Passes `size_bytes`, kGgufWindowBytes at most, and returns them until the next call.
  /// @retval kCorrupt  The file ends before that.
  Result<std::span<const std::byte>> take(std::uint64_t size_bytes);

  /// Passes one little-endian number.
  template <std::unsigned_integral Number>
  Result<Number> take_number() {
    TP_ASSIGN_OR_RETURN(const std::span<const std::byte> bytes, take(sizeof(Number)));
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < sizeof(Number); ++i) {
      value |= std::to_integer<std::uint64_t>(bytes[i]) << (8 * i);
    }
    return static_cast<Number>(value);
  }

  /// Passes `size_bytes` without a look at them. @retval kCorrupt  The file ends before that.
  Result<void> skip(std::uint64_t size_bytes);

  /// Gives the checksum what it still lacks.
  void finish();

 private:
  Result<void> check_length(std::uint64_t size_bytes) const;
  Result<void> fill(std::uint64_t size_bytes);

  const ReadAt& read_at_;
  std::uint64_t file_size_bytes_;
  Checksum& checksum_;
  std::vector<std::byte> window_;
  std::size_t begin_ = 0;  ///< Of what is not passed, in the window.
  std::size_t end_ = 0;    ///< Of what is read, in the window.
  std::uint64_t position_bytes_ = 0;
};

}  // namespace trash_panda::format
