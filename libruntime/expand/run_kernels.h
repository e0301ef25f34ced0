#pragma once

#include <array>
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

/// What the codes without a sign of an 8-bit dtype become with one scale, in BF16. Those with a
/// sign become the same with a sign, if the scale has none.
struct MagnitudeTable {
  static constexpr std::size_t kCodes = 128;
  alignas(64) std::array<std::byte, kCodes * sizeof(std::uint16_t)> results;
};

/// Elements that are looked up at once.
inline constexpr std::uint64_t kLookUpStep = 32;

/// Loops for one pair of dtypes.
struct RunKernels {
  /// Each element keeps its value.
  void (*cast)(const ElementRun& run);
  /// All elements are multiplied by one scale.
  void (*scale)(const ElementRun& run, float scale);
  /// Each element is multiplied by a scale of its own: `run.count` of them.
  void (*scale_each)(const ElementRun& run, const float* scales);
  /// Tiles of `tile_columns` neighbours are multiplied by a scale each, without a call for each.
  /// Null: never possible.
  ///
  /// @return Whether it could be done: if not, what was written is to be made again.
  bool (*scale_tiles)(const ElementRun& run, const float* scales,
                      std::uint64_t tile_columns) = nullptr;
  /// Null, as is look_up_tiles: there are no tables for this pair.
  ///
  /// @param scale  Without a sign.
  void (*make_table)(float scale, MagnitudeTable& table) = nullptr;
  /// Tiles of `tile_columns` neighbours are looked up in a table each. Both are whole steps.
  void (*look_up_tiles)(const ElementRun& run, const MagnitudeTable* tables,
                        std::uint64_t tile_columns) = nullptr;
};

/// For every pair of dtypes that can_expand() says yes to.
[[nodiscard]] RunKernels portable_run_kernels(format::Dtype from, format::Dtype to);

#ifdef __x86_64__
/// ExpandImplementation::kernels. Nothing for pairs that are too rare to be worth it: FNUZ and F64.
[[nodiscard]] std::optional<RunKernels> avx2_run_kernels(format::Dtype from, format::Dtype to);
[[nodiscard]] std::optional<RunKernels> avx512_run_kernels(format::Dtype from, format::Dtype to);
[[nodiscard]] std::optional<RunKernels> avx512_bf16_run_kernels(format::Dtype from,
                                                                format::Dtype to);
#endif

}  // namespace trash_panda::runtime
