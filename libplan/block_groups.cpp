#include "trash_panda/plan/block_groups.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "trash_panda/base/printable.h"

#include "execution_rank.h"
#include "group_rules.h"
#include "name_tree.h"

namespace trash_panda::plan {
namespace {

/// Walks the tree from the top and makes groups of the outermost lists that are blocks: what is
/// nested inside a block (experts, attention lists of a UNet level) belongs to it.
class GroupFinder {
 public:
  GroupFinder(NameTree& tree, std::span<const format::TensorRecord> tensors)
      : tree_(tree), tensors_(tensors) {}

  enum class Members { kBlocks, kEqualLayers };

  void search(NodeId at, Members wanted) {
    const std::vector<NodeId> members = tree_.numbered_children(at);
    const bool found = wanted == Members::kBlocks ? are_blocks(tree_, members)
                                                  : are_equal_layers(tree_, members, tensors_);
    if (found) {
      add_group(at, members);
    }
    std::vector<NodeId> rest;
    for (const NodeId child : tree_.children(at)) {
      if (!found || !tree_.node(child).is_number) {
        rest.push_back(child);
      }
    }
    // Stable: without words that tell, the order of the file stays.
    std::ranges::stable_sort(
        rest, {}, [this](NodeId child) { return execution_rank(tree_.node(child).text()); });
    for (const NodeId child : rest) {
      search(child, wanted);
    }
  }

  void add_group(NodeId at, std::span<const NodeId> members) {
    BlockGroup group;
    group.prefix = tree_.node(at).path;
    if (at != tree_.root()) {
      group.prefix += '.';
    }
    for (const NodeId member : members) {
      Block block;
      block.name = tree_.node(member).path;
      const std::span<const std::uint32_t> tensors = tree_.tensors_below(member);
      block.tensors.assign(tensors.begin(), tensors.end());
      for (const std::size_t index : block.tensors) {
        block.stored_bytes += tensors_[index].size_bytes;
      }
      group.blocks.push_back(std::move(block));
    }
    groups_.push_back(std::move(group));
  }

  [[nodiscard]] std::vector<BlockGroup>& groups() { return groups_; }

 private:
  NameTree& tree_;
  std::span<const format::TensorRecord> tensors_;
  std::vector<BlockGroup> groups_;
};

Error unknown_prefix(NameTree& tree, std::string_view prefix,
                     std::span<const format::TensorRecord> tensors) {
  GroupFinder finder(tree, tensors);
  finder.search(tree.root(), GroupFinder::Members::kBlocks);
  std::string found;
  for (const BlockGroup& group : finder.groups()) {
    found += fmt::format("{}{}", found.empty() ? "" : ", ", printable(group.prefix));
  }
  return Error(ErrorCode::kUsage, fmt::format("--group {}: no tensor is named {}.<number>.…",
                                              printable(prefix), printable(prefix)))
      .with_hint(found.empty() ? "" : fmt::format("groups found by themselves: {}", found));
}

Result<void> add_named_groups(GroupFinder& finder, NameTree& tree,
                              std::span<const format::TensorRecord> tensors,
                              const std::vector<std::string>& prefixes) {
  for (const std::string& given : prefixes) {
    std::string_view prefix = given;
    if (prefix.ends_with('.')) {
      prefix.remove_suffix(1);
    }
    const NodeId at = tree.find(prefix);
    const std::vector<NodeId> members =
        at == kNoNode ? std::vector<NodeId>{} : tree.numbered_children(at);
    if (members.empty()) {
      return std::unexpected(unknown_prefix(tree, prefix, tensors));
    }
    finder.add_group(at, members);
  }
  return {};
}

}  // namespace

Result<BlockMap> find_blocks(std::span<const format::TensorRecord> tensors,
                             const BlockOptions& options) {
  NameTree tree(tensors);
  GroupFinder finder(tree, tensors);
  if (!options.groups.empty()) {
    TP_RETURN_IF_ERROR(add_named_groups(finder, tree, tensors, options.groups));
  } else {
    finder.search(tree.root(), GroupFinder::Members::kBlocks);
    if (finder.groups().empty()) {
      finder.search(tree.root(), GroupFinder::Members::kEqualLayers);
    }
  }
  BlockMap map;
  map.groups = std::move(finder.groups());
  std::vector<const Block*> owners(tensors.size(), nullptr);
  for (const BlockGroup& group : map.groups) {
    for (const Block& block : group.blocks) {
      for (const std::size_t index : block.tensors) {
        if (owners[index] != nullptr) {
          return std::unexpected(
              Error(ErrorCode::kUsage,
                    fmt::format("--group {}: its block {} overlaps block {} of another group",
                                printable(group.prefix), printable(block.name),
                                printable(owners[index]->name))));
        }
        owners[index] = &block;
      }
    }
  }
  for (std::size_t index = 0; index < tensors.size(); ++index) {
    if (owners[index] == nullptr) {
      map.outside.push_back(index);
    }
  }
  return map;
}

}  // namespace trash_panda::plan
