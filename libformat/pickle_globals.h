#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "trash_panda/base/error.h"
#include "trash_panda/format/dtype.h"

namespace trash_panda::format {

enum class PickleGlobalKind : std::uint8_t {
  kOrderedDict,
  kRebuildTensor,              ///< (storage, offset, size, stride)
  kRebuildTensorV2,            ///< … requires_grad, hooks[, metadata]
  kRebuildTensorV3,            ///< … requires_grad, hooks, dtype[, metadata]
  kRebuildParameter,           ///< (tensor, requires_grad, hooks)
  kRebuildParameterWithState,  ///< … state
  kSize,
  kStorageType,
  kUntypedStorageType,
  kDtype,
};

/// A name that a pickle may use.
struct PickleGlobal {
  std::string_view module;
  std::string_view name;
  PickleGlobalKind kind;
  std::optional<Dtype> dtype;  ///< Of a storage type or dtype; nothing where we have none for it.
};

/// Position of a name in the whitelist; nothing when it is not there.
[[nodiscard]] std::optional<std::uint32_t> find_pickle_global(std::string_view module,
                                                              std::string_view name);
/// The name at a position that find_pickle_global() gave.
[[nodiscard]] const PickleGlobal& pickle_global(std::uint64_t index);

/// What helps whom a pickle is refused.
inline constexpr std::string_view kConvertPickleHint =
    "convert it in a sandbox you trust: torch.load() it there and give its tensors to "
    "safetensors.torch.save_file()";

/// Error of reason "pickle" for a pickle that does, or is, what is not taken.
[[nodiscard]] Error refused_pickle(std::string message);

}  // namespace trash_panda::format
