#pragma once

#include "torch_state.h"

namespace trash_panda::fuzz {

/// Asserts that every tensor lies within its storage, by its shape and strides.
void check_torch_state(const format::TorchState& state);

}  // namespace trash_panda::fuzz
