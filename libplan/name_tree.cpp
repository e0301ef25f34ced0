#include "name_tree.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "trash_panda/base/error.h"

namespace trash_panda::plan {
namespace {

/// Longest run of digits that is taken for an index: hashes and dates are longer.
constexpr std::size_t kNumberDigitsMax = 6;

/// The component that begins at a place of a name, the `depth`th of it.
std::string_view component_at(std::string_view name, std::size_t begin, std::size_t depth) {
  const std::string_view rest = name.substr(begin);
  return depth < kNameComponentsMax ? rest.substr(0, rest.find('.')) : rest;
}

}  // namespace

bool is_block_number(std::string_view component) {
  return !component.empty() && component.size() <= kNumberDigitsMax &&
         std::ranges::all_of(component, [](char c) { return c >= '0' && c <= '9'; });
}

std::uint64_t NameTree::Node::structure_hash() const {
  return is_number ? 1 : std::hash<std::string_view>{}(text());
}

/// Children of one node while its tensors are handed out to them.
class NameTree::Partition {
 public:
  Partition(std::vector<Node>& nodes, const Node& parent)
      : nodes_(nodes), parent_(parent), first_child_(static_cast<NodeId>(nodes.size())) {}

  /// The child that a tensor belongs to, by its next component.
  NodeId child_of(std::string_view name, std::string_view text) {
    // Neighbours in a file share most of their path: only what differs is looked up.
    if (last_ == kNoNode || nodes_[last_].text() != text) {
      last_ = find_or_add(name, text);
    }
    return last_;
  }

 private:
  NodeId find_or_add(std::string_view name, std::string_view text) {
    if ((nodes_.size() - first_child_) * 2 >= table_.size()) {
      grow_table();
    }
    const std::size_t slot = find_slot(text);
    if (table_[slot] == kNoNode) {
      TP_ASSERT(nodes_.size() < kNoNode);
      table_[slot] = static_cast<NodeId>(nodes_.size());
      Node& added = nodes_.emplace_back();
      added.path =
          name.substr(0, static_cast<std::size_t>(text.data() - name.data()) + text.size());
      added.text_bytes = static_cast<std::uint32_t>(text.size());
      added.is_number = is_block_number(text);
      added.depth = parent_.depth + 1;
    }
    return table_[slot];
  }

  [[nodiscard]] std::size_t find_slot(std::string_view text) const {
    std::size_t slot = std::hash<std::string_view>{}(text) & (table_.size() - 1);
    while (table_[slot] != kNoNode && nodes_[table_[slot]].text() != text) {
      slot = (slot + 1) & (table_.size() - 1);
    }
    return slot;
  }

  void grow_table() {
    table_.assign(std::max<std::size_t>(table_.size() * 2, 16), kNoNode);
    for (auto id = first_child_; id < nodes_.size(); ++id) {
      table_[find_slot(nodes_[id].text())] = id;
    }
  }

