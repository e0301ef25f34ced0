#pragma once

#include <string_view>

namespace trash_panda {

/// Containers of a JSON text that may be open at once: serde_json, the parser of safetensors'
/// reference reader, refuses the 128th.
inline constexpr unsigned kJsonDepthMax = 127;

/// Whether more than kJsonDepthMax containers of a JSON text are open at once.
///
/// Ask before a parser that builds a tree: trees are copied and printed by recursion, so the depth
/// of a stranger's text must not be what the stack has to hold. Looks at brackets outside of
/// strings only; whether the text is JSON, the parser says.
[[nodiscard]] bool is_json_too_deep(std::string_view text);

}  // namespace trash_panda
