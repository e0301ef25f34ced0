#pragma once

#include "trash_panda/base/error.h"

#include "cuda/context.h"

namespace trash_panda::runtime::cuda {

/// Tests what asynchronous copies rely on: two ranges of host memory that share a page are pinned
/// each by itself; a copy that is queued on one stream is seen by another that waits for its event;
/// both ranges are unpinned again. Takes some 100 KiB for some milliseconds.
///
/// @param copy_stream  Idle.
/// @retval kDevice  What the driver refused or did wrong.
Result<void> test_copies(const PrimaryContext& context, Stream copy_stream);

}  // namespace trash_panda::runtime::cuda
