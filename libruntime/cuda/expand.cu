// Kernels that expand fp8 weights: one grid-stride loop over the shared element function. Compiled
// without contraction to fused multiply-add, so that results are bit-equal to the host's.

#include "cuda/expand_kernel.h"

namespace {

using namespace trash_panda::runtime::cuda;  // NOLINT: the kernels below have C names.

__device__ std::uint64_t first_element() {
  return static_cast<std::uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ std::uint64_t element_stride() {
  return static_cast<std::uint64_t>(gridDim.x) * blockDim.x;
}

}  // namespace

#define TP_EXPAND_KERNEL(name, format, target)                                         \
  extern "C" __global__ void name(ExpandFp8Arguments arguments) {                      \
    expand_fp8_elements<target>(format, arguments, first_element(), element_stride()); \
  }

TP_EXPAND_KERNEL(tp_expand_e4m3_bf16, kE4M3, Bf16Target)
TP_EXPAND_KERNEL(tp_expand_e4m3_f16, kE4M3, F16Target)
TP_EXPAND_KERNEL(tp_expand_e4m3_f32, kE4M3, F32Target)
TP_EXPAND_KERNEL(tp_expand_e5m2_bf16, kE5M2, Bf16Target)
TP_EXPAND_KERNEL(tp_expand_e5m2_f16, kE5M2, F16Target)
TP_EXPAND_KERNEL(tp_expand_e5m2_f32, kE5M2, F32Target)
TP_EXPAND_KERNEL(tp_expand_e4m3fnuz_bf16, kE4M3Fnuz, Bf16Target)
TP_EXPAND_KERNEL(tp_expand_e4m3fnuz_f16, kE4M3Fnuz, F16Target)
TP_EXPAND_KERNEL(tp_expand_e4m3fnuz_f32, kE4M3Fnuz, F32Target)
TP_EXPAND_KERNEL(tp_expand_e5m2fnuz_bf16, kE5M2Fnuz, Bf16Target)
TP_EXPAND_KERNEL(tp_expand_e5m2fnuz_f16, kE5M2Fnuz, F16Target)
TP_EXPAND_KERNEL(tp_expand_e5m2fnuz_f32, kE5M2Fnuz, F32Target)
