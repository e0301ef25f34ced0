// Kernels that make weights: grid-stride loops over the shared functions of a run of elements, and
// of a tile in the exponent code. Compiled without contraction to fused multiply-add, so that
// results are bit-equal to the host's.

#include "cuda/decode_kernel.h"
#include "cuda/expand_kernel.h"

namespace {

using namespace trash_panda::runtime::cuda;  // NOLINT: the kernels below have C names.

__device__ std::uint64_t first_thread() {
  return static_cast<std::uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ std::uint64_t thread_count() {
  return static_cast<std::uint64_t>(gridDim.x) * blockDim.x;
}

}  // namespace

#define TP_EXPAND_KERNEL(name, Source, Target)                                  \
  extern "C" __global__ void name(ExpandArguments arguments) {                  \
    expand_elements<Source, Target>(arguments, first_thread(), thread_count()); \
  }

TP_EXPAND_KERNELS(TP_EXPAND_KERNEL)

// A block is a whole number of warps.
#define TP_DECODE_KERNEL(name, Code, Target)                           \
  extern "C" __global__ void name(DecodeArguments arguments) {         \
    decode_tiles<Code, Target>(arguments, first_thread() / kWarpLanes, \
                               thread_count() / kWarpLanes);           \
  }

TP_DECODE_KERNELS(TP_DECODE_KERNEL)
