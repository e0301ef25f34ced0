#include "trash_panda/runtime/probe.h"

#include "cuda/driver.h"
#include "cuda/gpu_probe.h"
#include "memory_limits.h"

namespace trash_panda::runtime {

plan::Hardware probe_hardware() {
  plan::Hardware hardware;
  read_memory_limits("/proc", "/sys/fs/cgroup", hardware);
  cuda::probe_gpus(cuda::Driver::load(), hardware);
  return hardware;
}

}  // namespace trash_panda::runtime
