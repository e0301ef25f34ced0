#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trash_panda/base/error.h"
#include "trash_panda/format/tensor_record.h"

#include "pickle_graph.h"

namespace trash_panda::format {

/// A run of bytes beside the pickle that tensors are views of.
struct TorchStorage {
  std::string key;
  std::uint64_t element_count;
  std::uint64_t size_bytes;
};

/// A tensor of a state dict, checked to lie within its storage.
struct TorchTensor {
  std::string name;
  Dtype dtype;
  Shape shape;
  Shape strides;               ///< As TensorRecord::strides.
  std::uint64_t offset_bytes;  ///< From the start of the storage.
  std::uint64_t size_bytes;
  std::uint32_t storage_index;  ///< Into TorchState::storages.
};

/// What a checkpoint of torch.save() says about its tensors.
struct TorchState {
  std::vector<TorchStorage> storages;
  std::vector<TorchTensor> tensors;  ///< In the order of the dict.
  std::vector<std::string> notes;    ///< What was unwrapped and what was left out.
  std::uint64_t pickle_bytes = 0;    ///< Where the pickle ends.
};

/// Reads the pickle of a state dict, executing nothing.
///
/// Dicts within dicts become dotted names. Where a dict holds its weights under a usual key, as
/// {"state_dict": {…}, "epoch": 3} does, they are what is read.
///
/// @param pickle  From its start on; bytes behind its end don't matter.
/// @retval kUnsupported  A name, opcode or content that is not taken; reason "pickle".
/// @retval kCorrupt      No sound pickle, or a tensor that reaches past its storage ("offsets").
/// @see docs/formats.md
Result<TorchState> parse_torch_pickle(std::span<const std::byte> pickle);

/// The same of a pickle that was interpreted already.
Result<TorchState> make_torch_state(const PickleGraph& graph);

}  // namespace trash_panda::format
