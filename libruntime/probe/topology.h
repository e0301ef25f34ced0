#pragma once

#include "trash_panda/plan/hardware.h"

namespace trash_panda::runtime {

/// Fills cores, NUMA nodes, and the node that each GPU and NVMe drive of `hardware` is near to, by
/// hwloc. Never fails: what is not known stays empty.
void read_topology(plan::Hardware& hardware);

/// Reads an NVMe drive's PCIe link. 0 where sysfs doesn't tell.
///
/// @param name  "nvme0n1".
void read_drive_link(plan::DiskInfo& disk);

}  // namespace trash_panda::runtime
