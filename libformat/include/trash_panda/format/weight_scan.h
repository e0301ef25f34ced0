#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trash_panda/base/error.h"
#include "trash_panda/base/progress.h"
#include "trash_panda/format/checkpoint.h"
#include "trash_panda/format/pack_writer.h"
#include "trash_panda/format/weights.h"

namespace trash_panda::format {

/// How much of a weight is read to decide what it is stored as.
enum class ScanDepth {
  kFull,    ///< All that it takes to be sure.
  kSample,  ///< Its first bytes: for sizes, not for packing.
};

struct ConversionRequest {
  /// F32 whose values are all BF16 become BF16, whatever their shape, from 32 KiB on.
  bool narrows = false;
  /// What large matrices become: BF16 (of F32 and F16), F16 (of F32), F8_E4M3 (of all three). Those
  /// are the weights without a scale that have two dimensions, 4,096 elements and a name that ends
  /// in `.weight`: norms and biases are small, and lose too much.
  std::optional<Dtype> rounded_to = {};
  ScanDepth depth = ScanDepth::kFull;
  /// What an earlier call found for the same weights and the same request: nothing is read.
  std::optional<std::map<std::size_t, WeightConversion>> known = {};
  ProgressCallback progress = {};  ///< May be empty. Of the bytes that may have to be read.
  StopFlag stop = nullptr;
};

struct ConversionChoice {
  std::map<std::size_t, WeightConversion> conversions;  ///< As PackLayout::conversions.
  /// Weights with infinities or NaN, which would spoil the scale of all others: left as they are.
  std::vector<std::string> kept;
};

/// Decides which weights of a checkpoint are stored in another dtype. Reads those that may be
/// narrowed up to the first value that can't, and all of those that become F8_E4M3, for their
/// scale.
///
/// @retval kFailed, kCorrupt, kMissing  A read failed.
/// @retval kInterrupted  `request.stop` was set.
Result<ConversionChoice> choose_conversions(const Checkpoint& checkpoint,
                                            const WeightTable& weights,
                                            const ConversionRequest& request);

}  // namespace trash_panda::format
