#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "trash_panda/base/error.h"

#include "pickle_globals.h"
#include "pickle_graph.h"

namespace trash_panda::format {

/// Longest pickle that is read, in bytes: a state dict of 91,991 tensors has about 25 MB.
inline constexpr std::uint64_t kPickleBytesMax = 100'000'000;

/// Interprets the opcodes of one pickle that torch.save() needs for a state dict. Nothing is
/// imported, made or called: names of a whitelist become marks, "calls" of them tensors and dicts
/// of our own, and any other name or opcode is refused.
///
/// Memory is in proportion to the pickle's length, whatever it says: each opcode adds a few values
/// of 16 bytes at most, and what could multiply them is counted. No recursion.
///
/// @see Python's pickletools module, which documents every opcode
class PickleMachine {
 public:
  /// @param bytes  Begins with the pickle; outlives the graph.
  /// @retval kUnsupported  A name or opcode outside the whitelist, by its name; a pickle too long.
  /// @retval kCorrupt      No sound pickle; reason "truncated" when the bytes end within it.
  static Result<PickleGraph> run(std::span<const std::byte> bytes);

 private:
  /// Most values that one pickle may hold at a time, of 16 bytes each: a state dict has some 20 per
  /// tensor.
  static constexpr std::uint64_t kValuesMax = 8'000'000;
  /// What a container costs beside its items, in values.
  static constexpr std::uint64_t kContainerValues = 2;

  using Handler = Result<void> (PickleMachine::*)();
  struct Opcode {
    std::string_view name;
    Handler run = nullptr;  ///< Null: refused.
  };
  struct OpcodeTable;

  explicit PickleMachine(std::span<const std::byte> bytes) : bytes_(bytes) { graph_.bytes = bytes; }

  Result<void> run_all();

  // What follows an opcode in the pickle.
  Result<std::span<const std::byte>> take(std::uint64_t size_bytes);
  Result<std::uint64_t> take_number(std::size_t width_bytes);
  Result<std::string_view> take_line();
  template <std::size_t kWidth>
  Result<std::span<const std::byte>> take_sized();

  // The stack.
  Result<void> push(PickleValue value);
  Result<PickleValue> pop();
  Result<PickleValue> top() const;
  Result<std::size_t> pop_mark();
  /// Counts what is kept beside the stack.
  Result<void> charge(std::uint64_t value_count);

  // Opcodes, by group.
  Result<void> protocol();
  Result<void> frame();
  Result<void> stop();
  Result<void> mark();
  Result<void> drop();
  Result<void> drop_to_mark();
  Result<void> duplicate();
  template <std::size_t kWidth>
  Result<void> skip_scalar();
  template <std::uint64_t kTruth>
  Result<void> truth();
  template <std::size_t kWidth>
  Result<void> small_integer();
  Result<void> signed_integer();
  template <std::size_t kWidth>
  Result<void> long_integer();
  template <std::size_t kWidth>
  Result<void> string();
  template <std::size_t kWidth>
  Result<void> byte_string();
  template <std::size_t kCount>
  Result<void> short_tuple();
  Result<void> tuple();
  template <PickleKind kKind>
  Result<void> empty_container();
  template <PickleKind kKind>
  Result<void> container();
  Result<void> append();
  Result<void> append_all();
  Result<void> set_item();
  Result<void> set_items();
  template <std::size_t kWidth>
  Result<void> memo_put();
  Result<void> memoize();
  template <std::size_t kWidth>
  Result<void> memo_get();
  Result<void> global();
  Result<void> stack_global();
  Result<void> persistent_id();
  Result<void> reduce();
  Result<void> build();

  Result<void> make_tuple(std::size_t first);
  Result<void> make_container(PickleKind kind, std::size_t first);
  void drop_overwritten(std::vector<PickleValue>& dict) const;
  Result<void> move_items(std::size_t first, PickleKind kind, std::size_t multiple);
  Result<void> put(std::uint64_t index);
  Result<void> push_global(std::string_view module, std::string_view name);
  Result<PickleValue> make_ordered_dict(std::span<const PickleValue> arguments);
  Result<PickleValue> make_tensor(const PickleGlobal& global,
                                  std::span<const PickleValue> arguments);
  [[nodiscard]] std::optional<std::int64_t> integer(const PickleValue& value) const;
  [[nodiscard]] Error broken(std::string_view what) const;

  std::span<const std::byte> bytes_;
  std::uint64_t at_bytes_ = 0;
  bool is_finished_ = false;
  std::uint64_t value_count_ = 0;
  std::vector<PickleValue> stack_;
  std::vector<std::size_t> marks_;                ///< Sizes of stack_.
  std::vector<std::optional<PickleValue>> memo_;  ///< By index.
  std::unordered_map<std::string_view, std::uint32_t> storage_by_key_;
  std::vector<std::uint64_t> dicts_;  ///< Which of the graph's containers are dicts.
  PickleGraph graph_;
};

}  // namespace trash_panda::format
