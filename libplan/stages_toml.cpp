#include "trash_panda/plan/stages_toml.h"

#include <algorithm>
#include <array>
#include <optional>

#include <fmt/format.h>

#include "trash_panda/base/printable.h"

#include "toml_reader.h"

namespace trash_panda::plan {
namespace {

constexpr std::array<std::string_view, 4> kStageKeys = {"name", "model", "steps", "keep"};

/// Passes of one stage at most: far more than any sampler takes.
constexpr std::uint64_t kStepsMax = 1'000'000;

bool is_file_name(std::string_view name) {
  return !name.empty() && name.front() != '.' && std::ranges::all_of(name, [](char letter) {
    return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
           (letter >= '0' && letter <= '9') || letter == '-' || letter == '_' || letter == '.';
  });
}

/// A value as one would type it on the command line; nothing for a table, an array or a date.
std::optional<std::string> typed(const toml::node& node) {
  if (const auto* const text = node.as_string()) {
    return text->get();
  }
  if (const auto* const number = node.as_integer()) {
    return fmt::format("{}", number->get());
  }
  if (const auto* const number = node.as_floating_point()) {
    return fmt::format("{}", number->get());
  }
  if (const auto* const flag = node.as_boolean()) {
    return flag->get() ? "true" : "false";
  }
  return std::nullopt;
}

class StagesParser {
 public:
  StagesParser(std::string_view where, std::span<const std::string_view> option_names)
      : reader_(where), known_(kStageKeys.begin(), kStageKeys.end()) {
    known_.insert(known_.end(), option_names.begin(), option_names.end());
  }

  Result<std::vector<StageEntry>> parse(std::string_view text) {
    TP_ASSIGN_OR_RETURN(const toml::table document, reader_.parse(text));
    constexpr std::array<std::string_view, 1> kDocumentKeys = {"stage"};
    TP_RETURN_IF_ERROR(reader_.check_keys(document, "in the file", kDocumentKeys));
    const toml::array* const tables = document.get_as<toml::array>("stage");
    if (tables == nullptr || tables->empty() || !tables->is_array_of_tables()) {
      return std::unexpected(reader_.at(document.source(), "there is no [[stage]]")
                                 .with_hint("each stage has a name and a model"));
    }
    std::vector<StageEntry> stages;
    for (const toml::node& node : *tables) {
      TP_ASSIGN_OR_RETURN(StageEntry stage, parse_stage(*node.as_table()));
      if (std::ranges::find(stages, stage.name, &StageEntry::name) != stages.end()) {
        return std::unexpected(
            reader_.at(node.source(), fmt::format("a second stage {}", stage.name)));
      }
      stages.push_back(std::move(stage));
    }
    return stages;
  }

 private:
  Result<StageEntry> parse_stage(const toml::table& table) const {
    TP_RETURN_IF_ERROR(reader_.check_keys(table, "in [[stage]]", known_));
    StageEntry stage;
    toml::table fixed;
    for (const auto& [key, node] : table) {
      if (std::ranges::find(kStageKeys, key.str()) != kStageKeys.end()) {
        fixed.insert(key, node);
      } else {
        TP_RETURN_IF_ERROR(add_option(key.str(), node, stage));
      }
    }
    const std::array<TomlField, kStageKeys.size()> fields = {
        TomlField{.key = "name", .target = &stage.name},
        TomlField{.key = "model", .target = &stage.model},
        TomlField{.key = "steps", .target = &stage.step_count, .presence = Presence::kOptional},
        TomlField{.key = "keep", .target = &stage.stays_loaded, .presence = Presence::kOptional}};
    TP_RETURN_IF_ERROR(reader_.read_table(fixed, "in [[stage]]", fields));
    if (!is_file_name(stage.name)) {
      return std::unexpected(
          reader_.at(table.get("name")->source(),
                     fmt::format("name {} can't name a file: letters, digits, '-', '_' and '.' can",
                                 printable(std::string_view(stage.name)))));
    }
    if (stage.step_count == 0 || stage.step_count > kStepsMax) {
      return std::unexpected(reader_.at(table.get("steps")->source(),
                                        fmt::format("steps must be from 1 to {}", kStepsMax)));
    }
    return stage;
  }

  Result<void> add_option(std::string_view key, const toml::node& node, StageEntry& stage) const {
    const toml::array* const values = node.as_array();
    if (values == nullptr) {
      return add_value(key, node, stage);
    }
    for (const toml::node& value : *values) {
      TP_RETURN_IF_ERROR(add_value(key, value, stage));
    }
    return {};
  }

  Result<void> add_value(std::string_view key, const toml::node& node, StageEntry& stage) const {
    std::optional<std::string> text = typed(node);
    if (!text) {
      return std::unexpected(reader_.at(
          node.source(), fmt::format("{} must be a string, a number, true or false", key)));
    }
    stage.options.emplace_back(key, *std::move(text));
    return {};
  }

  TomlReader reader_;
  std::vector<std::string_view> known_;
};

}  // namespace

Result<std::vector<StageEntry>> parse_stages_toml(std::string_view text, std::string_view where,
                                                  std::span<const std::string_view> option_names) {
  return StagesParser(where, option_names).parse(text);
}

}  // namespace trash_panda::plan
