#include "document_compare.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "trash_panda/base/printable.h"
#include "trash_panda/base/units.h"
#include "trash_panda/plan/planner.h"

#include "step_report.h"
#include "table.h"

namespace trash_panda::cli {

namespace {

/// A value with where it stands.
struct Leaf {
  Json value;
  std::string field;
  std::size_t index = 0;
};

class Flattener {
 public:
  explicit Flattener(const Json& document) { add(document, {}); }

  /// Paths in the document's order.
  std::vector<std::string> order;
  std::map<std::string, Leaf> leaves;

 private:
  /// Where a walk is: paths with and without the names of items.
  struct Place {
    std::string path;
    std::string field;
    std::size_t index = 0;
    bool is_item = false;

    [[nodiscard]] Place in(const std::string& key) const {
      Place inner = *this;
      inner.path += (path.empty() ? "" : ".") + key;
      inner.field += (field.empty() ? "" : ".") + key;
      return inner;
    }
  };

  /// What the items of a list are called where all are objects: blocks by their names, as different
  /// plans of a model have them in common, other items by their place.
  static std::optional<std::vector<std::string>> item_names(const Json& list, bool are_blocks) {
    std::vector<std::string> names;
    std::set<std::string> seen;
    for (const Json& item : list) {
      if (!item.is_object()) {
        return std::nullopt;
      }
      const auto name = item.find("name");
      names.push_back(are_blocks && name != item.end() && name->is_string()
                          ? name->get<std::string>()
                          : std::to_string(names.size()));
      seen.insert(names.back());
    }
    if (seen.size() != names.size()) {
      for (std::size_t index = 0; index < names.size(); ++index) {
        names[index] = std::to_string(index);
      }
    }
    return names;
  }

  void add(const Json& value, const Place& place) {
    if (value.is_object()) {
      for (const auto& [key, inner] : value.items()) {
        add(inner, place.in(key));
      }
      return;
    }
    if (value.is_array() && !value.empty()) {
      if (const auto names = item_names(value, place.path == "block")) {
        for (std::size_t index = 0; index < names->size(); ++index) {
          Place item = place;
          item.path += "." + (*names)[index];
          item.index = index;
          item.is_item = true;
          add(value[index], item);
        }
        return;
      }
    }
    order.push_back(place.path);
    leaves.emplace(place.path, Leaf{.value = value,
                                    .field = place.is_item ? place.field : std::string(),
                                    .index = place.index});
  }
};

std::string value_text(std::string_view path, const Json& value) {
  if (value.is_null()) {
    return "-";
  }
  if (value.is_string()) {
    return value.get_ref<const std::string&>().empty()
               ? "-"
               : printable(value.get_ref<const std::string&>());
  }
  if (value.is_number_unsigned() && path.ends_with("_bytes")) {
    return format_bytes(value.get<std::uint64_t>());
  }
  if (value.is_number_unsigned() && path.ends_with("_bytes_per_s")) {
    return format_bytes(value.get<std::uint64_t>()) + "/s";
  }
  if (value.is_number() && path.ends_with("_s")) {
    return format_seconds(value.get<double>());
  }
  return printable(json_line(value));
}

std::string change_percent(const Json& first, const Json& second) {
  if (!first.is_number() || !second.is_number() || first.get<double>() == 0) {
    return {};
  }
  return fmt::format("{:+.3g} %", 100 * (second.get<double>() / first.get<double>() - 1));
}

}  // namespace

Comparison compare_documents(const Json& first, const Json& second) {
  const Flattener a(first);
  const Flattener b(second);
  Comparison comparison;
  const auto add = [&](const std::string& path) {
    const auto in_a = a.leaves.find(path);
    const auto in_b = b.leaves.find(path);
    const Leaf& leaf = in_a != a.leaves.end() ? in_a->second : in_b->second;
    Difference difference{.path = path,
                          .first = in_a != a.leaves.end() ? in_a->second.value : Json(),
                          .second = in_b != b.leaves.end() ? in_b->second.value : Json(),
                          .field = leaf.field,
                          .index = leaf.index};
    if (difference.first != difference.second) {
      comparison.differences.push_back(std::move(difference));
    }
  };
  std::ranges::for_each(a.order, add);
  for (const std::string& path : b.order) {
    if (!a.leaves.contains(path)) {
      add(path);
    }
  }
  return comparison;
}

std::string comparison_text(const Comparison& comparison) {
  if (comparison.differences.empty()) {
    return "nothing differs\n";
  }
  std::vector<std::vector<std::string>> rows = {{"", "A", "B", "change"}};
  std::vector<std::pair<std::string, std::vector<std::size_t>>> items = {{}};
  std::map<std::string, std::size_t> known;
  for (const Difference& difference : comparison.differences) {
    std::vector<std::string> row = {printable(difference.path),
                                    value_text(difference.path, difference.first),
                                    value_text(difference.path, difference.second),
                                    change_percent(difference.first, difference.second)};
    const bool is_item = !difference.field.empty();
    const std::string key =
        is_item ? fmt::format("{}\n{}\n{}", difference.field, row[1], row[2]) : row[0];
    const auto [place, is_new] = known.emplace(key, rows.size());
    if (is_new) {
      rows.push_back(std::move(row));
      items.emplace_back(difference.field, std::vector<std::size_t>());
    }
    if (is_item) {
      items[place->second].second.push_back(difference.index);
    }
  }
  for (std::size_t index = 1; index < rows.size(); ++index) {
    auto& [field, indexes] = items[index];
    if (indexes.size() > 1) {
      std::ranges::sort(indexes);
      const std::size_t dot = field.find('.');
      rows[index][0] =
          printable(fmt::format("{} {}{}", field.substr(0, dot), plan::block_selector(indexes),
                                field.substr(std::min(dot, field.size()))));
    }
  }
  return format_table("llll", rows);
}

std::string comparison_json(const Comparison& comparison, const ComparedInputs& inputs) {
  Json differences = Json::array();
  for (const Difference& difference : comparison.differences) {
    differences.push_back(
        {{"path", difference.path}, {"a", difference.first}, {"b", difference.second}});
  }
  return json_document({{"schema", "trash-panda/diff/1"},
                        {"kind", inputs.kind},
                        {"a", inputs.first},
                        {"b", inputs.second},
                        {"same", comparison.differences.empty()},
                        {"differences", differences}});
}

}  // namespace trash_panda::cli
