#pragma once

#include <map>
#include <string>

#include "trash_panda/base/error.h"
#include "trash_panda/format/checkpoint.h"

namespace trash_panda::format {

/// Reads ties from `__metadata__`: writers that store tied tensors once record there, beside
/// ordinary remarks, `"dropped name": "stored name"`.
///
/// @return Dropped name → name of a stored tensor. Chains are followed to their end. Of two names
///         one has a dot: `{"format": "pt"}` is a remark, even where a tensor is named pt.
/// @retval kCorrupt  Both look like parameters, but neither is stored; reason "missing_tensor".
/// @see safetensors, bindings/python: torch.save_model
Result<std::map<std::string, std::string>> find_tied_names(const Checkpoint& checkpoint);

}  // namespace trash_panda::format
