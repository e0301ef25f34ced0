// What a pickle names, calls and fills: the opcodes of PickleMachine that would run code.

#include <bit>
#include <utility>

#include <fmt/format.h>

#include "header_layout.h"
#include "pickle_machine.h"

namespace trash_panda::format {

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
  if (known < graph_.storages.size() && graph_.storages[known].key == storage.key &&
      graph_.storages[known].dtype != storage.dtype) {
    return std::unexpected(broken(fmt::format("has storage {} as two types, {} being the second,",
                                              quote_name(storage.key), type.name)));
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
  dicts_.push_back(graph_.containers.size());
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
