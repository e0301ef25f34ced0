#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "trash_panda/plan/hardware.h"
#include "trash_panda/plan/plan.h"
#include "trash_panda/plan/storage_form.h"

namespace trash_panda::cli {

/// The forms, besides raw, that blocks of a pack can have which is streamed on this machine. zstd
/// is decoded on the CPU, before anything is copied to a GPU, which streaming to one does not do.
[[nodiscard]] std::vector<plan::StorageForm> packable_forms(const plan::Hardware& hardware);

/// What a user should know when the blocks of a pack are not in the forms that the plan predicts
/// with, since they were packed with --compress or for another plan. None where they are, or where
/// the plan predicts nothing.
///
/// @param coded  Names of the pack's blocks that are in a code.
[[nodiscard]] std::vector<std::string> form_warnings(const plan::Plan& plan,
                                                     const std::set<std::string_view>& coded);

}  // namespace trash_panda::cli
