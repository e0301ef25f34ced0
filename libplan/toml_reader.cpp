#include "toml_reader.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trash_panda/base/nearest_name.h"
#include "trash_panda/base/printable.h"
#include "trash_panda/format/tier.h"

#include "toml_keys.h"

namespace trash_panda::plan {
namespace {

/// Longest time that is read: a year.
constexpr double kSecondsMax = 31'536'000;

/// What one kind of value wants; empty when the node has one and it was taken.
std::string take(const toml::node& node, std::uint64_t& target) {
  const toml::value<std::int64_t>* const value = node.as_integer();
  if (value == nullptr || value->get() < 0 ||
      static_cast<std::uint64_t>(value->get()) > kSizeBytesMax) {
    return fmt::format("a whole number from 0 to {}", kSizeBytesMax);
  }
  target = static_cast<std::uint64_t>(value->get());
  return {};
}

std::string take(const toml::node& node, double& target) {
  const std::optional<double> value = node.value<double>();
  if (!node.is_number() || !value || !(*value >= 0 && *value <= kSecondsMax)) {
    return fmt::format("a number of seconds from 0 to {}", kSecondsMax);
  }
  target = *value;
  return {};
}

std::string take(const toml::node& node, bool& target) {
  if (!node.is_boolean()) {
    return "true or false";
  }
  target = node.as_boolean()->get();
  return {};
}

std::string take(const toml::node& node, std::string& target) {
  if (!node.is_string()) {
    return "a string";
  }
  target = node.as_string()->get();
  return {};
}

std::string take(const toml::node& node, StorageForm& target) {
  std::string text;
  if (std::string wanted = take(node, text); !wanted.empty()) {
    return wanted;
  }
  const std::optional<StorageForm> known = parse_storage_form(text);
  if (!known) {
    return fmt::format("raw, exponent or zstd, not {}", printable(text));
  }
  target = *known;
  return {};
}

std::string take(const toml::node& node, Tier& target) {
  std::string text;
  if (std::string wanted = take(node, text); !wanted.empty()) {
    return wanted;
  }
  const std::optional<Tier> tier = format::parse_tier(text);
  if (!tier || *tier == Tier::kBase) {
    return fmt::format("gpu, ram or disk, not {}", printable(text));
  }
  target = *tier;
  return {};
}

template <class T>
std::string take(const toml::node& node, std::optional<T>& target) {
  return take(node, target.emplace());
}

template <class T>
std::string take(const toml::node& node, std::vector<T>& target) {
  if (!node.is_array()) {
    return "an array";
  }
  for (const toml::node& item : *node.as_array()) {
    if (std::string wanted = take(item, target.emplace_back()); !wanted.empty()) {
      return wanted;
    }
  }
  return {};
}

}  // namespace

Result<toml::table> TomlReader::parse(std::string_view text) const {
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
  return std::move(document).table();
}

Error TomlReader::at(const toml::source_region& source, std::string_view what) const {
  return {ErrorCode::kCorrupt, fmt::format("{}:{}:{}: {}", printable(where_), source.begin.line,
                                           source.begin.column, what)};
}

Result<void> TomlReader::check_keys(const toml::table& table, std::string_view name,
                                    std::span<const std::string_view> known) const {
  for (const auto& [key, node] : table) {
    if (std::ranges::find(known, key.str()) != known.end()) {
      continue;
    }
    const std::string_view nearest = nearest_name(key.str(), known);
    std::string hint = nearest.empty() ? fmt::format("known ones are {}", fmt::join(known, ", "))
                                       : fmt::format("did you mean {}?", nearest);
    return std::unexpected(
        at(key.source(), fmt::format("unknown key {} {}", printable(key.str()), name))
            .with_hint(std::move(hint)));
  }
  return {};
}

Result<void> TomlReader::read_value(const toml::node& node, std::string_view key,
                                    const TomlTarget& target) const {
  const std::string wanted = std::visit([&](auto* place) { return take(node, *place); }, target);
  if (!wanted.empty()) {
    return std::unexpected(at(node.source(), fmt::format("{} must be {}", key, wanted)));
  }
  return {};
}

Result<void> TomlReader::read_table(const toml::table& table, std::string_view name,
                                    std::span<const TomlField> fields) const {
  std::vector<std::string_view> known;
  for (const TomlField& field : fields) {
    known.push_back(field.key);
  }
  TP_RETURN_IF_ERROR(check_keys(table, name, known));
  for (const TomlField& field : fields) {
    const toml::node* const node = table.get(field.key);
    if (node == nullptr && field.presence == Presence::kRequired) {
      return std::unexpected(at(table.source(), fmt::format("{} is missing {}", field.key, name)));
    }
    if (node != nullptr) {
      TP_RETURN_IF_ERROR(read_value(*node, field.key, field.target));
    }
  }
  return {};
}

Result<void> TomlReader::read_subtable(const toml::table& document, std::string_view key,
                                       std::span<const TomlField> fields) const {
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

Result<void> TomlReader::read_optional_subtable(const toml::table& document, std::string_view key,
                                                std::span<const TomlField> fields) const {
  return document.contains(key) ? read_subtable(document, key, fields) : Result<void>();
}

}  // namespace trash_panda::plan
