#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trash_panda/format/checkpoint.h"
#include "trash_panda/format/tensor_record.h"
#include "trash_panda/format/text_arena.h"

namespace trash_panda::format {

/// What the header of one file says, whatever its format.
struct FileContents {
  std::vector<TensorRecord> tensors;  ///< By offset; `file_index` is set by who asked.
  TextArena names;                    ///< Of `tensors`.
  std::map<std::string, std::string> metadata;
  bool has_metadata = false;               ///< Of safetensors: as SafetensorsHeader.
  std::uint64_t data_offset_bytes = 0;     ///< Where the first tensor may start.
  std::vector<std::string> notes;          ///< Remarks for the user, one line each.
  FileKind kind = FileKind::kSafetensors;  ///< Set by who asked.
};

}  // namespace trash_panda::format
