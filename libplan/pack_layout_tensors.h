#pragma once

#include <span>

#include "trash_panda/format/tensor_record.h"
#include "trash_panda/plan/pack_layout.h"

namespace trash_panda::plan {

/// make_pack_layout() without a checkpoint: everything but the fingerprint is checked.
Result<format::PackLayout> make_pack_layout(const Plan& plan,
                                            std::span<const format::TensorRecord> tensors,
                                            const format::WeightTable& weights,
                                            const BlockMap& blocks);

}  // namespace trash_panda::plan
