#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "trash_panda/base/nearest_name.h"
#include "trash_panda/base/printable.h"
#include "trash_panda/format/tier.h"
#include "trash_panda/plan/plan_toml.h"
#include "trash_panda/plan/planner.h"

#include "toml_keys.h"
#include "toml_library.h"

namespace trash_panda::plan {
namespace {

/// Largest size that is read, in bytes, and largest sum of blocks: far more than any drive holds,
/// and few enough that what a plan adds up stays in range.
constexpr std::uint64_t kSizeBytesMax = std::uint64_t{1} << 60U;

/// Longest time that is read: a year.
constexpr double kSecondsMax = 31'536'000;

/// Where a key's value goes; the type says what the value must be.
using Target = std::variant<std::uint64_t*, std::optional<std::uint64_t>*, double*, std::string*,
                            Tier*, StorageForm*, std::vector<std::uint64_t>*>;

enum class Presence { kRequired, kOptional };

struct Field {
  std::string_view key;
  Target target;
  Presence presence = Presence::kRequired;
};

class PlanParser {
 public:
  explicit PlanParser(std::string_view where) : where_(where) {}

  Result<Plan> parse(std::string_view text) {
    if (const std::optional<std::uint64_t> line = find_long_toml_key(text)) {
      return std::unexpected(
          Error(ErrorCode::kCorrupt, fmt::format("{}:{}: a key of more than {} parts",
                                                 printable(where_), *line, kTomlKeyPartsMax)));
    }
    toml::parse_result document = toml::parse(text);
    if (!document) {
      const toml::parse_error& error = document.error();
      return std::unexpected(at(error.source(), printable(error.description())));
    }
    return parse_document(document.table());
  }

 private:
  [[nodiscard]] Error at(const toml::source_region& source, std::string_view what) const {
    return {ErrorCode::kCorrupt, fmt::format("{}:{}:{}: {}", printable(where_), source.begin.line,
                                             source.begin.column, what)};
  }

  [[nodiscard]] Error unknown_key(const toml::key& key, std::string_view table,
                                  std::span<const std::string_view> known) const {
    const std::string_view nearest = nearest_name(key.str(), known);
    std::string hint;
    if (!nearest.empty()) {
      hint = fmt::format("did you mean {}?", nearest);
    } else {
      hint = fmt::format("known ones are {}", fmt::join(known, ", "));
    }
    return at(key.source(), fmt::format("unknown key {} {}", printable(key.str()), table))
        .with_hint(std::move(hint));
  }

  Result<void> read_value(const toml::node& node, std::string_view key, const Target& target) {
    const auto wrong = [&](std::string_view wanted) {
      return std::unexpected(at(node.source(), fmt::format("{} must be {}", key, wanted)));
    };
    if (std::optional<std::uint64_t>* const* maybe =
            std::get_if<std::optional<std::uint64_t>*>(&target)) {
      return read_value(node, key, &(*maybe)->emplace());
    }
    if (std::uint64_t* const* number = std::get_if<std::uint64_t*>(&target)) {
      const toml::value<std::int64_t>* const value = node.as_integer();
      if (value == nullptr || value->get() < 0 ||
          static_cast<std::uint64_t>(value->get()) > kSizeBytesMax) {
        return wrong(fmt::format("a whole number from 0 to {}", kSizeBytesMax));
      }
      **number = static_cast<std::uint64_t>(value->get());
      return {};
    }
    if (double* const* seconds = std::get_if<double*>(&target)) {
      const std::optional<double> value = node.value<double>();
      if (!node.is_number() || !value || !(*value >= 0 && *value <= kSecondsMax)) {
        return wrong(fmt::format("a number of seconds from 0 to {}", kSecondsMax));
      }
      **seconds = *value;
      return {};
    }
    if (std::vector<std::uint64_t>* const* numbers =
            std::get_if<std::vector<std::uint64_t>*>(&target)) {
      if (!node.is_array()) {
        return wrong("an array of whole numbers");
      }
      for (const toml::node& item : *node.as_array()) {
        TP_RETURN_IF_ERROR(read_value(item, key, &(*numbers)->emplace_back()));
      }
      return {};
    }
    const toml::value<std::string>* const value = node.as_string();
    if (value == nullptr) {
      return wrong("a string");
    }
    if (std::string* const* text = std::get_if<std::string*>(&target)) {
      **text = value->get();
      return {};
    }
    if (StorageForm* const* form = std::get_if<StorageForm*>(&target)) {
      const std::optional<StorageForm> known = parse_storage_form(value->get());
      if (!known) {
        return wrong(fmt::format("raw, exponent or zstd, not {}", printable(value->get())));
      }
      **form = *known;
      return {};
    }
    const std::optional<Tier> tier = format::parse_tier(value->get());
    if (!tier || *tier == Tier::kBase) {
      return wrong(fmt::format("gpu, ram or disk, not {}", printable(value->get())));
    }
    *std::get<Tier*>(target) = *tier;
    return {};
  }

