#pragma once

#include <string_view>

namespace trash_panda::plan {

/// Where a component of a module's name stands in a forward pass, as far as its words tell:
/// negative before, positive after what has none of these words.
///
/// The order in a file tells less: safetensors writers sort by name, so that `decoder` comes before
/// `encoder` and `single_transformer_blocks` before `transformer_blocks`. Only the order of groups
/// hangs on this, never which groups there are.
[[nodiscard]] int execution_rank(std::string_view component);

}  // namespace trash_panda::plan
