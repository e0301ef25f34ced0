#include <algorithm>
#include <array>

#include "trash_panda/base/implementation.h"

#include "exponent/kernels.h"

namespace trash_panda::format {

std::span<const ExponentImplementation> exponent_implementations() {
  static const std::array kImplementations = {
#ifdef __x86_64__
      ExponentImplementation{.name = "avx512",
                             .instructions = "AVX-512 F, BW, VBMI and VBMI2",
                             .is_supported = __builtin_cpu_supports("avx512f") != 0 &&
                                             __builtin_cpu_supports("avx512bw") != 0 &&
                                             __builtin_cpu_supports("avx512vbmi") != 0 &&
                                             __builtin_cpu_supports("avx512vbmi2") != 0,
                             .kernels = &kAvx512ExponentKernels},
      ExponentImplementation{.name = "avx2",
                             .instructions = "AVX2, BMI1 and POPCNT",
                             .is_supported = __builtin_cpu_supports("avx2") != 0 &&
                                             __builtin_cpu_supports("bmi") != 0 &&
                                             __builtin_cpu_supports("popcnt") != 0,
                             .kernels = &kAvx2ExponentKernels},
#endif
      ExponentImplementation{.name = "portable",
                             .instructions = "",
                             .is_supported = true,
                             .kernels = &kPortableExponentKernels},
  };
  return kImplementations;
}

const ExponentImplementation& best_exponent_implementation() {
  return *std::ranges::find_if(exponent_implementations(), &ExponentImplementation::is_supported);
}

Result<const ExponentImplementation*> find_exponent_implementation(std::string_view name) {
  return find_implementation(exponent_implementations(), name, "the exponent code");
}

}  // namespace trash_panda::format
