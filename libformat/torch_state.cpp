#include "torch_state.h"

#include <algorithm>
#include <array>
#include <bit>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <simdjson.h>

#include "trash_panda/base/printable.h"
#include "trash_panda/format/safetensors_header.h"

#include "header_layout.h"
#include "pickle_globals.h"
#include "pickle_machine.h"
#include "torch_tensor.h"

namespace trash_panda::format {

namespace {

/// Keys under which training programs keep the weights beside other things.
/// @see Lightning ("state_dict"), DeepSpeed ("module"), BasicSR ("params")
constexpr std::array<std::string_view, 6> kWrapperKeys = {
    "state_dict", "model_state_dict", "model", "module", "params", "params_ema"};

/// What the keys of a training program's own tensors contain, which are no weights.
constexpr std::array<std::string_view, 5> kTrainingWords = {"optim", "sched", "scaler", "rng",
                                                            "random"};

/// Deepest nesting of dicts that is followed; circles end here.
constexpr std::size_t kNestingMax = 32;

/// Most values that are looked at: dicts that hold each other many times end here. A small pickle
/// may look at some lists more than once.
constexpr std::uint64_t kVisitsMax = 4'000'000;
constexpr std::uint64_t kVisitsMin = 65'536;

/// Bytes of the pickle that stand for a tensor of a dict: two for its key and two for itself, where
/// both were made before. Fewer, and it is the same dict again and again.
constexpr std::uint64_t kBytesPerTensorMin = 4;

/// Longest name of a value, in bytes, and how many all tensors' names may have for each byte of
/// the pickle: the keys of outer dicts count anew for each tensor in them.
constexpr std::size_t kNameBytesMax = 4096;
constexpr std::uint64_t kNameBytesPerByte = 16;

/// Most names that a note lists.
constexpr std::size_t kNotedNamesMax = 10;

bool is_container(const PickleValue& value) {
  return value.kind == PickleKind::kDict || value.kind == PickleKind::kList ||
         value.kind == PickleKind::kTuple;
}

Error repeated_dicts() {
  return refused_pickle("dicts of the pickle hold each other again and again");
}

/// Goes through what a value holds, depth first, and names it.
class StateWalker {
 public:
  explicit StateWalker(const PickleGraph& graph)
      : graph_(graph), visits_left_(std::clamp(graph.end_bytes, kVisitsMin, kVisitsMax)) {}

  /// Calls `found(name, value)` for everything below `root` that is no container.
  template <class Found>
  Result<void> walk(const PickleValue& root, Found found) {
    std::vector<Frame> frames = {{.value = root}};
    std::string name;
    while (!frames.empty()) {
      Frame& frame = frames.back();
      const std::span<const PickleValue> values = graph_.values(frame.value);
      if (frame.next >= values.size()) {
        frames.pop_back();
        continue;
      }
      name.resize(frame.prefix_bytes);
      TP_RETURN_IF_ERROR(append_key(name, frame, values));
      const PickleValue value = values[frame.next++];
      if (visits_left_-- == 0) {
        return std::unexpected(repeated_dicts());
      }
      if (!is_container(value)) {
        TP_RETURN_IF_ERROR(found(std::string_view(name), value));
        continue;
      }
      if (frames.size() >= kNestingMax) {
        return std::unexpected(refused_pickle(fmt::format(
            "dicts are nested more than {} deep at {}", kNestingMax, quote_name(name))));
      }
      name += '.';
      frames.push_back({.value = value, .prefix_bytes = name.size()});
    }
    return {};
  }

 private:
  struct Frame {
    PickleValue value;
    std::size_t next = 0;
    std::size_t prefix_bytes = 0;
  };

