#include "model_remarks.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trash_panda/base/file.h"

namespace trash_panda::cli {

namespace {

constexpr std::string_view kHead = "lm_head.weight";

/// What models call the table that a tied head shares, the most common first.
constexpr std::array<std::string_view, 6> kEmbeddings = {
    "embed_tokens.weight", "wte.weight",      "word_embeddings.weight",
    "shared.weight",       "embed_in.weight", "tok_embeddings.weight"};
/// What they call the head.
constexpr std::array<std::string_view, 4> kHeads = {kHead, "output.weight", "embed_out.weight",
                                                    "cls.predictions.decoder.weight"};
/// Most numbers of missing blocks that one line lists.
constexpr std::size_t kListedMax = 10;

bool is_or_ends_with(std::string_view name, std::string_view ending) {
  return name == ending || (name.size() > ending.size() && name.ends_with(ending) &&
                            name[name.size() - ending.size() - 1] == '.');
}

/// The stored tensor of one of these names, alone or below a prefix; outside of the blocks, since
/// those have layers of the same names (DeepSeek's last one).
const format::TensorRecord* find_outside(const LoadedModel& model,
                                         std::span<const std::string_view> endings) {
  for (const std::string_view ending : endings) {
    for (const std::size_t index : model.blocks.outside) {
      const format::TensorRecord& tensor = model.checkpoint.tensors()[index];
      if (is_or_ends_with(tensor.name, ending) && !model.weights.aliases.contains(tensor.name)) {
        return &tensor;
      }
    }
  }
  return nullptr;
}

std::optional<std::uint64_t> block_number(std::string_view name, std::string_view prefix) {
  const std::string_view digits = name.substr(prefix.size());
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  const bool is_number = error == std::errc() && end == digits.data() + digits.size();
  return is_number ? std::optional(number) : std::nullopt;
}

/// Numbers that a group leaves out: a shard or a part of the model may be missing.
std::vector<std::string> gap_remarks(const plan::BlockMap& blocks) {
  std::vector<std::string> remarks;
  for (const plan::BlockGroup& group : blocks.groups) {
    std::vector<std::uint64_t> missing;
    std::uint64_t missing_count = 0;
    std::uint64_t next = 0;
    for (const plan::Block& block : group.blocks) {
      const auto number = block_number(block.name, group.prefix);
      if (!number || *number < next) {
        break;  // Not numbered as blocks are.
      }
      missing_count += *number - next;
      for (std::uint64_t gap = next; gap < *number && missing.size() < kListedMax; ++gap) {
        missing.push_back(gap);
      }
      next = *number + 1;
    }
    if (missing_count > 0) {
      remarks.push_back(
          fmt::format("the blocks {} have no number {}{}",
                      printable(std::string_view(group.prefix)), fmt::join(missing, ", "),
                      missing_count > missing.size()
                          ? fmt::format(" and {} more", missing_count - missing.size())
                          : std::string()));
    }
  }
  return remarks;
}

/// In torch files names are tied by being views of the same memory, in others by being said to be.
std::string_view source_of_tie(const LoadedModel& model, std::string_view target) {
  const auto stored = model.checkpoint.find(target);
  const bool is_torch =
      stored && model.checkpoint.files()[model.checkpoint.tensors()[*stored].file_index].kind ==
                    format::FileKind::kTorch;
  return is_torch ? "shared memory" : "__metadata__";
}

bool generates_text(std::string_view class_name) {
  return class_name.ends_with("ForCausalLM") || class_name.ends_with("LMHeadModel");
}

}  // namespace

std::vector<Tie> find_ties(const LoadedModel& model, const ModelConfig& config) {
  std::vector<Tie> ties;
  for (const auto& [name, target] : model.weights.aliases) {
    ties.push_back({.name = name, .target = target, .source = source_of_tie(model, target)});
  }
  const format::TensorRecord* embedding = find_outside(model, kEmbeddings);
  const bool is_tied =
      config.ties_embeddings.value_or(false) && embedding != nullptr &&
      find_outside(model, kHeads) == nullptr &&
      std::ranges::none_of(ties, [](const Tie& tie) { return is_or_ends_with(tie.name, kHead); });
  if (is_tied) {
    ties.push_back({.name = std::string(kHead),
                    .target = std::string(embedding->name),
                    .source = "config.json"});
  }
  return ties;
}

std::vector<std::string> layout_remarks(const LoadedModel& model, const ModelConfig& config) {
  std::vector<std::string> remarks = gap_remarks(model.blocks);
  const format::TensorRecord* embedding = find_outside(model, kEmbeddings);
  const format::TensorRecord* head = find_outside(model, kHeads);
  if (embedding == nullptr || !generates_text(config.architecture.name)) {
    return remarks;
  }
  const std::string embedding_name = printable(embedding->name);
  if (head != nullptr && config.ties_embeddings.value_or(false)) {
    remarks.push_back(fmt::format("config.json ties the head to {}, but {} is stored as well",
                                  embedding_name, printable(head->name)));
  }
  if (head == nullptr && find_ties(model, config).empty()) {
    remarks.push_back(fmt::format("no {} is stored, and config.json {} that {} stands for it",
                                  kHead, config.ties_embeddings ? "denies" : "does not say",
                                  embedding_name));
  }
  return remarks;
}

}  // namespace trash_panda::cli
