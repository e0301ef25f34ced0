#pragma once

#include <span>
#include <string_view>

#include "trash_panda/format/tensor_record.h"
#include "trash_panda/plan/block_groups.h"

namespace trash_panda::cli {

/// Guesses a model's family from what its tensors are called; empty where no family is known.
///
/// For people only: nothing else hangs on it.
[[nodiscard]] std::string_view guess_architecture(std::span<const format::TensorRecord> tensors,
                                                  const plan::BlockMap& blocks);

}  // namespace trash_panda::cli
