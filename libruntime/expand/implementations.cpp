#include <algorithm>
#include <array>

#ifdef __x86_64__
#include <cpuid.h>
#endif

#include "trash_panda/base/implementation.h"

#include "expand/run_kernels.h"

namespace trash_panda::runtime {

namespace {

#ifdef __x86_64__
/// __builtin_cpu_supports() knows F16C in recent compilers only.
bool has_f16c() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

bool has_avx512() {
  return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
         __builtin_cpu_supports("avx512vl") != 0;
}
#endif

}  // namespace

std::span<const ExpandImplementation> expand_implementations() {
  static const std::array kImplementations = {
#ifdef __x86_64__
      ExpandImplementation{
          .name = "avx512_bf16",
          .instructions = "AVX-512 F, BW, VL and BF16",
          .is_supported = has_avx512() && __builtin_cpu_supports("avx512bf16") != 0,
          .kernels = avx512_bf16_run_kernels},
      ExpandImplementation{.name = "avx512",
                           .instructions = "AVX-512 F, BW and VL",
                           .is_supported = has_avx512(),
                           .kernels = avx512_run_kernels},
      ExpandImplementation{.name = "avx2",
                           .instructions = "AVX2 and F16C",
                           .is_supported = __builtin_cpu_supports("avx2") != 0 && has_f16c(),
                           .kernels = avx2_run_kernels},
#endif
      ExpandImplementation{.name = "portable",
                           .instructions = "",
                           .is_supported = true,
                           .kernels =
                               [](format::Dtype from, format::Dtype to) {
                                 return std::optional(portable_run_kernels(from, to));
                               }},
  };
  return kImplementations;
}

const ExpandImplementation& best_expand_implementation() {
  return *std::ranges::find_if(expand_implementations(), &ExpandImplementation::is_supported);
}

Result<const ExpandImplementation*> find_expand_implementation(std::string_view name) {
  return find_implementation(expand_implementations(), name, "expansion");
}

}  // namespace trash_panda::runtime
