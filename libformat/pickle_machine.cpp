#include "pickle_machine.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include <fmt/format.h>

#include "header_layout.h"

namespace trash_panda::format {

namespace {

/// And most for each of its bytes: no opcode of a byte makes more, but for calls of OrderedDict,
/// whose argument may be the same list each time.
constexpr std::uint64_t kValuesPerByte = 4;

constexpr std::uint64_t kPickleProtocolMax = 5;

/// Longest module or name that a GLOBAL may have.
constexpr std::size_t kGlobalBytesMax = 1000;

std::uint64_t little_endian(std::span<const std::byte> bytes) {
  std::uint64_t number = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    number |= std::to_integer<std::uint64_t>(bytes[i]) << (8 * i);
  }
  return number;
}

/// A two's complement number of fewer than 8 bytes, widened.
std::uint64_t sign_extended(std::uint64_t number, std::size_t width_bytes) {
  if (width_bytes == 0 || width_bytes >= 8) {
    return number;
  }
  const std::uint64_t sign = std::uint64_t{1} << (8 * width_bytes - 1);
  return (number ^ sign) - sign;
}

}  // namespace

struct PickleMachine::OpcodeTable {
  std::array<Opcode, 256> opcodes{};

  constexpr OpcodeTable();
};

constexpr PickleMachine::OpcodeTable::OpcodeTable() {
  using M = PickleMachine;
  opcodes[0x80] = {"PROTO", &M::protocol};
  opcodes[0x95] = {"FRAME", &M::frame};
  opcodes['.'] = {"STOP", &M::stop};
  opcodes['('] = {"MARK", &M::mark};
  opcodes['0'] = {"POP", &M::drop};
  opcodes['1'] = {"POP_MARK", &M::drop_to_mark};
  opcodes['2'] = {"DUP", &M::duplicate};
  opcodes['N'] = {"NONE", &M::skip_scalar<0>};
  opcodes[0x88] = {"NEWTRUE", &M::truth<1>};
  opcodes[0x89] = {"NEWFALSE", &M::truth<0>};
  opcodes['G'] = {"BINFLOAT", &M::skip_scalar<8>};
  opcodes['K'] = {"BININT1", &M::small_integer<1>};
  opcodes['M'] = {"BININT2", &M::small_integer<2>};
  opcodes['J'] = {"BININT", &M::signed_integer};
  opcodes[0x8a] = {"LONG1", &M::long_integer<1>};
  opcodes[0x8b] = {"LONG4", &M::long_integer<4>};
  opcodes['U'] = {"SHORT_BINSTRING", &M::string<1>};
  opcodes['T'] = {"BINSTRING", &M::string<4>};
  opcodes[0x8c] = {"SHORT_BINUNICODE", &M::string<1>};
  opcodes['X'] = {"BINUNICODE", &M::string<4>};
  opcodes[0x8d] = {"BINUNICODE8", &M::string<8>};
  opcodes['C'] = {"SHORT_BINBYTES", &M::byte_string<1>};
  opcodes['B'] = {"BINBYTES", &M::byte_string<4>};
  opcodes[0x8e] = {"BINBYTES8", &M::byte_string<8>};
  opcodes[')'] = {"EMPTY_TUPLE", &M::short_tuple<0>};
  opcodes[0x85] = {"TUPLE1", &M::short_tuple<1>};
  opcodes[0x86] = {"TUPLE2", &M::short_tuple<2>};
  opcodes[0x87] = {"TUPLE3", &M::short_tuple<3>};
  opcodes['t'] = {"TUPLE", &M::tuple};
  opcodes[']'] = {"EMPTY_LIST", &M::empty_container<PickleKind::kList>};
  opcodes['l'] = {"LIST", &M::container<PickleKind::kList>};
  opcodes['a'] = {"APPEND", &M::append};
  opcodes['e'] = {"APPENDS", &M::append_all};
  opcodes['}'] = {"EMPTY_DICT", &M::empty_container<PickleKind::kDict>};
  opcodes['d'] = {"DICT", &M::container<PickleKind::kDict>};
  opcodes['s'] = {"SETITEM", &M::set_item};
  opcodes['u'] = {"SETITEMS", &M::set_items};
  opcodes['q'] = {"BINPUT", &M::memo_put<1>};
  opcodes['r'] = {"LONG_BINPUT", &M::memo_put<4>};
  opcodes[0x94] = {"MEMOIZE", &M::memoize};
  opcodes['h'] = {"BINGET", &M::memo_get<1>};
  opcodes['j'] = {"LONG_BINGET", &M::memo_get<4>};
  opcodes['c'] = {"GLOBAL", &M::global};
  opcodes[0x93] = {"STACK_GLOBAL", &M::stack_global};
  opcodes['Q'] = {"BINPERSID", &M::persistent_id};
  opcodes['R'] = {"REDUCE", &M::reduce};
  opcodes['b'] = {"BUILD", &M::build};
  // Known, so that a refusal can name them.
  opcodes['i'] = {"INST"};
  opcodes['o'] = {"OBJ"};
  opcodes[0x81] = {"NEWOBJ"};
  opcodes[0x92] = {"NEWOBJ_EX"};
  opcodes[0x82] = {"EXT1"};
  opcodes[0x83] = {"EXT2"};
  opcodes[0x84] = {"EXT4"};
  opcodes['P'] = {"PERSID"};
  opcodes['I'] = {"INT"};
  opcodes['L'] = {"LONG"};
  opcodes['F'] = {"FLOAT"};
  opcodes['S'] = {"STRING"};
  opcodes['V'] = {"UNICODE"};
  opcodes['p'] = {"PUT"};
  opcodes['g'] = {"GET"};
  opcodes[0x8f] = {"EMPTY_SET"};
  opcodes[0x90] = {"ADDITEMS"};
  opcodes[0x91] = {"FROZENSET"};
  opcodes[0x96] = {"BYTEARRAY8"};
  opcodes[0x97] = {"NEXT_BUFFER"};
  opcodes[0x98] = {"READONLY_BUFFER"};
}

