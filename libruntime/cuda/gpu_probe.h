#pragma once

#include "trash_panda/plan/hardware.h"

#include "cuda/driver.h"

namespace trash_panda::runtime::cuda {

/// Fills `gpus` and `gpu_note` of `hardware`. Never fails: a GPU that can't be asked is left out,
/// with a note.
///
/// Free VRAM is what the driver says with a context on the device, which takes some of it: what a
/// program can really have.
void probe_gpus(const Result<Driver>& driver, plan::Hardware& hardware);

/// "GPU-01020304-0506-…", as nvidia-smi and CUDA_VISIBLE_DEVICES write it.
[[nodiscard]] std::string to_string(const Uuid& uuid);

}  // namespace trash_panda::runtime::cuda
