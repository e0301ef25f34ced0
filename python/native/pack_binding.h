#pragma once

#include <nanobind/nanobind.h>

namespace trash_panda::python {

/// Adds read_manifest(), verify_pack(), parse_bytes() and can_expand().
void bind_pack(nanobind::module_& module);

}  // namespace trash_panda::python
