#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trash_panda/base/units.h"

#include "header_layout.h"
#include "pickle_globals.h"
#include "pickle_machine.h"
#include "torch_file.h"
#include "torch_records.h"
#include "torch_state.h"

namespace trash_panda::format {

namespace {

/// What the first pickle holds behind its protocol: LONG1 of 0x1950a86a20f9469cfc6c, STOP.
constexpr std::string_view kMagicPickle = "\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";
constexpr std::uint64_t kProtocolBytes = 2;
/// From protocol 4 on: FRAME and the size of what is in it.
constexpr char kFrameOpcode = '\x95';
constexpr std::uint64_t kFrameBytes = 9;
constexpr std::uint64_t kFirstPickleBytes = kMiB;
/// How much more is read each time that the pickles turn out to be longer.
constexpr std::uint64_t kReadGrowth = 4;
constexpr std::uint64_t kCountBytes = 8;

/// What stands before the storages.
struct LegacyHead {
  TorchState state;
  std::vector<std::string> keys;  ///< Of the storages, in the order of their data.
  std::uint64_t end_bytes = 0;
};

/// Interprets the pickle at `at_bytes` and steps behind it.
Result<PickleGraph> next_pickle(std::span<const std::byte> bytes, std::uint64_t& at_bytes) {
  TP_ASSIGN_OR_RETURN(PickleGraph graph, PickleMachine::run(bytes.subspan(at_bytes)));
  at_bytes += graph.end_bytes;
  return graph;
}

/// Whether the dict about the writer's machine says that it is a big-endian one.
bool is_big_endian(const PickleGraph& graph) {
  const std::span<const PickleValue> values = graph.values(graph.root);
  for (std::size_t i = 0; graph.root.kind == PickleKind::kDict && i + 1 < values.size(); i += 2) {
    if (values[i].kind == PickleKind::kString && graph.string(values[i]) == "little_endian") {
      return values[i + 1].kind == PickleKind::kBool && values[i + 1].payload == 0;
    }
  }
  return false;
}

/// Where the first pickle of a file of torch.save() ends, 0 for any other.
std::uint64_t find_magic_end(std::string_view text) {
  const bool has_frame = text.size() > kProtocolBytes && text[kProtocolBytes] == kFrameOpcode;
  const std::uint64_t begin_bytes = kProtocolBytes + (has_frame ? kFrameBytes : 0);
  return text.size() > begin_bytes && text.substr(begin_bytes).starts_with(kMagicPickle)
             ? begin_bytes + kMagicPickle.size()
             : 0;
}

Result<LegacyHead> parse_legacy_head(std::span<const std::byte> bytes, std::uint64_t at_bytes) {
  TP_RETURN_IF_ERROR(next_pickle(bytes, at_bytes));  // The protocol's version: 1001, ever since.
  TP_ASSIGN_OR_RETURN(const PickleGraph machine, next_pickle(bytes, at_bytes));
  if (is_big_endian(machine)) {
    return std::unexpected(refused_pickle("its tensors are big-endian, and only little is read"));
  }
  LegacyHead head;
  TP_ASSIGN_OR_RETURN(const PickleGraph state, next_pickle(bytes, at_bytes));
  TP_ASSIGN_OR_RETURN(head.state, make_torch_state(state));
  TP_ASSIGN_OR_RETURN(const PickleGraph keys, next_pickle(bytes, at_bytes));
  for (const PickleValue& key : keys.values(keys.root)) {
    if (keys.root.kind != PickleKind::kList || key.kind != PickleKind::kString) {
      return std::unexpected(refused_pickle("the list of its storages is none of strings"));
    }
    head.keys.emplace_back(keys.string(key));
  }
  head.end_bytes = at_bytes;
  return head;
}

/// What to say of a pickle that torch.save() did not write: why it is not taken, else that.
Error other_pickle(std::span<const std::byte> bytes) {
  Result<PickleGraph> graph = PickleMachine::run(bytes);
  return graph ? refused_pickle("a Python pickle, but none that torch.save() wrote")
               : std::move(graph).error();
}

/// Finds the storages behind the pickles: each has its count of elements before it.
Result<std::vector<std::uint64_t>> locate_storages(const File& file, const LegacyHead& head) {
  std::unordered_map<std::string_view, std::size_t> index_by_key;
  for (std::size_t i = 0; i < head.state.storages.size(); ++i) {
    index_by_key.emplace(head.state.storages[i].key, i);
  }
  std::vector<std::uint64_t> offsets(head.state.storages.size());
  std::uint64_t at_bytes = head.end_bytes;
  for (const std::string& key : head.keys) {
    const auto found = index_by_key.find(key);
    if (found == index_by_key.end()) {
      return std::unexpected(refused_pickle(
          fmt::format("storage {} is listed, but no tensor is in it", quote_name(key))));
    }
    const TorchStorage& storage = head.state.storages[found->second];
    const std::uint64_t left_bytes = file.size_bytes() - at_bytes;
    if (left_bytes < kCountBytes || storage.size_bytes > left_bytes - kCountBytes) {
      return std::unexpected(
          Error(ErrorCode::kCorrupt,
                fmt::format("storage {} of {} bytes does not fit into the {} that are left of {}",
                            quote_name(key), storage.size_bytes, left_bytes, file.size_bytes()))
              .with_reason("truncated")
              .with_hint("the file is incomplete: download it again"));
    }
    std::array<std::byte, kCountBytes> count_bytes;
    TP_RETURN_IF_ERROR(file.read_exact_at(at_bytes, count_bytes));
    std::uint64_t count = 0;
    for (std::size_t i = 0; i < kCountBytes; ++i) {
      count |= std::to_integer<std::uint64_t>(count_bytes[i]) << (8 * i);
    }
    if (count != storage.element_count) {
      return std::unexpected(
          Error(ErrorCode::kCorrupt,
                fmt::format("storage {} has {} elements, but its tensors expect {}",
                            quote_name(key), count, storage.element_count))
              .with_reason("size_mismatch")
              .with_hint("the file is damaged: download it again"));
    }
    offsets[found->second] = at_bytes + kCountBytes;
    at_bytes += kCountBytes + storage.size_bytes;
  }
  return offsets;
}

Result<void> check_located(const TorchState& state, std::span<const std::uint64_t> offsets) {
  for (const TorchTensor& tensor : state.tensors) {
    if (offsets[tensor.storage_index] == 0) {
      return std::unexpected(
          Error(ErrorCode::kCorrupt, fmt::format("tensor {} is in a storage that is not listed",
                                                 quote_name(tensor.name)))
              .with_reason("missing_tensor"));
    }
  }
  return {};
}

}  // namespace

Result<FileContents> read_torch_legacy(const File& file, Checksum& fingerprint) {
  std::vector<std::byte> bytes;
  std::uint64_t wanted_bytes = kFirstPickleBytes;
  for (;;) {
    bytes.resize(std::min({wanted_bytes, file.size_bytes(), kPickleBytesMax}));
    TP_RETURN_IF_ERROR(file.read_exact_at(0, bytes));
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    const std::uint64_t magic_end = find_magic_end(text);
    Result<LegacyHead> head = magic_end > 0
                                  ? parse_legacy_head(bytes, magic_end)
                                  : Result<LegacyHead>(std::unexpected(other_pickle(bytes)));
    if (head) {
      fingerprint.update(std::span(bytes).first(head->end_bytes));
      TP_ASSIGN_OR_RETURN(const auto offsets, locate_storages(file, *head));
      TP_RETURN_IF_ERROR(check_located(head->state, offsets));
      return make_torch_records(std::move(head->state), offsets, file);
    }
    const bool is_cut = head.error().reason() == "truncated" &&
                        bytes.size() < std::min(file.size_bytes(), kPickleBytesMax);
    if (!is_cut) {
      return std::unexpected(std::move(head).error());
    }
    wanted_bytes *= kReadGrowth;
  }
}

}  // namespace trash_panda::format