  /// Appends what the next value is called, and steps from a key to its value.
  Result<void> append_key(std::string& name, Frame& frame,
                          std::span<const PickleValue> values) const {
    if (frame.value.kind != PickleKind::kDict) {
      name += fmt::format("{}", frame.next);
      return {};
    }
    const PickleValue& key = values[frame.next++];
    if (key.kind == PickleKind::kString) {
      name += graph_.string(key);
    } else if (key.kind == PickleKind::kInteger) {
      name += fmt::format("{}", std::bit_cast<std::int64_t>(key.payload));
    } else {
      name += "?";
    }
    if (name.size() > kNameBytesMax) {
      return std::unexpected(refused_pickle(fmt::format(
          "the name {} in the pickle is longer than {} bytes", quote_name(name), kNameBytesMax)));
    }
    return {};
  }

  const PickleGraph& graph_;
  std::uint64_t visits_left_;
};

/// What a value of the outermost dict holds.
struct Member {
  std::string_view key;  ///< Empty for a key that is no string.
  PickleValue value;
  std::uint64_t tensor_count = 0;
  bool has_large_tensor = false;  ///< Of more than one element.

  void count(const PickleGraph& graph, const PickleValue& found) {
    if (found.kind == PickleKind::kTensor) {
      ++tensor_count;
      has_large_tensor =
          has_large_tensor ||
          std::ranges::any_of(graph.values(graph.tensors[found.payload].shape),
                              [](const PickleValue& size) { return size.payload > 1; });
    }
  }
  /// Whether it may be weights, and not a counter or the state of an optimizer.
  [[nodiscard]] bool may_be_weights() const {
    return has_large_tensor && std::ranges::none_of(kTrainingWords, [this](std::string_view word) {
             return key.find(word) != std::string_view::npos;
           });
  }
};

Result<std::vector<Member>> list_members(const PickleGraph& graph, StateWalker& walker) {
  const std::span<const PickleValue> values = graph.values(graph.root);
  std::vector<Member> members;
  for (std::size_t i = 0; i + 1 < values.size(); i += 2) {
    Member member{.key = {}, .value = values[i + 1]};
    if (values[i].kind == PickleKind::kString) {
      member.key = graph.string(values[i]);
    }
    member.count(graph, member.value);
    if (is_container(member.value)) {
      TP_RETURN_IF_ERROR(walker.walk(member.value, [&](std::string_view, const PickleValue& value) {
        member.count(graph, value);
        return Result<void>();
      }));
    }
    members.push_back(member);
  }
  return members;
}

std::string list_keys(const std::vector<std::string>& names) {
  std::vector<std::string> quoted;
  for (std::size_t i = 0; i < std::min(names.size(), kNotedNamesMax); ++i) {
    quoted.push_back(quote_name(names[i]));
  }
  std::string text = fmt::format("{}", fmt::join(quoted, ", "));
  if (names.size() > quoted.size()) {
    text += fmt::format(" and {} more", names.size() - quoted.size());
  }
  return text;
}

/// The dict that holds the weights: under one of the usual keys, else the outermost.
Result<PickleValue> choose_state_dict(const PickleGraph& graph, std::vector<std::string>& notes) {
  StateWalker walker(graph);
  TP_ASSIGN_OR_RETURN(const std::vector<Member> members, list_members(graph, walker));
  const auto is_wrapped = [](const Member& member) {
    return member.value.kind == PickleKind::kDict && member.tensor_count > 0 &&
           std::ranges::find(kWrapperKeys, member.key) != kWrapperKeys.end();
  };
  const auto wrapped = std::ranges::find_if(members, is_wrapped);
  if (wrapped == members.end()) {
    return graph.root;
  }
  std::vector<std::string> others;
  std::uint64_t other_tensors = 0;
  for (const Member& member : members) {
    if (&member == &*wrapped) {
      continue;
    }
    if (member.may_be_weights()) {
      return std::unexpected(
          refused_pickle(fmt::format("it holds weights both under {} and under {}",
                                     quote_name(wrapped->key), quote_name(member.key)))
              .with_hint("save those that are meant to a file of their own"));
    }
    others.emplace_back(member.key);
    other_tensors += member.tensor_count;
  }
  std::string note = fmt::format("the weights are those under {}", quote_name(wrapped->key));
  if (!others.empty()) {
    note += fmt::format("; left out with {} tensors: {}", other_tensors, list_keys(others));
  }
  notes.push_back(std::move(note));
  return wrapped->value;
}

Result<void> check_tensor_name(std::string_view name) {
  if (!simdjson::validate_utf8(name.data(), name.size())) {
    return std::unexpected(
        Error(ErrorCode::kCorrupt, fmt::format("tensor name {} is no UTF-8", quote_name(name)))
            .with_reason("utf8"));
  }
  if (name == "__metadata__") {
    return std::unexpected(
        refused_pickle("a tensor is named __metadata__, which packs and safetensors files keep "
                       "for themselves"));
  }
  return {};
}

/// Collects the tensors of a state dict.
class StateReader {
 public:
  StateReader(const PickleGraph& graph, TorchState& state) : graph_(graph), state_(state) {}