  /// Reads a table whose keys are exactly those of `fields`.
  Result<void> read_table(const toml::table& table, std::string_view name,
                          std::span<const Field> fields) {
    std::vector<std::string_view> known;
    for (const Field& field : fields) {
      known.push_back(field.key);
    }
    for (const auto& [key, node] : table) {
      const auto field = std::ranges::find(fields, key.str(), &Field::key);
      if (field == fields.end()) {
        return std::unexpected(unknown_key(key, name, known));
      }
      TP_RETURN_IF_ERROR(read_value(node, field->key, field->target));
    }
    for (const Field& field : fields) {
      if (field.presence == Presence::kRequired && !table.contains(field.key)) {
        return std::unexpected(
            at(table.source(), fmt::format("{} is missing {}", field.key, name)));
      }
    }
    return {};
  }

  Result<void> read_subtable(const toml::table& document, std::string_view key,
                             std::span<const Field> fields) {
    const toml::node* const node = document.get(key);
    const std::string name = fmt::format("in [{}]", key);
    if (node == nullptr) {
      return std::unexpected(at(document.source(), fmt::format("[{}] is missing", key)));
    }
    if (!node->is_table()) {
      return std::unexpected(at(node->source(), fmt::format("{} must be a table", key)));
    }
    return read_table(*node->as_table(), name, fields);
  }

  /// The same for a table that may be left out.
  Result<void> read_optional_subtable(const toml::table& document, std::string_view key,
                                      std::span<const Field> fields) {
    return document.contains(key) ? read_subtable(document, key, fields) : Result<void>();
  }

  Result<void> read_version(const toml::table& document) {
    const toml::node* const node = document.get("version");
    if (node == nullptr) {
      return std::unexpected(at(document.source(), "version is missing: this is no plan")
                                 .with_hint("`trash-panda plan MODEL -o FILE` writes one"));
    }
    std::uint64_t version = 0;
    TP_RETURN_IF_ERROR(read_value(*node, "version", &version));
    if (version != kPlanVersion) {
      return std::unexpected(
          at(node->source(),
             fmt::format("plan version {}, this program reads {}", version, kPlanVersion))
              .with_code(version > kPlanVersion ? ErrorCode::kUnsupported : ErrorCode::kCorrupt));
    }
    return {};
  }

  Result<void> check_document_keys(const toml::table& document) {
    constexpr std::array<std::string_view, 9> kKnown{"version",   "model",    "hardware",
                                                     "rates",     "budget",   "settings",
                                                     "predicted", "demotion", "block"};
    for (const auto& [key, node] : document) {
      if (std::ranges::find(kKnown, key.str()) == kKnown.end()) {
        return std::unexpected(unknown_key(key, "at the top", kKnown));
      }
    }
    return {};
  }

  Result<void> read_settings(const toml::table& document, Plan& plan) {
    TP_RETURN_IF_ERROR(read_subtable(
        document, "settings",
        std::array{Field{"compute_dtype", &plan.compute_dtype},
                   Field{"lookahead_bytes", &plan.lookahead_bytes},
                   Field{"host_slot_count", &plan.host_slot_count, Presence::kOptional},
                   Field{"device_slot_count", &plan.device_slot_count, Presence::kOptional}}));
    if (!parse_compute_dtype(plan.compute_dtype)) {
      return std::unexpected(at(document.at_path("settings.compute_dtype").node()->source(),
                                "compute_dtype must be bf16, fp16, fp32 or keep"));
    }
    return {};
  }

  Result<void> read_rates(const toml::table& document, Plan& plan) {
    constexpr Presence kOptional = Presence::kOptional;
    return read_optional_subtable(
        document, "rates",
        std::array{Field{"measured_at", &plan.measured_at, kOptional},
                   Field{"disk_bytes_per_s", &plan.rates.disk_bytes_per_s, kOptional},
                   Field{"decode_bytes_per_s", &plan.rates.decode_bytes_per_s, kOptional},
                   Field{"expand_bytes_per_s", &plan.rates.expand_bytes_per_s, kOptional},
                   Field{"link_bytes_per_s", &plan.rates.link_bytes_per_s, kOptional},
                   Field{"compute_source", &plan.compute_source, kOptional}});
  }

