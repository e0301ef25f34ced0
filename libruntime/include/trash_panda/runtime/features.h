#pragma once

namespace trash_panda::runtime {

/// Whether the CUDA kernels were compiled into this program. Without them it builds and runs the
/// same, and computes on the CPU.
[[nodiscard]] bool cuda_kernels_embedded();

}  // namespace trash_panda::runtime
