#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "trash_panda/base/error.h"
#include "trash_panda/format/checksum.h"
#include "trash_panda/format/tensor_record.h"
#include "trash_panda/format/text_arena.h"

#include "gguf_stream.h"

namespace trash_panda::format {

/// What a GGUF file says of its tensors.
struct GgufHeader {
  std::uint32_t version = 0;
  std::uint64_t alignment_bytes = 0;
  std::uint64_t data_offset_bytes = 0;  ///< Where the data section starts.
  std::vector<TensorRecord> tensors;    ///< By offset; `file_index` is 0.
  TextArena names;                      ///< Of `tensors`.
  /// Values that describe the model, as text: scalars and strings named "general.…", "split.…" or
  /// "….block_count". Arrays and the tokenizer are left out.
  std::map<std::string, std::string> metadata;
};

/// Reads and validates the header of a GGUF file, version 2 or 3, little-endian.
///
/// Every length is held against what is left of the file before anything is taken for it. Tensors
/// are checked as ggml does: rows of whole blocks, offsets on the alignment, data dense but for
/// padding, in any order; the file ends with the last of them. Of the data, no more is read than
/// fills the last window.
///
/// @param checksum  Is given the bytes of the header.
/// @retval kCorrupt      Broken, with reason "gguf"; the message names tensor or key, and sizes.
/// @retval kUnsupported  Another version, big-endian, or a type that is not known; reason "gguf".
/// @see https://github.com/ggml-org/ggml/blob/master/docs/gguf.md; ggml/src/gguf.cpp
Result<GgufHeader> read_gguf_header(const ReadAt& read_at, std::uint64_t file_size_bytes,
                                    Checksum& checksum);

/// The same from memory.
///
/// @param head             First bytes of the file, with all of its header.
/// @param file_size_bytes  Size of the whole file.
Result<GgufHeader> parse_gguf_header(std::span<const std::byte> head,
                                     std::uint64_t file_size_bytes);

}  // namespace trash_panda::format
