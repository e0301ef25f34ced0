#pragma once

#include "trash_panda/plan/hardware.h"

namespace trash_panda::runtime {

/// Reads what the system says about memory and GPUs; nothing is measured and nothing fails: what
/// can't be found out stays zero, with a note.
///
/// RAM from /proc/meminfo, limits from cgroup v2 or v1 (the tightest of the path), GPUs from the
/// CUDA driver loaded at run time.
[[nodiscard]] plan::Hardware probe_hardware();

}  // namespace trash_panda::runtime
