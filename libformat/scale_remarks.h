#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trash_panda/base/error.h"
#include "trash_panda/format/checkpoint.h"
#include "trash_panda/format/weights.h"

namespace trash_panda::format {

/// "a, b, c and 12 more", each printable.
std::string list_names(const std::vector<std::string_view>& names);

/// Reads the scales of a checkpoint that has few and small ones, and adds a warning for each kind
/// of special value (zero, negative, NaN, infinite, "unset"), naming the scales. Results with such
/// scales are what IEEE arithmetic gives; they are seldom what was meant.
///
/// Checkpoints with more scales than kCheckedScalesMax or kCheckedBytesMax are left alone, which
/// `are_scale_values_checked` says: there, reading them would cost more than opening the
/// checkpoint.
Result<void> warn_of_special_scales(const Checkpoint& checkpoint, WeightTable& table);

}  // namespace trash_panda::format
