#pragma once

#include <filesystem>
#include <span>
#include <vector>

#include "trash_panda/base/error.h"
#include "trash_panda/base/file.h"
#include "trash_panda/format/checkpoint.h"
#include "trash_panda/format/checksum.h"

#include "file_contents.h"

namespace trash_panda::format {

/// Reads the header of a GGUF file. @see read_gguf_header, file_format.h
Result<FileContents> read_gguf_file(const File& file, Checksum& fingerprint);

/// The files of a model that was split: all parts of `model-00001-of-00003.gguf`, whichever of
/// them was named, in order; any other path alone.
///
/// @retval kMissing  Parts are not there; the message names them (reason "missing_shard").
Result<std::vector<std::filesystem::path>> list_gguf_parts(const std::filesystem::path& path);

/// Holds what GGUF files say of being parts against the files that there are.
///
/// @param tensor_count  Of all of them.
/// @retval kCorrupt  A part is of another model, in another's place, or not all are there.
Result<void> check_gguf_parts(std::span<const CheckpointFile> files, std::size_t tensor_count);

}  // namespace trash_panda::format
