#pragma once

#include "trash_panda/base/error.h"
#include "trash_panda/base/file.h"
#include "trash_panda/format/checksum.h"

#include "file_contents.h"

namespace trash_panda::format {

/// Reads a checkpoint of torch.save(): a zip archive of a pickle and the storages that it names.
///
/// @retval kUnsupported  Another zip archive, compressed or big-endian data, or a pickle that is
///                       not taken: see parse_torch_pickle().
/// @retval kCorrupt      Archive or pickle are damaged, or a storage is missing or of another size.
/// @see torch 2.11, serialization.py, _save() and _load()
Result<FileContents> read_torch_zip(const File& file, Checksum& fingerprint);

/// Reads a checkpoint of torch.save() before torch 1.6: five pickles, then the storages.
///
/// @retval kUnsupported  Another pickle, by what is wrong with it.
/// @see torch 2.11, serialization.py, _legacy_save() and _legacy_load()
Result<FileContents> read_torch_legacy(const File& file, Checksum& fingerprint);

}  // namespace trash_panda::format
