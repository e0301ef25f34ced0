#include "name_tree.h"

#include <algorithm>
#include <functional>
#include <unordered_map>

#include "trash_panda/base/error.h"

namespace trash_panda::plan {
namespace {

/// Longest run of digits that is taken for an index: hashes and dates are longer.
constexpr std::size_t kNumberDigitsMax = 6;

/// Stands for every number, so that members of a list have equal structure.
constexpr std::uint64_t kNumberHash = 0x9E3779B97F4A7C15U;

struct ChildKey {
  NodeId parent;
  std::string_view text;
  bool operator==(const ChildKey&) const = default;
};

struct ChildKeyHash {
  std::size_t operator()(const ChildKey& key) const {
    return std::hash<std::string_view>{}(key.text) ^ (key.parent * 0x9E3779B97F4A7C15U);
  }
};

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

NodeId NameTree::add_child(NodeId parent, std::string_view text, std::string_view path,
                           std::size_t tensor_index) {
  TP_ASSERT(nodes_.size() < kNoNode);
  const auto id = static_cast<NodeId>(nodes_.size());
  Node added;
  added.text = text;
  added.path = path;
  added.is_number = is_block_number(text);
  added.text_hash = added.is_number ? kNumberHash : std::hash<std::string_view>{}(text);
  added.first_tensor = tensor_index;
  nodes_.push_back(added);
  Node& above = nodes_[parent];
  if (above.last_child == kNoNode) {
    above.first_child = id;
  } else {
    nodes_[above.last_child].next_sibling = id;
  }
  above.last_child = id;
  return id;
}

NameTree::NameTree(std::span<const format::TensorRecord> tensors) {
  nodes_.reserve(tensors.size() * 2 + 1);
  nodes_.emplace_back();
  std::unordered_map<ChildKey, NodeId, ChildKeyHash> ids;
  ids.reserve(tensors.size() * 2);
  // Neighbours in a file share most of their path: only what differs is looked up.
  std::vector<std::string_view> components;
  std::vector<NodeId> trail{0};
  for (std::size_t index = 0; index < tensors.size(); ++index) {
    const std::string_view name = tensors[index].name;
    split(name, components);
    std::size_t depth = 0;
    while (depth < components.size() && depth + 1 < trail.size() &&
           nodes_[trail[depth + 1]].text == components[depth]) {
      ++depth;
    }
    trail.resize(depth + 1);
    for (; depth < components.size(); ++depth) {
      const std::string_view text = components[depth];
      const auto [entry, is_new] = ids.try_emplace({trail.back(), text}, kNoNode);
      if (is_new) {
        const auto path_bytes = static_cast<std::size_t>(text.data() - name.data()) + text.size();
        entry->second = add_child(trail.back(), text, name.substr(0, path_bytes), index);
      }
      trail.push_back(entry->second);
    }
    nodes_[trail.back()].tensor = index;
  }
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
    for (const char digit : nodes_[child].text) {
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
    while (child != kNoNode && nodes_[child].text != component) {
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