Result<PickleGraph> PickleMachine::run(std::span<const std::byte> bytes) {
  // The rest, where there is more, is the tensors' data.
  PickleMachine machine(bytes.first(std::min<std::size_t>(bytes.size(), kPickleBytesMax)));
  TP_RETURN_IF_ERROR(machine.run_all());
  return std::move(machine.graph_);
}

Result<void> PickleMachine::run_all() {
  static constexpr OpcodeTable kTable;
  while (!is_finished_) {
    TP_ASSIGN_OR_RETURN(const std::uint64_t code, take_number(1));
    const Opcode& opcode = kTable.opcodes[code];
    if (opcode.run == nullptr) {
      --at_bytes_;
      return std::unexpected(
          opcode.name.empty()
              ? broken(fmt::format("has the byte {:#04x}, which is no opcode,", code))
              : refused_pickle(fmt::format("the pickle uses the opcode {} at {}, which is not "
                                           "among those that plain tensors need; nothing was "
                                           "executed",
                                           opcode.name, at_bytes_)));
    }
    TP_RETURN_IF_ERROR((this->*opcode.run)());
  }
  return {};
}

Error PickleMachine::broken(std::string_view what) const {
  return Error(ErrorCode::kCorrupt, fmt::format("the pickle {} at {}", what, at_bytes_))
      .with_reason("pickle")
      .with_hint("the file is damaged: download it again");
}

// What follows an opcode.

Result<std::span<const std::byte>> PickleMachine::take(std::uint64_t size_bytes) {
  const std::uint64_t left_bytes = bytes_.size() - at_bytes_;
  if (size_bytes > left_bytes) {
    return std::unexpected(
        Error(ErrorCode::kCorrupt, fmt::format("the pickle needs {} bytes at {}, where {} are left",
                                               size_bytes, at_bytes_, left_bytes))
            .with_reason("truncated")
            .with_hint("the file is damaged or incomplete: download it again"));
  }
  const std::span<const std::byte> taken = bytes_.subspan(at_bytes_, size_bytes);
  at_bytes_ += size_bytes;
  return taken;
}

Result<std::uint64_t> PickleMachine::take_number(std::size_t width_bytes) {
  TP_ASSIGN_OR_RETURN(const auto bytes, take(width_bytes));
  return little_endian(bytes);
}

Result<std::string_view> PickleMachine::take_line() {
  const std::span<const std::byte> rest =
      bytes_.subspan(at_bytes_, std::min(bytes_.size() - at_bytes_, kGlobalBytesMax + 1));
  const auto end = std::ranges::find(rest, std::byte{'\n'});
  if (end == rest.end()) {
    // Where the bytes end within the line, more of them may be to come.
    return std::unexpected(rest.size() > kGlobalBytesMax
                               ? broken("has a name of more than 1000 bytes")
                               : take(rest.size() + 1).error());
  }
  const auto size = static_cast<std::size_t>(end - rest.begin());
  at_bytes_ += size + 1;
  return std::string_view(reinterpret_cast<const char*>(rest.data()), size);
}

template <std::size_t kWidth>
Result<std::span<const std::byte>> PickleMachine::take_sized() {
  TP_ASSIGN_OR_RETURN(const std::uint64_t size_bytes, take_number(kWidth));
  return take(size_bytes);
}

// The stack.

Result<void> PickleMachine::push(PickleValue value) {
  if (stack_.size() >= kValuesMax) {
    return charge(kValuesMax + 1);
  }
  stack_.push_back(value);
  return {};
}

Result<PickleValue> PickleMachine::top() const {
  // What lies below a mark is out of reach, as in Python's own machine.
  if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) {
    return std::unexpected(broken("takes a value that is not there"));
  }
  return stack_.back();
}

Result<PickleValue> PickleMachine::pop() {
  TP_ASSIGN_OR_RETURN(const PickleValue value, top());
  stack_.pop_back();
  return value;
}

Result<std::size_t> PickleMachine::pop_mark() {
  if (marks_.empty()) {
    return std::unexpected(broken("takes a mark that is not there"));
  }
  const std::size_t first = marks_.back();
  marks_.pop_back();
  return first;
}

