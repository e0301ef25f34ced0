#pragma once

#include <span>
#include <vector>

#include "trash_panda/format/tensor_record.h"

#include "name_tree.h"

namespace trash_panda::plan {

/// Whether the numbered children of a node are blocks: the members of a list of modules that are
/// themselves made of modules, and alike.
///
/// Told by three rules, none of which knows a name:
/// - there are at least two of them;
/// - at least half are composite: below the number comes a module and only then its parameter
///   (`0.attn.weight`), which a layer of a sequential (`time_embed.0.weight`) has not;
/// - and resemble another member: one has at least half of the parameters of the other, numbers
///   inside a name aside. So levels of a UNet with and without attention are alike, first and last
///   layers may differ, and two text encoders under one list (`embedders.0`, `embedders.1`) or the
///   parts of a sequential (`ff.net.0.proj`, `ff.net.2`) are not.
[[nodiscard]] bool are_blocks(NameTree& tree, std::span<const NodeId> members);

/// Whether the numbered children of a node are equal simple layers (`layers.0.weight`, …): at
/// least three, most of them with equal parameters and shapes. Blocks only where a model has no
/// others: codebooks and output heads look the same.
[[nodiscard]] bool are_equal_layers(NameTree& tree, std::span<const NodeId> members,
                                    std::span<const format::TensorRecord> tensors);

}  // namespace trash_panda::plan
