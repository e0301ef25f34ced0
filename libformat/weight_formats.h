#pragma once

#include <string>
#include <vector>

#include "trash_panda/format/checkpoint.h"
#include "trash_panda/format/weights.h"

namespace trash_panda::format {

/// Names the ways that weights are stored, those with most bytes first: "fp8 (scale per tensor)",
/// "bf16".
std::vector<std::string> describe_formats(const Checkpoint& checkpoint,
                                          const std::vector<Weight>& weights);

}  // namespace trash_panda::format
