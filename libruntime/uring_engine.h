#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "trash_panda/base/error.h"
#include "trash_panda/runtime/io_engine.h"

namespace trash_panda::runtime {

/// What a read is said to have returned: bytes, or a negative errno. Gets what it really returned.
/// Called on the engine's thread, for each completion.
using ReadResultFilter = std::function<std::int32_t(std::int32_t result)>;

/// Reads through io_uring. One thread owns the ring: it begins what was submitted, as far as
/// `options.depth` allows, waits, and calls the completions. The rest waits in a queue.
///
/// `options.backend` is not looked at.
///
/// @param filter  For tests, which are no masters of a drive's faults; empty: results as they are.
/// @retval kUsage   The depth is 0 or too large.
/// @retval kDevice  The system refuses io_uring. The message says why, the hint what helps.
/// @retval kFailed  The system refused the thread.
/// @see io_uring_setup(2), io_uring_register(2)
Result<std::unique_ptr<IoEngine>> make_uring_engine(const IoOptions& options,
                                                    ReadResultFilter filter = {});

}  // namespace trash_panda::runtime
