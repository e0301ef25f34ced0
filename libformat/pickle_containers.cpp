// What a pickle collects: the opcodes of PickleMachine for tuples, lists, dicts and the memo.

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "pickle_machine.h"

namespace trash_panda::format {

Result<void> PickleMachine::tuple() {
  TP_ASSIGN_OR_RETURN(const std::size_t first, pop_mark());
  return make_tuple(first);
}

Result<void> PickleMachine::make_tuple(std::size_t first) {
  const std::size_t size = stack_.size() - first;
  TP_RETURN_IF_ERROR(charge(size));
  const PickleValue value{.kind = PickleKind::kTuple,
                          .size = static_cast<std::uint32_t>(size),
                          .payload = graph_.items.size()};
  graph_.items.insert(graph_.items.end(), stack_.begin() + static_cast<std::ptrdiff_t>(first),
                      stack_.end());
  stack_.resize(first);
  return push(value);
}

Result<void> PickleMachine::make_container(PickleKind kind, std::size_t first) {
  TP_RETURN_IF_ERROR(charge(kContainerValues));
  const PickleValue value{.kind = kind, .payload = graph_.containers.size()};
  if (kind == PickleKind::kDict) {
    dicts_.push_back(graph_.containers.size());
  }
  graph_.containers.emplace_back();
  // Below the items, as the opcodes that fill one expect it.
  TP_RETURN_IF_ERROR(push({}));
  std::rotate(stack_.begin() + static_cast<std::ptrdiff_t>(first), stack_.end() - 1, stack_.end());
  stack_[first] = value;
  return {};
}

/// Keeps the last value of each key, in the place of its first, as Python's dicts do. Keys of other
/// kinds than strings and whole numbers name nothing and stay as they are.
void PickleMachine::drop_overwritten(std::vector<PickleValue>& dict) const {
  const auto rank = [this, &dict](std::uint32_t at) {
    const PickleValue& key = dict[at];
    const bool is_string = key.kind == PickleKind::kString;
    return std::tuple(is_string, is_string ? graph_.string(key) : std::string_view(),
                      is_string ? 0 : key.payload);
  };
  std::vector<std::uint32_t> keys;
  for (std::size_t at = 0; dict.size() > 2 && at < dict.size(); at += 2) {
    const PickleKind kind = dict[at].kind;
    // True is 1 to a dict.
    if (kind == PickleKind::kString || kind == PickleKind::kInteger || kind == PickleKind::kBool) {
      keys.push_back(static_cast<std::uint32_t>(at));
    }
  }
  std::ranges::sort(keys, {}, [&rank](std::uint32_t at) { return std::tuple(rank(at), at); });
  std::vector<std::uint32_t> overwritten;
  for (std::size_t first = 0, next = 0; first < keys.size(); first = next) {
    for (next = first + 1; next < keys.size() && rank(keys[next]) == rank(keys[first]); ++next) {
      dict[keys[first] + 1] = dict[keys[next] + 1];
      overwritten.push_back(keys[next]);
    }
  }
  if (overwritten.empty()) {
    return;
  }
  std::ranges::sort(overwritten);
  auto next = overwritten.begin();
  std::size_t kept = 0;
  for (std::size_t at = 0; at < dict.size(); at += 2) {
    if (next != overwritten.end() && *next == at) {
      ++next;
      continue;
    }
    dict[kept++] = dict[at];
    dict[kept++] = dict[at + 1];
  }
  dict.resize(kept);
}

/// Moves what is on the stack from `first` on into the container below.
Result<void> PickleMachine::move_items(std::size_t first, PickleKind kind, std::size_t multiple) {
  const std::size_t bottom = marks_.empty() ? 0 : marks_.back();
  const std::size_t count = stack_.size() - first;
  if (first <= bottom || stack_[first - 1].kind != kind || count % multiple != 0) {
    return std::unexpected(broken(kind == PickleKind::kDict
                                      ? "sets items of something that is no dict, or half of one"
                                      : "appends to something that is no list"));
  }
  TP_RETURN_IF_ERROR(charge(count));
  std::vector<PickleValue>& target = graph_.containers[stack_[first - 1].payload];
  target.insert(target.end(), stack_.begin() + static_cast<std::ptrdiff_t>(first), stack_.end());
  stack_.resize(first);
  return {};
}

Result<void> PickleMachine::append() {
  TP_RETURN_IF_ERROR(top());
  return move_items(stack_.size() - 1, PickleKind::kList, 1);
}

Result<void> PickleMachine::append_all() {
  TP_ASSIGN_OR_RETURN(const std::size_t first, pop_mark());
  return move_items(first, PickleKind::kList, 1);
}

Result<void> PickleMachine::set_item() {
  if (stack_.size() < 2) {
    return std::unexpected(broken("takes a value that is not there"));
  }
  return move_items(stack_.size() - 2, PickleKind::kDict, 2);
}

Result<void> PickleMachine::set_items() {
  TP_ASSIGN_OR_RETURN(const std::size_t first, pop_mark());
  return move_items(first, PickleKind::kDict, 2);
}

Result<void> PickleMachine::put(std::uint64_t index) {
  TP_ASSIGN_OR_RETURN(const PickleValue value, top());
  // Writers number from 0, one opcode of 2 bytes or more at a time: an index can't reach the
  // bytes that were read, and a hostile one can't make us allocate more.
  if (index >= at_bytes_ || index >= kValuesMax) {
    return std::unexpected(broken(fmt::format("stores a value as number {}", index)));
  }
  if (index >= memo_.size()) {
    memo_.resize(index + 1);
  }
  memo_[index] = value;
  return {};
}

Result<void> PickleMachine::memoize() {
  return put(memo_.size());
}

}  // namespace trash_panda::format
