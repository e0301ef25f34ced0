#pragma once

#include <string_view>

namespace trash_panda::cli {

// What is said of the same argument or option of several commands.

inline constexpr std::string_view kModelHelp =
    "a .safetensors file, a torch checkpoint (.pt, .pth, .bin, .ckpt), a folder, an *.index.json, "
    "or org/name[@rev][:subfolder] looked up offline in the Hugging Face cache";

inline constexpr std::string_view kGroupHelp =
    "take the numbered children of PATH (model.layers) as blocks instead of searching; may be "
    "repeated";

}  // namespace trash_panda::cli
