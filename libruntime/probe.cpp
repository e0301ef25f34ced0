#include "trash_panda/runtime/probe.h"

#include "memory_limits.h"

namespace trash_panda::runtime {

plan::Hardware probe_hardware() {
  plan::Hardware hardware;
  read_memory_limits("/proc", "/sys/fs/cgroup", hardware);
  return hardware;
}

}  // namespace trash_panda::runtime
