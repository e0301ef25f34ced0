#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "trash_panda/plan/plan.h"

namespace trash_panda::cli {

/// What a user should know when the blocks of a pack are not in the forms that the plan predicts
/// with, since they were packed with --compress or for another plan. None where they are, or where
/// the plan predicts nothing.
///
/// @param coded  Names of the pack's blocks that are in the exponent code.
[[nodiscard]] std::vector<std::string> form_warnings(const plan::Plan& plan,
                                                     const std::set<std::string_view>& coded);

}  // namespace trash_panda::cli