  /// What was predicted, and who gives way: blocks are read before.
  Result<void> read_prediction(const toml::table& document, Plan& plan) {
    if (document.contains("predicted")) {
      Prediction& predicted = plan.predicted.emplace();
      TP_RETURN_IF_ERROR(read_subtable(
          document, "predicted",
          std::array{Field{"pass_s", &predicted.pass_s}, Field{"bound_s", &predicted.bound_s},
                     Field{"limiting", &predicted.limiting}, Field{"stall_s", &predicted.stall_s},
                     Field{"first_pass_s", &predicted.first_pass_s}}));
    }
    TP_RETURN_IF_ERROR(read_optional_subtable(
        document, "demotion",
        std::array{Field{"gpu", &plan.demote_gpu}, Field{"ram", &plan.demote_ram}}));
    for (const std::vector<std::uint64_t>* const order : {&plan.demote_gpu, &plan.demote_ram}) {
      for (const std::uint64_t index : *order) {
        if (index >= plan.blocks.size()) {
          return std::unexpected(at(document.get("demotion")->source(),
                                    fmt::format("there is no block {} to demote", index)));
        }
      }
    }
    return {};
  }

  Result<void> read_blocks(const toml::table& document, Plan& plan) {
    const toml::node* const node = document.get("block");
    if (node == nullptr) {
      return {};
    }
    const toml::array* const blocks = node->as_array();
    if (blocks == nullptr) {
      return std::unexpected(at(node->source(), "blocks are written as [[block]]"));
    }
    std::unordered_set<std::string> names;
    std::uint64_t blocks_bytes = 0;
    std::uint64_t memory_bytes = 0;
    for (const toml::node& item : *blocks) {
      if (!item.is_table()) {
        return std::unexpected(at(item.source(), "blocks are written as [[block]]"));
      }
      PlannedBlock block;
      TP_RETURN_IF_ERROR(
          read_table(*item.as_table(), "in [[block]]",
                     std::array{Field{"name", &block.name}, Field{"tier", &block.tier},
                                Field{"stored_bytes", &block.stored_bytes},
                                Field{"extent_bytes", &block.extent_bytes},
                                Field{"expanded_bytes", &block.expanded_bytes},
                                Field{"expand_bytes", &block.expand_bytes, Presence::kOptional},
                                Field{"form", &block.form, Presence::kOptional},
                                Field{"coded_bytes", &block.coded_bytes, Presence::kOptional},
                                Field{"compute_s", &block.compute_s, Presence::kOptional}}));
      if (!names.insert(block.name).second) {
        return std::unexpected(
            at(item.source(), fmt::format("a second block is named {}", printable(block.name))));
      }
      blocks_bytes += block.stored_bytes;
      if (block.form != StorageForm::kRaw && block.coded_bytes == 0) {
        return std::unexpected(at(item.source(), "a block that is not raw needs its coded_bytes"));
      }
      memory_bytes += block.extent_bytes + block.coded_bytes + block.expanded_bytes;
      if (memory_bytes > kSizeBytesMax) {
        return std::unexpected(at(item.source(), "blocks add up to more than any machine holds"));
      }
      if (blocks_bytes > plan.model_bytes) {
        return std::unexpected(
            at(item.source(), fmt::format("up to here blocks add up to {} bytes, the model has {}",
                                          blocks_bytes, plan.model_bytes)));
      }
      plan.blocks.push_back(std::move(block));
    }
    return {};
  }

  Result<Plan> parse_document(const toml::table& document) {
    Plan plan;
    TP_RETURN_IF_ERROR(read_version(document));
    TP_RETURN_IF_ERROR(check_document_keys(document));
    TP_RETURN_IF_ERROR(read_subtable(
        document, "model",
        std::array{Field{"path", &plan.model_path}, Field{"fingerprint", &plan.model_fingerprint},
                   Field{"stored_bytes", &plan.model_bytes},
                   Field{"tensor_count", &plan.tensor_count}}));
    TP_RETURN_IF_ERROR(
        read_subtable(document, "hardware",
                      std::array{Field{"ram_total_bytes", &plan.ram_total_bytes},
                                 Field{"ram_limit_bytes", &plan.ram_limit_bytes},
                                 Field{"ram_limit_source", &plan.ram_limit_source},
                                 Field{"gpu_name", &plan.gpu_name},
                                 Field{"vram_total_bytes", &plan.vram_total_bytes}}));
    TP_RETURN_IF_ERROR(read_rates(document, plan));
    TP_RETURN_IF_ERROR(read_subtable(
        document, "budget",
        std::array{Field{"ram_bytes", &plan.ram_budget_bytes},
                   Field{"vram_bytes", &plan.vram_budget_bytes},
                   Field{"base_bytes", &plan.base_bytes}, Field{"slot_bytes", &plan.slot_bytes},
                   Field{"compute_slot_bytes", &plan.compute_slot_bytes},
                   Field{"kv_cache_bytes", &plan.kv_cache_bytes, Presence::kOptional}}));
    TP_RETURN_IF_ERROR(read_settings(document, plan));
    TP_RETURN_IF_ERROR(read_blocks(document, plan));
    TP_RETURN_IF_ERROR(read_prediction(document, plan));
    return plan;
  }

  std::string_view where_;
};

}  // namespace

Result<Plan> parse_plan_toml(std::string_view text, std::string_view where) {
  return PlanParser(where).parse(text);
}

}  // namespace trash_panda::plan
