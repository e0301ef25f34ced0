#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "trash_panda/base/error.h"

#include "gguf_stream.h"

namespace trash_panda::format {

/// Longest name of a key that the format allows, in bytes; tensors' names are held to it, too.
inline constexpr std::uint64_t kGgufNameBytesMax = 65535;

/// What is of use among the key-value pairs of a header.
struct GgufValues {
  std::uint64_t alignment_bytes = 32;           ///< As the format has it where nothing is said.
  std::map<std::string, std::string> metadata;  ///< @see GgufHeader::metadata
};

/// Passes a name: a length and so many bytes of UTF-8.
///
/// @param what  What it names, for messages: "key", "tensor name".
/// @retval kCorrupt  Longer than kGgufNameBytesMax, or no UTF-8.
Result<std::string> take_gguf_name(GgufStream& stream, std::string_view what);

/// Passes the key-value pairs. @retval kCorrupt  A key is empty or there twice, a value has no
/// known type or reaches past the end of the file, or the alignment is none.
Result<GgufValues> read_gguf_values(GgufStream& stream, std::uint64_t count);

}  // namespace trash_panda::format
