#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trash_panda/base/error.h"
#include "trash_panda/format/tensor_record.h"
#include "trash_panda/format/text_arena.h"

namespace trash_panda::format {

/// Bytes of the length field that a safetensors file begins with.
inline constexpr std::uint64_t kLengthFieldBytes = 8;

/// Longest header that is read, in bytes: the reference reader's own limit, so a file that it
/// accepts is never refused here, and a hostile length can't make us allocate more.
inline constexpr std::uint64_t kHeaderBytesMax = 100'000'000;

/// What a header says: its tensors in the order of their data, and `__metadata__`.
struct SafetensorsHeader {
  std::vector<TensorRecord>
      tensors;      ///< `file_index` is 0; offsets are from the start of the file.
  TextArena names;  ///< Of `tensors`.
  std::map<std::string, std::string> metadata;
  bool has_metadata = false;  ///< It says `__metadata__`, were it of no entries.
};

/// Reads the length field of a safetensors file and returns the header's size in bytes, without
/// the field itself.
///
/// The caller next reads [8, 8 + result) and hands that to parse_header().
///
/// @param head             First bytes of the file, as many as there are up to 512: other formats
///                         (pickle, zip, tar, GGUF, HTML, LFS pointer) are recognised by them.
/// @param file_size_bytes  Size of the whole file, as the operating system reports it.
/// @retval kCorrupt      Too short, or the header would reach past the end of the file.
/// @retval kUnsupported  Longer than kHeaderBytesMax, or another format.
/// @see safetensors, README section "Format": 8 bytes, unsigned, little-endian.
Result<std::uint64_t> read_header_size(std::span<const std::byte> head,
                                       std::uint64_t file_size_bytes);

/// Parses and validates a header by every rule of the reference reader, and some that it leaves
/// out: duplicate names are refused, truncated and trailing are told apart with both sizes.
///
/// Offsets must cover the data section exactly: no hole, no overlap, in any header order.
///
/// @param text             The header, without the length field. Copied where padding is needed.
/// @param file_size_bytes  Size of the whole file.
/// @retval kCorrupt      Broken in any way; the reason is the class (json, duplicate, offsets …).
/// @retval kUnsupported  A dtype that the format does not have (reason "dtype").
Result<SafetensorsHeader> parse_header(std::string_view text, std::uint64_t file_size_bytes);

}  // namespace trash_panda::format
