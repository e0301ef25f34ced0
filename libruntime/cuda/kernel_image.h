#pragma once

#include <cstddef>
#include <span>

namespace trash_panda::runtime::cuda {

/// The fat binary of the kernels in expand.cu, for cuModuleLoadData(); empty when the program was
/// built without nvcc.
[[nodiscard]] std::span<const std::byte> kernel_image();

}  // namespace trash_panda::runtime::cuda
