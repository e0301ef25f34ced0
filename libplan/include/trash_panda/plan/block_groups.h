#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trash_panda/base/error.h"
#include "trash_panda/format/tensor_record.h"

namespace trash_panda::plan {

/// A repeated unit of the model: a transformer layer, a UNet stage.
struct Block {
  std::string name;                  ///< "model.layers.0", without a final dot.
  std::vector<std::size_t> tensors;  ///< Indexes into the span that find_blocks() was given.
  std::uint64_t stored_bytes = 0;
};

/// Blocks that share a numbered prefix, in the order of their numbers.
struct BlockGroup {
  std::string prefix;  ///< "model.layers.", with the final dot.
  std::vector<Block> blocks;
};

/// A partition: every tensor is in exactly one block or outside.
struct BlockMap {
  std::vector<BlockGroup> groups;    ///< In execution order, as far as names tell it.
  std::vector<std::size_t> outside;  ///< Tensors of no block: embeddings, heads, norms.
};

struct BlockOptions {
  /// Prefixes ("model.layers" or "model.layers.") that replace the search; empty: search.
  std::vector<std::string> groups;
};

/// Finds the blocks of a model from tensor names, shapes and sizes alone.
///
/// Pure and deterministic. @retval kUsage  A prefix of `options.groups` has no numbered children.
Result<BlockMap> find_blocks(std::span<const format::TensorRecord> tensors,
                             const BlockOptions& options = {});

}  // namespace trash_panda::plan
