#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trash_panda/base/error.h"
#include "trash_panda/format/checkpoint.h"

namespace trash_panda::format {

/// One tile of a weight that shares a scale. A group along a row is {1, group size}.
struct TileShape {
  std::uint64_t rows;
  std::uint64_t columns;
};

/// What the JSON files beside a checkpoint say about quantization.
///
/// Advice only: which weights are quantized is decided by what is stored. It tells the size of
/// tiles, which shapes alone can't (576 rows in 5 tiles are tiles of 128, not of 115), and that a
/// weight without its scale is damaged rather than plain.
struct QuantizationConfig {
  std::string source;     ///< Name of the file that it came from; empty: there is none.
  std::string method;     ///< quant_method, such as "fp8"; empty when nothing is quantized.
  std::string algorithm;  ///< quant_algo or format, such as "FP8_PB_WO" or "float-quantized".
  std::vector<TileShape> tiles;  ///< Sizes that it names.
  bool tiles_only = false;       ///< Every quantized weight has tiles, none a scale of its own.
  bool exponent_scales = false;  ///< Scales stored as U8 are exponents, 2^(code - 127).
  /// Why it can't be relied on, empty when it can: harmless where nothing stored is quantized.
  std::string defect;

  [[nodiscard]] bool is_quantized() const { return !method.empty(); }
};

/// Reads quantization_config from config.json (at its top or one level down, where composite
/// models keep it), else from hf_quant_config.json.
///
/// @see formats.md, section 1: rows 8, 11, 12, 16, 17, 18
Result<QuantizationConfig> read_quantization_config(const Checkpoint& checkpoint);

}  // namespace trash_panda::format
