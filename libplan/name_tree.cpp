#include "name_tree.h"

#include <algorithm>
#include <functional>

#include "trash_panda/base/error.h"

namespace trash_panda::plan {
namespace {

/// Longest run of digits that is taken for an index: hashes and dates are longer.
constexpr std::size_t kNumberDigitsMax = 6;

std::uint64_t slot_hash(NodeId parent, std::uint64_t text_hash) {
  // The upper half is the mixed one; the table takes the lower bits of what comes back.
  return ((text_hash ^ (parent * 0xD6E8FEB86659FD93U)) * 0x9E3779B97F4A7C15U) >> 32U;
}

/// Splits a name at dots, at most kNameComponentsMax pieces.
void split(std::string_view name, std::vector<std::string_view>& components) {
  components.clear();
  while (components.size() + 1 < kNameComponentsMax) {
    const std::size_t dot = name.find('.');
    if (dot == std::string_view::npos) {
      break;
    }
    components.push_back(name.substr(0, dot));
    name.remove_prefix(dot + 1);
  }
  components.push_back(name);
}

}  // namespace

bool is_block_number(std::string_view component) {
  return !component.empty() && component.size() <= kNumberDigitsMax &&
         std::ranges::all_of(component, [](char c) { return c >= '0' && c <= '9'; });
}

void NameTree::grow_table() {
  table_.assign(std::max<std::size_t>(table_.size() * 2, 1024), kNoNode);
  for (NodeId id = 1; id < nodes_.size(); ++id) {
    std::size_t slot = slot_hash(nodes_[id].parent, nodes_[id].text_hash) & (table_.size() - 1);
    while (table_[slot] != kNoNode) {
      slot = (slot + 1) & (table_.size() - 1);
    }
    table_[slot] = id;
  }
}

NodeId NameTree::child_or_new(NodeId parent, std::string_view path, std::size_t text_bytes) {
  if (nodes_.size() * 2 >= table_.size()) {
    grow_table();
  }
  const std::string_view text = path.substr(path.size() - text_bytes);
  const std::uint64_t text_hash = std::hash<std::string_view>{}(text);
  std::size_t slot = slot_hash(parent, text_hash) & (table_.size() - 1);
  while (table_[slot] != kNoNode) {
    const Node& node = nodes_[table_[slot]];
    if (node.parent == parent && node.text() == text) {
      return table_[slot];
    }
    slot = (slot + 1) & (table_.size() - 1);
  }
  TP_ASSERT(nodes_.size() < kNoNode);
  const auto id = static_cast<NodeId>(nodes_.size());
  table_[slot] = id;
  Node added;
  added.path = path;
  added.text_bytes = static_cast<std::uint32_t>(text_bytes);
  added.text_hash = text_hash;
  added.parent = parent;
  added.is_number = is_block_number(text);
  nodes_.push_back(added);
  Node& above = nodes_[parent];
  (above.last_child == kNoNode ? above.first_child : nodes_[above.last_child].next_sibling) = id;
  above.last_child = id;
  return id;
}

NameTree::NameTree(std::span<const format::TensorRecord> tensors) {
  TP_ASSERT(tensors.size() < kNoTensor);
  nodes_.reserve(tensors.size() * 2 + 1);
  nodes_.emplace_back();
  // Neighbours in a file share most of their path: only what differs is looked up.
  std::vector<std::string_view> components;
  std::vector<NodeId> trail{0};
  for (std::size_t index = 0; index < tensors.size(); ++index) {
    const std::string_view name = tensors[index].name;
    split(name, components);
    std::size_t depth = 0;
    while (depth < components.size() && depth + 1 < trail.size() &&
           nodes_[trail[depth + 1]].text() == components[depth]) {
      ++depth;
    }
    trail.resize(depth + 1);
    for (; depth < components.size(); ++depth) {
      const std::string_view text = components[depth];
      const auto path_bytes = static_cast<std::size_t>(text.data() - name.data()) + text.size();
      trail.push_back(child_or_new(trail.back(), name.substr(0, path_bytes), text.size()));
    }
    nodes_[trail.back()].tensor = static_cast<std::uint32_t>(index);
  }
  table_ = {};
}

std::vector<NodeId> NameTree::children(NodeId id) const {
  std::vector<NodeId> result;
  for (NodeId child = nodes_[id].first_child; child != kNoNode;
       child = nodes_[child].next_sibling) {
    result.push_back(child);
  }
  return result;
}

std::vector<NodeId> NameTree::numbered_children(NodeId id) const {
  std::vector<NodeId> result;
  for (NodeId child = nodes_[id].first_child; child != kNoNode;
       child = nodes_[child].next_sibling) {
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

NodeId NameTree::find(std::string_view path) const {
  if (path.empty()) {
    return root();
  }
  std::vector<std::string_view> components;
  split(path, components);
  NodeId at = root();
  for (const std::string_view component : components) {
    NodeId child = nodes_[at].first_child;
    while (child != kNoNode && nodes_[child].text() != component) {
      child = nodes_[child].next_sibling;
    }
    if (child == kNoNode) {
      return kNoNode;
    }
    at = child;
  }
  return at;
}

std::vector<std::size_t> NameTree::tensors_below(NodeId id) const {
  std::vector<std::size_t> result;
  std::vector<NodeId> pending{id};
  while (!pending.empty()) {
    const NodeId at = pending.back();
    pending.pop_back();
    if (nodes_[at].tensor != kNoTensor) {
      result.push_back(nodes_[at].tensor);
    }
    for (NodeId child = nodes_[at].first_child; child != kNoNode;
         child = nodes_[child].next_sibling) {
      pending.push_back(child);
    }
  }
  std::ranges::sort(result);
  return result;
}

}  // namespace trash_panda::plan
