#include "pickle_machine.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include <fmt/format.h>

#include "header_layout.h"

namespace trash_panda::format {

namespace {

/// Most values that one pickle may hold at a time, of 16 bytes each: a state dict has some 20 per
/// tensor.
constexpr std::uint64_t kPickleValuesMax = 16'000'000;

constexpr std::uint64_t kPickleProtocolMax = 5;

/// What a container costs beside its items, in values.
constexpr std::uint64_t kContainerValues = 2;

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
  if (stack_.size() >= kPickleValuesMax) {
    return charge(kPickleValuesMax + 1);
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
  if (value_count_ <= kPickleValuesMax) {
    return {};
  }
  return std::unexpected(refused_pickle(fmt::format(
      "the pickle has more than {} values, the limit, at {}", kPickleValuesMax, at_bytes_)));
}

Result<void> PickleMachine::mark() {
  if (marks_.size() >= kPickleValuesMax) {
    return charge(kPickleValuesMax + 1);
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

// The memo.

Result<void> PickleMachine::put(std::uint64_t index) {
  TP_ASSIGN_OR_RETURN(const PickleValue value, top());
  // Writers number from 0, one opcode of 2 bytes or more at a time: an index can't reach the
  // bytes that were read, and a hostile one can't make us allocate more.
  if (index >= at_bytes_ || index >= kPickleValuesMax) {
    return std::unexpected(broken(fmt::format("stores a value as number {}", index)));
  }
  if (index >= memo_.size()) {
    memo_.resize(index + 1);
  }
  memo_[index] = value;
  return {};
}

template <std::size_t kWidth>
Result<void> PickleMachine::memo_put() {
  TP_ASSIGN_OR_RETURN(const std::uint64_t index, take_number(kWidth));
  return put(index);
}

Result<void> PickleMachine::memoize() {
  return put(memo_.size());
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

// Names and what they would make.

Result<void> PickleMachine::push_global(std::string_view module, std::string_view name) {
  const auto index = find_pickle_global(module, name);
  if (!index) {
    return std::unexpected(refused_pickle(
        fmt::format("the pickle names {}, which is not among what plain tensors need; nothing was "
                    "executed",
                    quote_name(fmt::format("{}.{}", module, name)))));
  }
  return push({.kind = PickleKind::kGlobal, .payload = *index});
}

Result<void> PickleMachine::global() {
  TP_ASSIGN_OR_RETURN(const std::string_view module, take_line());
  TP_ASSIGN_OR_RETURN(const std::string_view name, take_line());
  return push_global(module, name);
}

Result<void> PickleMachine::stack_global() {
  TP_ASSIGN_OR_RETURN(const PickleValue name, pop());
  TP_ASSIGN_OR_RETURN(const PickleValue module, pop());
  if (name.kind != PickleKind::kString || module.kind != PickleKind::kString) {
    return std::unexpected(broken("makes a name of something that is no string"));
  }
  return push_global(graph_.string(module), graph_.string(name));
}

std::optional<std::int64_t> PickleMachine::integer(const PickleValue& value) const {
  return value.kind == PickleKind::kInteger
             ? std::optional(std::bit_cast<std::int64_t>(value.payload))
             : std::nullopt;
}

Result<void> PickleMachine::persistent_id() {
  TP_ASSIGN_OR_RETURN(const PickleValue id, pop());
  // ("storage", type, key, location, element count), and in old files the part of another storage
  // that it is, or None.
  const std::span<const PickleValue> parts = graph_.values(id);
  const bool is_storage =
      id.kind == PickleKind::kTuple && (parts.size() == 5 || parts.size() == 6) &&
      parts[0].kind == PickleKind::kString && graph_.string(parts[0]) == "storage" &&
      parts[1].kind == PickleKind::kGlobal && parts[2].kind == PickleKind::kString &&
      integer(parts[4]).value_or(-1) >= 0;
  if (!is_storage) {
    return std::unexpected(refused_pickle(fmt::format(
        "the pickle has a persistent id at {} that is no storage of tensors", at_bytes_)));
  }
  if (parts.size() == 6 && parts[5].kind != PickleKind::kOther) {
    return std::unexpected(
        refused_pickle("the pickle has a storage that is a part of another, as before torch 0.4"));
  }
  const PickleGlobal& type = pickle_global(parts[1].payload);
  if (type.kind != PickleGlobalKind::kStorageType &&
      type.kind != PickleGlobalKind::kUntypedStorageType) {
    return std::unexpected(broken(fmt::format("has a storage of type {}", type.name)));
  }
  PickledStorage storage{
      .key = graph_.string(parts[2]), .dtype = type.dtype, .element_count = parts[4].payload};
  auto& known = storage_by_key_[storage.key];
  if (known < graph_.storages.size() && graph_.storages[known].key == storage.key &&
      graph_.storages[known].dtype == storage.dtype &&
      graph_.storages[known].element_count == storage.element_count) {
    return push({.kind = PickleKind::kStorage, .payload = known});
  }
  TP_RETURN_IF_ERROR(charge(2 * kContainerValues));
  known = static_cast<std::uint32_t>(graph_.storages.size());
  graph_.storages.push_back(storage);
  return push({.kind = PickleKind::kStorage, .payload = known});
}

Result<void> PickleMachine::reduce() {
  TP_ASSIGN_OR_RETURN(const PickleValue arguments, pop());
  TP_ASSIGN_OR_RETURN(const PickleValue callee, pop());
  if (callee.kind != PickleKind::kGlobal || arguments.kind != PickleKind::kTuple) {
    return std::unexpected(broken("calls something that is no name, or not with a tuple"));
  }
  const PickleGlobal& global = pickle_global(callee.payload);
  const std::span<const PickleValue> values = graph_.values(arguments);
  Result<PickleValue> made = std::unexpected(
      broken(fmt::format("calls {}.{} with other than its arguments", global.module, global.name)));
  switch (global.kind) {
    case PickleGlobalKind::kOrderedDict:
      made = make_ordered_dict(values);
      break;
    case PickleGlobalKind::kRebuildTensor:
    case PickleGlobalKind::kRebuildTensorV2:
    case PickleGlobalKind::kRebuildTensorV3:
      made = make_tensor(global, values);
      break;
    case PickleGlobalKind::kRebuildParameter:
    case PickleGlobalKind::kRebuildParameterWithState:
      if (!values.empty() && values[0].kind == PickleKind::kTensor) {
        made = values[0];
      }
      break;
    case PickleGlobalKind::kSize:
      if (values.size() == 1 &&
          (values[0].kind == PickleKind::kTuple || values[0].kind == PickleKind::kList)) {
        made = values[0];
      }
      break;
    case PickleGlobalKind::kStorageType:
    case PickleGlobalKind::kUntypedStorageType:
    case PickleGlobalKind::kDtype:
      break;
  }
  TP_ASSIGN_OR_RETURN(const PickleValue value, std::move(made));
  return push(value);
}

/// OrderedDict(), filled by later opcodes, or OrderedDict([[key, value], …]) of Python 2.
Result<PickleValue> PickleMachine::make_ordered_dict(std::span<const PickleValue> arguments) {
  TP_RETURN_IF_ERROR(charge(kContainerValues));
  std::vector<PickleValue> dict;
  if (arguments.size() > 1) {
    return std::unexpected(broken("calls OrderedDict with more than one argument"));
  }
  if (!arguments.empty()) {
    const std::span<const PickleValue> pairs = graph_.values(arguments[0]);
    TP_RETURN_IF_ERROR(charge(2 * pairs.size()));
    dict.reserve(2 * pairs.size());
    for (const PickleValue& pair : pairs) {
      const std::span<const PickleValue> parts = graph_.values(pair);
      if (pair.kind == PickleKind::kDict || parts.size() != 2) {
        return std::unexpected(broken("calls OrderedDict with other than pairs"));
      }
      dict.insert(dict.end(), parts.begin(), parts.end());
    }
  }
  graph_.containers.push_back(std::move(dict));
  return PickleValue{.kind = PickleKind::kDict, .payload = graph_.containers.size() - 1};
}

Result<PickleValue> PickleMachine::make_tensor(const PickleGlobal& global,
                                               std::span<const PickleValue> arguments) {
  const bool is_v3 = global.kind == PickleGlobalKind::kRebuildTensorV3;
  const std::size_t count = global.kind == PickleGlobalKind::kRebuildTensor ? 4 : is_v3 ? 7 : 6;
  const bool has_dtype = is_v3 && arguments.size() > 6 &&
                         arguments[6].kind == PickleKind::kGlobal &&
                         pickle_global(arguments[6].payload).kind == PickleGlobalKind::kDtype;
  if (arguments.size() < count || arguments.size() > count + 1 || is_v3 != has_dtype ||
      arguments[0].kind != PickleKind::kStorage || !integer(arguments[1])) {
    return std::unexpected(
        broken(fmt::format("calls {} with other than its arguments", global.name)));
  }
  // Metadata say that values are conjugated or negated when they are used.
  if (arguments.size() > count && !graph_.values(arguments[count]).empty()) {
    return std::unexpected(refused_pickle(fmt::format(
        "the pickle has a tensor with metadata (a lazy conjugate or negative) at {}", at_bytes_)));
  }
  TP_RETURN_IF_ERROR(charge(sizeof(PickledTensor) / sizeof(PickleValue)));
  graph_.tensors.push_back(
      {.storage_index = static_cast<std::uint32_t>(arguments[0].payload),
       .dtype = is_v3 ? pickle_global(arguments[6].payload).dtype : std::optional<Dtype>(),
       .storage_offset = *integer(arguments[1]),
       .shape = arguments[2],
       .strides = arguments[3]});
  return PickleValue{.kind = PickleKind::kTensor, .payload = graph_.tensors.size() - 1};
}

Result<void> PickleMachine::build() {
  // State of a dict: attributes such as torch's _metadata (versions of modules), no items.
  TP_RETURN_IF_ERROR(pop());
  TP_ASSIGN_OR_RETURN(const PickleValue object, top());
  if (object.kind != PickleKind::kDict) {
    return std::unexpected(refused_pickle(
        fmt::format("the pickle sets the state of something other than a dict at {}", at_bytes_)));
  }
  return {};
}

}  // namespace trash_panda::format
