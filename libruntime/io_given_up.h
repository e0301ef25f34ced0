#pragma once

#include "trash_panda/base/error.h"
#include "trash_panda/runtime/io_engine.h"

namespace trash_panda::runtime {

/// kInterrupted, for a read that had not begun when its engine was destroyed.
[[nodiscard]] Error read_given_up(const ReadRequest& request);

}  // namespace trash_panda::runtime
