#include <algorithm>
#include <array>

#include <fmt/format.h>

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
  std::string names;
  for (const ExponentImplementation& implementation : exponent_implementations()) {
    if (implementation.name == name && !implementation.is_supported) {
      return std::unexpected(Error(ErrorCode::kUnsupported,
                                   fmt::format("this CPU has no {}, which the exponent code's "
                                               "implementation \"{}\" needs",
                                               implementation.instructions, name)));
    }
    if (implementation.name == name) {
      return &implementation;
    }
    names += fmt::format("{}{}", names.empty() ? "" : ", ", implementation.name);
  }
  return std::unexpected(Error(
      ErrorCode::kUsage,
      fmt::format("the exponent code has no implementation \"{}\"; there are {}", name, names)));
}

}  // namespace trash_panda::format
