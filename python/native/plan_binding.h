#pragma once

#include <nanobind/nanobind.h>

namespace trash_panda::python {

/// Adds parse_plan(), retier_plan(), explain_block(), check_plan(), find_blocks(), probe_hardware()
/// and read_checkpoint(): decisions and what they are made from. Making plans is the command line's
/// work, which measures the machine first.
void bind_plan(nanobind::module_& module);

}  // namespace trash_panda::python
