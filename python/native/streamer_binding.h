#pragma once

#include <nanobind/nanobind.h>

namespace trash_panda::python {

/// Adds the classes Streamer and Lease to the module.
void bind_streamer(nanobind::module_& module);

}  // namespace trash_panda::python
