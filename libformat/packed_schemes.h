#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "trash_panda/format/checkpoint.h"

#include "quantization_config.h"

namespace trash_panda::format {

/// A weight stored as packed codes: several tensors that mean nothing apart.
struct PackedScheme {
  std::string name;     ///< Of the scheme, such as "GPTQ".
  std::string weight;   ///< Name of the parameter that the tensors stand for.
  std::size_t payload;  ///< The tensor of its codes.
};

/// Recognises the tensor as a part of a packed weight, by its name, its dtype and its siblings.
///
/// @see formats.md, section 1: rows 5, 13, 14, 15, 19, 21–25
std::optional<PackedScheme> match_packed(const Checkpoint& checkpoint, std::size_t tensor_index,
                                         const QuantizationConfig& config);

/// Name of the scheme of an integer or sub-byte weight that has a scale beside it.
std::string integer_scheme(const Checkpoint& checkpoint, std::size_t weight_index,
                           std::size_t scale_index, const QuantizationConfig& config);

}  // namespace trash_panda::format
