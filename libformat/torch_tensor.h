#pragma once

#include <string>

#include "trash_panda/base/error.h"

#include "pickle_graph.h"
#include "torch_state.h"

namespace trash_panda::format {

/// Checks a pickled tensor against its storage.
/// @retval kCorrupt      Reasons: schema (shape or strides are no such), overflow, offsets.
/// @retval kUnsupported  Its storage has no type (reason "dtype").
Result<TorchTensor> make_torch_tensor(const PickleGraph& graph, const PickledTensor& pickled,
                                      std::string name);

/// Bytes of a storage. @retval kCorrupt  More than 64 bits can count.
Result<std::uint64_t> torch_storage_bytes(const PickledStorage& storage);

}  // namespace trash_panda::format