Result<void> PickleMachine::charge(std::uint64_t value_count) {
  value_count_ += value_count;
  const std::uint64_t limit = std::min(kValuesMax, kValuesPerByte * at_bytes_);
  if (value_count_ <= limit) {
    return {};
  }
  return std::unexpected(refused_pickle(
      fmt::format("the pickle has more than {} values, the limit, at {}", limit, at_bytes_)));
}

Result<void> PickleMachine::mark() {
  if (marks_.size() >= kValuesMax) {
    return charge(kValuesMax + 1);
  }
  marks_.push_back(stack_.size());
  return {};
}

Result<void> PickleMachine::drop() {
  // Python's machine drops a mark where there is nothing above it; no writer relies on that.
  TP_RETURN_IF_ERROR(pop());
  return {};
}

Result<void> PickleMachine::drop_to_mark() {
  TP_ASSIGN_OR_RETURN(const std::size_t first, pop_mark());
  stack_.resize(first);
  return {};
}

Result<void> PickleMachine::duplicate() {
  TP_ASSIGN_OR_RETURN(const PickleValue value, top());
  return push(value);
}

// Frames, numbers and strings.

Result<void> PickleMachine::protocol() {
  TP_ASSIGN_OR_RETURN(const std::uint64_t version, take_number(1));
  if (version > kPickleProtocolMax) {
    return std::unexpected(refused_pickle(fmt::format(
        "the pickle is of protocol {}, known are those to {}", version, kPickleProtocolMax)));
  }
  return {};
}

Result<void> PickleMachine::frame() {
  // How a writer cut its output into reads: nothing that the values depend on.
  TP_RETURN_IF_ERROR(take(8));
  return {};
}

Result<void> PickleMachine::stop() {
  TP_ASSIGN_OR_RETURN(graph_.root, pop());
  graph_.end_bytes = at_bytes_;
  for (const std::uint64_t dict : dicts_) {
    drop_overwritten(graph_.containers[dict]);
  }
  is_finished_ = true;
  return {};
}

template <std::size_t kWidth>
Result<void> PickleMachine::skip_scalar() {
  TP_RETURN_IF_ERROR(take(kWidth));
  return push({});
}

template <std::uint64_t kTruth>
Result<void> PickleMachine::truth() {
  return push({.kind = PickleKind::kBool, .payload = kTruth});
}

template <std::size_t kWidth>
Result<void> PickleMachine::small_integer() {
  TP_ASSIGN_OR_RETURN(const std::uint64_t number, take_number(kWidth));
  return push({.kind = PickleKind::kInteger, .payload = number});
}

Result<void> PickleMachine::signed_integer() {
  TP_ASSIGN_OR_RETURN(const std::uint64_t number, take_number(4));
  return push({.kind = PickleKind::kInteger, .payload = sign_extended(number, 4)});
}

template <std::size_t kWidth>
Result<void> PickleMachine::long_integer() {
  TP_ASSIGN_OR_RETURN(const auto bytes, take_sized<kWidth>());
  if (bytes.size() > 8) {
    return push({});
  }
  return push(
      {.kind = PickleKind::kInteger, .payload = sign_extended(little_endian(bytes), bytes.size())});
}

template <std::size_t kWidth>
Result<void> PickleMachine::string() {
  TP_ASSIGN_OR_RETURN(const auto bytes, take_sized<kWidth>());
  // Shorter than the pickle, whose length fits in 32 bits: see run().
  return push({.kind = PickleKind::kString,
               .size = static_cast<std::uint32_t>(bytes.size()),
               .payload = static_cast<std::uint64_t>(bytes.data() - bytes_.data())});
}

template <std::size_t kWidth>
Result<void> PickleMachine::byte_string() {
  TP_RETURN_IF_ERROR(take_sized<kWidth>());
  return push({});
}

// Tuples, lists and dicts.

template <std::size_t kCount>
Result<void> PickleMachine::short_tuple() {
  if (stack_.size() - (marks_.empty() ? 0 : marks_.back()) < kCount) {
    return std::unexpected(broken("takes a value that is not there"));
  }
  return make_tuple(stack_.size() - kCount);
}

template <PickleKind kKind>
Result<void> PickleMachine::empty_container() {
  return make_container(kKind, stack_.size());
}

template <PickleKind kKind>
Result<void> PickleMachine::container() {
  TP_ASSIGN_OR_RETURN(const std::size_t first, pop_mark());
  TP_RETURN_IF_ERROR(make_container(kKind, first));
  return move_items(first + 1, kKind, kKind == PickleKind::kDict ? 2 : 1);
}

// The memo.

template <std::size_t kWidth>
Result<void> PickleMachine::memo_put() {
  TP_ASSIGN_OR_RETURN(const std::uint64_t index, take_number(kWidth));
  return put(index);
}

template <std::size_t kWidth>
Result<void> PickleMachine::memo_get() {
  TP_ASSIGN_OR_RETURN(const std::uint64_t index, take_number(kWidth));
  if (index >= memo_.size() || !memo_[index]) {
    return std::unexpected(
        broken(fmt::format("takes the value number {}, which is not stored", index)));
  }
  return push(*memo_[index]);
}

}  // namespace trash_panda::format
