#pragma once

#include "trash_panda/format/checkpoint.h"
#include "trash_panda/format/weights.h"

namespace trash_panda::format {

/// Leaves one of the weights that are the same under several names, and notes the others in
/// `aliases` and `tied`. Only now that scales are paired it is known: equal payloads with other
/// scales are other weights.
///
/// @param table  With all its weights, in the order of Checkpoint::tensors().
void merge_tied_weights(const Checkpoint& checkpoint, WeightTable& table);

}  // namespace trash_panda::format
