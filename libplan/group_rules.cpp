#include "group_rules.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <unordered_map>

namespace trash_panda::plan {
namespace {

/// Kinds of member that are compared pair by pair: UNets have about ten, and the work is quadratic.
constexpr std::size_t kKindsMax = 64;

/// Sorted hashes of the parameter paths below a member, numbers aside.
using Structure = std::vector<std::uint64_t>;

std::uint64_t combine(std::uint64_t seed, std::uint64_t value) {
  // The finalizer of splitmix64 over both: order matters, as in a path.
  std::uint64_t x = seed * 0x9E3779B97F4A7C15U + value;
  x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27U)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31U);
}

/// A parameter; what follows below it (`weight.absmax`) are its companions, not modules.
bool is_parameter(const NameTree::Node& node) {
  return node.tensor != NameTree::kNoTensor;
}

void collect_paths(NameTree& tree, NodeId at, std::uint64_t seed, Structure& paths) {
  for (const NodeId child : tree.children(at)) {
    const std::uint64_t path = combine(seed, tree.node(child).structure_hash());
    if (is_parameter(tree.node(child))) {
      paths.push_back(path);
    } else {
      collect_paths(tree, child, path, paths);
    }
  }
}

Structure structure_of(NameTree& tree, NodeId member) {
  Structure paths;
  collect_paths(tree, member, 0, paths);
  std::ranges::sort(paths);
  const auto repeated = std::ranges::unique(paths);
  paths.erase(repeated.begin(), repeated.end());
  return paths;
}

/// Whether a module comes between the member's number and its parameters.
bool is_composite(NameTree& tree, NodeId member) {
  return std::ranges::any_of(tree.children(member),
                             [&](NodeId child) { return !is_parameter(tree.node(child)); });
}

bool resemble(const Structure& one, const Structure& other) {
  std::size_t common = 0;
  auto a = one.begin();
  auto b = other.begin();
  while (a != one.end() && b != other.end()) {
    common += *a == *b ? 1U : 0U;
    const bool advance_a = *a <= *b;
    const bool advance_b = *b <= *a;
    a += advance_a ? 1 : 0;
    b += advance_b ? 1 : 0;
  }
  return common > 0 && 2 * common >= std::min(one.size(), other.size());
}

}  // namespace

bool are_blocks(NameTree& tree, std::span<const NodeId> members) {
  if (members.size() < 2) {
    return false;
  }
  std::map<Structure, std::size_t> kinds;
  std::size_t simple = 0;
  std::size_t* count = nullptr;  // Of those like the member before.
  for (std::size_t i = 0; i < members.size(); ++i) {
    // Most repeat the one before name by name, and need no look into them.
    if (i == 0 || !tree.have_same_names(members[i - 1], members[i])) {
      count = is_composite(tree, members[i]) ? &kinds[structure_of(tree, members[i])] : &simple;
    }
    ++*count;
  }
  std::size_t alike = 0;
  for (auto kind = kinds.begin(); kind != kinds.end(); ++kind) {
    bool has_twin = kind->second > 1;
    std::size_t compared = 0;
    for (auto other = kinds.begin(); !has_twin && other != kinds.end() && compared < kKindsMax;
         ++other, ++compared) {
      has_twin = other != kind && resemble(kind->first, other->first);
    }
    alike += has_twin ? kind->second : 0;
  }
  return alike >= 2 && 2 * alike >= members.size();
}

bool are_equal_layers(NameTree& tree, std::span<const NodeId> members,
                      std::span<const format::TensorRecord> tensors) {
  if (members.size() < 3) {
    return false;
  }
  std::unordered_map<std::uint64_t, std::size_t> counts;
  std::size_t count_max = 0;
  for (const NodeId member : members) {
    std::vector<std::uint64_t> parameters;
    for (const NodeId child : tree.children(member)) {
      if (!is_parameter(tree.node(child))) {
        return false;
      }
      const format::TensorRecord& tensor = tensors[tree.node(child).tensor];
      std::uint64_t hash =
          combine(tree.node(child).structure_hash(), static_cast<std::uint64_t>(tensor.dtype));
      for (const std::uint64_t dimension : tensor.shape) {
        hash = combine(hash, dimension);
      }
      parameters.push_back(hash);
    }
    std::ranges::sort(parameters);
    std::uint64_t signature = parameters.size();
    for (const std::uint64_t parameter : parameters) {
      signature = combine(signature, parameter);
    }
    // A list of bare parameters (`codebooks.0`) has members without any child.
    count_max = std::max(count_max, parameters.empty() ? 0 : ++counts[signature]);
  }
  return 2 * count_max >= members.size();
}

}  // namespace trash_panda::plan