  Result<void> read(const PickleValue& dict) {
    for (const PickledStorage& storage : graph_.storages) {
      TP_ASSIGN_OR_RETURN(const std::uint64_t size_bytes, torch_storage_bytes(storage));
      state_.storages.push_back({.key = std::string(storage.key),
                                 .element_count = storage.element_count,
                                 .size_bytes = size_bytes});
    }
    StateWalker walker(graph_);
    TP_RETURN_IF_ERROR(walker.walk(dict, [this](std::string_view name, const PickleValue& value) {
      return take(name, value);
    }));
    if (left_out_count_ > 0) {
      const std::uint64_t unlisted = left_out_count_ - left_out_.size();
      state_.notes.push_back(fmt::format(
          "{} values that are no tensors are left out: {}{}", left_out_count_, list_keys(left_out_),
          unlisted > 0 ? fmt::format(" and {} more", unlisted) : ""));
    }
    return {};
  }

 private:
  Result<void> take(std::string_view name, const PickleValue& value) {
    if (value.kind != PickleKind::kTensor) {
      ++left_out_count_;
      if (left_out_.size() < kNotedNamesMax) {
        left_out_.emplace_back(name);
      }
      return {};
    }
    TP_RETURN_IF_ERROR(check_tensor_name(name));
    name_bytes_ += name.size();
    const std::uint64_t limit_bytes =
        std::min(kHeaderBytesMax, kNameBytesMax + kNameBytesPerByte * graph_.end_bytes);
    if (name_bytes_ > limit_bytes) {
      return std::unexpected(refused_pickle(
          fmt::format("the names of its tensors have more than {} bytes, the limit", limit_bytes)));
    }
    if (state_.tensors.size() > graph_.end_bytes / kBytesPerTensorMin) {
      return std::unexpected(repeated_dicts());
    }
    TP_ASSIGN_OR_RETURN(TorchTensor tensor, make_torch_tensor(graph_, graph_.tensors[value.payload],
                                                              std::string(name)));
    state_.tensors.push_back(std::move(tensor));
    return {};
  }

  const PickleGraph& graph_;
  TorchState& state_;
  std::vector<std::string> left_out_;
  std::uint64_t left_out_count_ = 0;
  std::uint64_t name_bytes_ = 0;
};

}  // namespace

Result<TorchState> make_torch_state(const PickleGraph& graph) {
  if (graph.root.kind != PickleKind::kDict) {
    return std::unexpected(
        refused_pickle("the pickle holds something other than a dict of tensors"));
  }
  TorchState state;
  state.pickle_bytes = graph.end_bytes;
  TP_ASSIGN_OR_RETURN(const PickleValue dict, choose_state_dict(graph, state.notes));
  TP_RETURN_IF_ERROR(StateReader(graph, state).read(dict));
  return state;
}

Result<TorchState> parse_torch_pickle(std::span<const std::byte> pickle) {
  TP_ASSIGN_OR_RETURN(const PickleGraph graph, PickleMachine::run(pickle));
  return make_torch_state(graph);
}

}  // namespace trash_panda::format
