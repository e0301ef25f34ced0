#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <ranges>
#include <span>
#include <string_view>
#include <vector>

#include "trash_panda/format/tensor_record.h"

namespace trash_panda::plan {

/// Components that a name is split into at most; the rest stays one piece. Real names have about a
/// dozen, and a hostile one must not make a node of every byte or a recursion of every dot.
inline constexpr std::size_t kNameComponentsMax = 32;

/// Index of a node in a NameTree, or kNoNode.
using NodeId = std::uint32_t;
inline constexpr NodeId kNoNode = std::numeric_limits<NodeId>::max();

/// The tree that tensor names span when they are split at dots. Node 0 is the root.
///
/// It grows where it is looked at: a big model has a hundred thousand tensors, most of them deep in
/// blocks that are alike, and of those only few need nodes. Holds views into the names: the records
/// outlive it.
class NameTree {
 public:
  struct Node {
    std::string_view path;             ///< All components up to this one, joined by dots.
    std::uint32_t text_bytes = 0;      ///< Length of this component, the end of `path`.
    std::uint32_t tensor = kNoTensor;  ///< The tensor that ends here; names may also go on.
    bool is_number = false;
    // For the tree itself:
    std::uint32_t begin = 0;  ///< Of the tensors at and below it, in NameTree::order_.
    std::uint32_t end = 0;
    NodeId first_child = kNoNode;  ///< The others follow it; kNoNode: not looked for so far.
    std::uint32_t child_count = 0;
    std::uint32_t depth = 0;  ///< Components of `path`.

    [[nodiscard]] std::string_view text() const { return path.substr(path.size() - text_bytes); }
    /// Of this component's part in a structure: the same for all numbers.
    [[nodiscard]] std::uint64_t structure_hash() const;
  };
  static constexpr std::uint32_t kNoTensor = std::numeric_limits<std::uint32_t>::max();

  explicit NameTree(std::span<const format::TensorRecord> tensors);

  /// Valid until other nodes are asked for.
  [[nodiscard]] const Node& node(NodeId id) const { return nodes_[id]; }
  [[nodiscard]] NodeId root() const { return 0; }
  /// Children in the order in which their first tensors appear.
  [[nodiscard]] std::ranges::iota_view<NodeId, NodeId> children(NodeId id);
  /// Children whose component is a number, in the order of their numbers.
  [[nodiscard]] std::vector<NodeId> numbered_children(NodeId id);
  /// The node of a path without a final dot ("model.layers"; "" is the root), or kNoNode.
  [[nodiscard]] NodeId find(std::string_view path);
  /// Indexes of all tensors at and below a node, ascending.
  [[nodiscard]] std::span<const std::uint32_t> tensors_below(NodeId id) const;
  /// Whether what is below two nodes has the same names in the same order.
  [[nodiscard]] bool have_same_names(NodeId one, NodeId other) const;

 private:
  class Partition;

  void grow(NodeId id);

  std::span<const format::TensorRecord> tensors_;
  std::vector<Node> nodes_;
  std::vector<std::uint32_t> order_;  ///< Tensors, those of each node side by side.
};

/// Whether a component is a block number: digits only, few enough to be a count of anything.
[[nodiscard]] bool is_block_number(std::string_view component);

}  // namespace trash_panda::plan
