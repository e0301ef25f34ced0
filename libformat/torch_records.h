#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trash_panda/base/error.h"
#include "trash_panda/base/file.h"

#include "file_contents.h"
#include "torch_state.h"

namespace trash_panda::format {

/// Turns a state dict into records, now that it is known where its storages are.
///
/// @param storage_offsets  From the start of the file, by index into state.storages.
/// @retval kCorrupt  Two tensors have one name (reason "duplicate"), or one repeats a few bytes to
///                   more than the file has (reason "overflow").
Result<FileContents> make_torch_records(TorchState state,
                                        std::span<const std::uint64_t> storage_offsets,
                                        const File& file);

}  // namespace trash_panda::format
