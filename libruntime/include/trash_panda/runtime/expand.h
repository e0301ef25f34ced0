#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "trash_panda/base/error.h"
#include "trash_panda/format/dtype.h"
#include "trash_panda/format/tensor_record.h"
#include "trash_panda/format/weights.h"

namespace trash_panda::runtime {

/// A stored weight and how to read it.
struct ExpandSource {
  format::Dtype dtype;
  const format::Shape* shape;  ///< Of the weight.
  std::span<const std::byte> payload;
  std::span<const float> scale;  ///< Canonical, row-major; empty: no scale, or codes.
  std::span<const std::uint8_t> scale_codes = {};  ///< F8_E8M0, in place of `scale`.
  format::Granularity granularity = format::Granularity::kTensor;
  std::uint64_t block_rows = 0;  ///< Of Granularity::kBlock.
  std::uint64_t block_columns = 0;
};

struct RunKernels;

/// One set of inner loops. All of them make the same bits.
struct ExpandImplementation {
  std::string_view name;          ///< "avx512_bf16", "avx512", "avx2" or "portable".
  std::string_view instructions;  ///< What the CPU must have, for people; empty for "portable".
  bool is_supported;              ///< Whether this CPU, under this operating system, has it.
  /// Its loops for a pair of dtypes; nothing: those of "portable" do it.
  std::optional<RunKernels> (*kernels)(format::Dtype from, format::Dtype to);
};

/// Every implementation in this program, the fastest first; the last, "portable", always runs.
[[nodiscard]] std::span<const ExpandImplementation> expand_implementations();

/// The fastest that this CPU supports: what is used when none is named.
[[nodiscard]] const ExpandImplementation& best_expand_implementation();

/// The implementation of that name, to force it in tests, benchmarks and when in doubt.
///
/// @retval kUnsupported  This CPU lacks its instructions.
/// @retval kUsage        There is none of that name; the message lists those that there are.
Result<const ExpandImplementation*> find_expand_implementation(std::string_view name);

/// Whether expand() can turn `from` into `to` (BF16, F16 or F32). From: every fp8 and F16, BF16,
/// F32, F64; the last is rounded to F32 first, as torch does it.
[[nodiscard]] bool can_expand(format::Dtype from, format::Dtype to);

/// Decodes a weight to F32, multiplies by its scale in F32 and rounds once to `to`: bit-equal to
/// `(w.to(f32) * scale).to(dtype)`, NaN, infinities and subnormal numbers included.
///
/// A NaN becomes 0xffff in BF16; in F16 and F32 it keeps the sign and payload that the
/// multiplication gave it; which one of two NaN that is, is not said. So does torch 2.13 on x86
/// with AVX2 or later; elsewhere its NaN differ.
///
/// Shapes are as at format::Granularity: leading dimensions of a weight with more than two have
/// scales of their own, and scales per row may belong to any prefix of the dimensions. Scales per
/// column may be shared by the leading dimensions, too.
///
/// @param source  Its sizes agree, as parse_manifest() checks them, and can_expand(source.dtype,
///                to). No alignment is asked of the payload.
/// @param target  Exactly elements * width(to) bytes; does not overlap the source.
void expand(const ExpandSource& source, format::Dtype to, std::span<std::byte> target,
            const ExpandImplementation& implementation = best_expand_implementation());

}  // namespace trash_panda::runtime
