#pragma once

#include <string_view>

#include "trash_panda/format/dtype.h"
#include "trash_panda/format/tier.h"
#include "trash_panda/runtime/streamer.h"

namespace trash_panda::python {

/// The dtype of a safetensors name ("BF16"). @throws NativeError (kUsage) for any other text.
[[nodiscard]] format::Dtype dtype_argument(std::string_view name);
/// The tier of a name ("ram"). @throws NativeError (kUsage) for any other text.
[[nodiscard]] format::Tier tier_argument(std::string_view name);
/// "headers" or "full". @throws NativeError (kUsage) for any other text.
[[nodiscard]] runtime::VerifyMode verify_argument(std::string_view name);
/// "auto", "io_uring" or "pread". @throws NativeError (kUsage) for any other text.
[[nodiscard]] runtime::IoBackend io_argument(std::string_view name);

}  // namespace trash_panda::python
