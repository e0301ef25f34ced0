#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "trash_panda/format/dtype.h"

namespace trash_panda::format {

/// A tensor type of GGUF: rows of elements, cut into blocks that take a fixed number of bytes.
struct GgmlType {
  std::uint32_t id;              ///< As it stands in a file.
  std::string_view name;         ///< "Q4_K", as the gguf package spells it.
  std::uint64_t block_elements;  ///< 1 for plain types; rows are whole numbers of blocks.
  std::uint64_t block_bytes;     ///< Codes, scales and minima of one block.
  std::optional<Dtype> dtype;    ///< Of plain types; nothing where only blocks have a meaning.
};

/// The type of that number, which lives as long as the program; null when it is not known.
/// @see ggml.h, enum ggml_type; ggml-common.h, sizes of the blocks.
[[nodiscard]] const GgmlType* find_ggml_type(std::uint32_t id);

/// Name of a type that GGUF files once had and no reader takes any more; empty for other numbers.
[[nodiscard]] std::string_view removed_ggml_type(std::uint32_t id);

}  // namespace trash_panda::format