  std::vector<Node>& nodes_;
  const Node parent_;
  const NodeId first_child_;
  NodeId last_ = kNoNode;
  std::vector<NodeId> table_;  ///< Open addressing: a power of two, at most half full.
};

NameTree::NameTree(std::span<const format::TensorRecord> tensors)
    : tensors_(tensors), nodes_(1), order_(tensors.size()) {
  TP_ASSERT(tensors.size() < kNoTensor);
  std::iota(order_.begin(), order_.end(), 0U);
  nodes_.front().end = static_cast<std::uint32_t>(order_.size());
}

void NameTree::grow(NodeId id) {
  const Node parent = nodes_[id];
  if (parent.tensor != kNoTensor && parent.end - parent.begin == 1) {
    nodes_[id].first_child = id;  // No name goes on: there are none.
    return;
  }
  const auto first_child = static_cast<NodeId>(nodes_.size());
  const std::span<std::uint32_t> below =
      std::span(order_).subspan(parent.begin, parent.end - parent.begin);
  const std::size_t text_begin = parent.path.size() + (id == root() ? 0 : 1);
  Partition partition(nodes_, parent);
  std::vector<NodeId> owners(below.size(), id);  // Of `below`; the node itself owns its own tensor.
  for (std::size_t i = 0; i < below.size(); ++i) {
    const std::string_view name = tensors_[below[i]].name;
    if (name.size() < text_begin) {
      continue;
    }
    const std::string_view text = component_at(name, text_begin, parent.depth + 1);
    owners[i] = partition.child_of(name, text);
    Node& child = nodes_[owners[i]];
    ++child.end;  // For now: how many it has.
    if (text_begin + text.size() == name.size()) {
      child.tensor = below[i];
    }
  }
  nodes_[id].first_child = first_child;
  nodes_[id].child_count = static_cast<std::uint32_t>(nodes_.size() - first_child);
  std::uint32_t begin = parent.begin + static_cast<std::uint32_t>(std::ranges::count(owners, id));
  for (NodeId child = first_child; child < nodes_.size(); ++child) {
    nodes_[child].begin = begin;
    begin += nodes_[child].end;
    nodes_[child].end = begin;
  }
  if (std::ranges::is_sorted(owners)) {
    return;  // They lie side by side already; the node's own number is the least.
  }
  const std::vector<std::uint32_t> unsorted(below.begin(), below.end());
  std::vector<std::uint32_t> places(nodes_.size() - first_child);
  for (std::size_t child = 0; child < places.size(); ++child) {
    places[child] = nodes_[first_child + child].begin;
  }
  std::uint32_t own_place = parent.begin;
  for (std::size_t i = 0; i < unsorted.size(); ++i) {
    std::uint32_t& place = owners[i] == id ? own_place : places[owners[i] - first_child];
    order_[place++] = unsorted[i];
  }
}

std::ranges::iota_view<NodeId, NodeId> NameTree::children(NodeId id) {
  if (nodes_[id].first_child == kNoNode) {
    grow(id);
  }
  const NodeId first = nodes_[id].first_child;
  return {first, first + nodes_[id].child_count};
}

std::vector<NodeId> NameTree::numbered_children(NodeId id) {
  std::vector<NodeId> result;
  for (const NodeId child : children(id)) {
    if (nodes_[child].is_number) {
      result.push_back(child);
    }
  }
  const auto value = [this](NodeId child) {
    std::uint64_t number = 0;
    for (const char digit : nodes_[child].text()) {
      number = number * 10 + static_cast<std::uint64_t>(digit - '0');
    }
    return number;
  };
  // Stable: "1" and "01" are two members, in the order of the file.
  std::ranges::stable_sort(result, {}, value);
  return result;
}

NodeId NameTree::find(std::string_view path) {
  NodeId at = root();
  std::size_t begin = 0;
  while (!path.empty() && begin <= path.size()) {
    const std::string_view text = component_at(path, begin, nodes_[at].depth + 1);
    const auto below = children(at);
    const auto child =
        std::ranges::find_if(below, [&](NodeId id) { return nodes_[id].text() == text; });
    if (child == below.end()) {
      return kNoNode;
    }
    at = *child;
    begin += text.size() + 1;
  }
  return at;
}

std::span<const std::uint32_t> NameTree::tensors_below(NodeId id) const {
  return std::span(order_).subspan(nodes_[id].begin, nodes_[id].end - nodes_[id].begin);
}

bool NameTree::have_same_names(NodeId one, NodeId other) const {
  const std::size_t one_bytes = nodes_[one].path.size();
  const std::size_t other_bytes = nodes_[other].path.size();
  return std::ranges::equal(
      tensors_below(one), tensors_below(other), [&](std::uint32_t a, std::uint32_t b) {
        return tensors_[a].name.substr(one_bytes) == tensors_[b].name.substr(other_bytes);
      });
}

}  // namespace trash_panda::plan
