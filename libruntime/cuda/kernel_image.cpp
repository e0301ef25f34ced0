#include "cuda/kernel_image.h"

#include "trash_panda/runtime/features.h"

#ifdef TP_HAS_CUDA_KERNELS
// Made by kernel_image.S. Arrays of unknown size, as their addresses are all there is.
// NOLINTBEGIN(readability-identifier-naming)
extern "C" const std::byte tp_kernel_image[];
extern "C" const std::byte tp_kernel_image_end[];
// NOLINTEND(readability-identifier-naming)
#endif

namespace trash_panda::runtime {

namespace cuda {

std::span<const std::byte> kernel_image() {
#ifdef TP_HAS_CUDA_KERNELS
  return {tp_kernel_image, tp_kernel_image_end};
#else
  return {};
#endif
}

}  // namespace cuda

bool cuda_kernels_embedded() {
  return !cuda::kernel_image().empty();
}

}  // namespace trash_panda::runtime
