// What a pickle collects: the opcodes of PickleMachine for tuples, lists, dicts and the memo.

#include <algorithm>

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
  graph_.containers.emplace_back();
  // Below the items, as the opcodes that fill one expect it.
  TP_RETURN_IF_ERROR(push({}));
  std::rotate(stack_.begin() + static_cast<std::ptrdiff_t>(first), stack_.end() - 1, stack_.end());
  stack_[first] = value;
  return {};
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
