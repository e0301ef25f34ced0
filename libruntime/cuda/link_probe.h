#pragma once

#include <cstdint>

#include "trash_panda/base/progress.h"
#include "trash_panda/plan/hardware.h"

#include "cuda/driver.h"
#include "probe/probe_effort.h"

namespace trash_panda::runtime::cuda {

/// Measures copies to and from each GPU of `hardware`: pinned and pageable, and to it while the
/// other direction is busy. What the driver refuses stays empty, with a note.
///
/// Works in the device's primary context and leaves the caller's context current. Takes up to
/// `memory_bytes_max` of RAM, and as much of each GPU.
void measure_links(const Driver& driver, const EffortPlan& effort, std::uint64_t memory_bytes_max,
                   StopFlag stop, plan::Hardware& hardware);

}  // namespace trash_panda::runtime::cuda
