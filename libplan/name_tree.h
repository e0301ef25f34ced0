#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
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
/// Holds views into the names: the records outlive it.
class NameTree {
 public:
  /// Kept small: a big model has a hundred thousand.
  struct Node {
    std::string_view path;        ///< All components up to this one, joined by dots.
    std::uint64_t text_hash = 0;  ///< Of this component.
    NodeId parent = kNoNode;
    NodeId first_child = kNoNode;
    NodeId last_child = kNoNode;
    NodeId next_sibling = kNoNode;
    std::uint32_t tensor = kNoTensor;  ///< The tensor that ends here; names may also go on.
    std::uint32_t text_bytes = 0;      ///< Length of this component, the end of `path`.
    bool is_number = false;

    /// Of this component's part in a structure: the same for all numbers.
    [[nodiscard]] std::uint64_t structure_hash() const { return is_number ? 1 : text_hash; }
    [[nodiscard]] std::string_view text() const { return path.substr(path.size() - text_bytes); }
  };
  static constexpr std::uint32_t kNoTensor = std::numeric_limits<std::uint32_t>::max();

  explicit NameTree(std::span<const format::TensorRecord> tensors);

  [[nodiscard]] const Node& node(NodeId id) const { return nodes_[id]; }
  [[nodiscard]] NodeId root() const { return 0; }
  /// Children in the order in which their first tensors appear.
  [[nodiscard]] std::vector<NodeId> children(NodeId id) const;
  /// Children whose component is a number, in the order of their numbers.
  [[nodiscard]] std::vector<NodeId> numbered_children(NodeId id) const;
  /// The node of a path without a final dot ("model.layers"; "" is the root), or kNoNode.
  [[nodiscard]] NodeId find(std::string_view path) const;
  /// Indexes of all tensors at and below a node, ascending.
  [[nodiscard]] std::vector<std::size_t> tensors_below(NodeId id) const;

 private:
  NodeId child_or_new(NodeId parent, std::string_view path, std::size_t text_bytes);
  void grow_table();

  std::vector<Node> nodes_;
  /// Open addressing by parent and component: a power of two, at most half full.
  std::vector<NodeId> table_;
};

/// Whether a component is a block number: digits only, few enough to be a count of anything.
[[nodiscard]] bool is_block_number(std::string_view component);

}  // namespace trash_panda::plan
