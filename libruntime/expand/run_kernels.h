#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "trash_panda/format/dtype.h"
#include "trash_panda/runtime/expand.h"

/// The inner loops of expand(): what implementations differ in.
namespace trash_panda::runtime {

/// Neighbouring elements. No alignment is asked of either side.
struct ElementRun {
  const std::byte* from;
  std::byte* to;
  std::uint64_t count;
  /// What is written is too much for the caches: where its address allows, it goes past them, and
  /// memory is not read for lines that are overwritten as a whole.
  bool passes_caches;
};

/// Loops for one pair of dtypes.
struct RunKernels {
  /// Each element keeps its value.
  void (*cast)(const ElementRun& run);
  /// All elements are multiplied by one scale.
  void (*scale)(const ElementRun& run, float scale);
  /// Each element is multiplied by a scale of its own: `run.count` of them.
  void (*scale_each)(const ElementRun& run, const float* scales);
};

/// For every pair of dtypes that can_expand() says yes to.
[[nodiscard]] RunKernels portable_run_kernels(format::Dtype from, format::Dtype to);

#ifdef __x86_64__
/// ExpandImplementation::kernels. Nothing for pairs that are too rare to be worth it: FNUZ and F64.
[[nodiscard]] std::optional<RunKernels> avx2_run_kernels(format::Dtype from, format::Dtype to);
[[nodiscard]] std::optional<RunKernels> avx512_run_kernels(format::Dtype from, format::Dtype to);
#endif

}  // namespace trash_panda::runtime
