#include "conversion_line.h"

#include <bit>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>
#include <simdjson.h>

#include "json_object.h"

namespace trash_panda::format {

namespace {

Result<WeightConversion> parse_conversion(const ManifestObject& object) {
  TP_ASSIGN_OR_RETURN(const std::string_view name, object.text("dtype"));
  const std::optional<Dtype> dtype = parse_dtype(name);
  if (!dtype) {
    return std::unexpected(object.error("dtype", "is none"));
  }
  if (!object.has("scale_bits")) {
    return WeightConversion{.dtype = *dtype, .is_exact = object.has("is_exact")};
  }
  TP_ASSIGN_OR_RETURN(const std::uint64_t bits, object.number("scale_bits"));
  if (bits > std::numeric_limits<std::uint32_t>::max()) {
    return std::unexpected(object.error("scale_bits", "is too large"));
  }
  return WeightConversion{.dtype = *dtype,
                          .scale = std::bit_cast<float>(static_cast<std::uint32_t>(bits))};
}

}  // namespace

std::string write_conversion_line(const ConversionRecord& record) {
  nlohmann::ordered_json conversions = nlohmann::ordered_json::array();
  for (const auto& [weight, conversion] : record.conversions) {
    nlohmann::ordered_json item = {{"weight", weight}, {"dtype", dtype_name(conversion.dtype)}};
    if (conversion.is_exact) {
      item["is_exact"] = true;
    }
    if (conversion.scale) {
      item["scale_bits"] = std::bit_cast<std::uint32_t>(*conversion.scale);
    }
    conversions.push_back(std::move(item));
  }
  return nlohmann::ordered_json({{"key", record.key}, {"conversions", conversions}}).dump();
}

Result<ConversionRecord> parse_conversion_line(std::string_view line) {
  const JsonPlace place{.key = "journal"};
  simdjson::dom::parser parser;
  simdjson::dom::element document;
  if (parser.parse(line.data(), line.size()).get(document) != simdjson::SUCCESS) {
    return std::unexpected(json_error(place, "is not valid JSON"));
  }
  TP_ASSIGN_OR_RETURN(const ManifestObject root, ManifestObject::open(document, place));
  ConversionRecord record;
  TP_ASSIGN_OR_RETURN(record.key, root.text("key"));
  TP_ASSIGN_OR_RETURN(const simdjson::dom::array items, root.array("conversions"));
  for (const simdjson::dom::element item : items) {
    TP_ASSIGN_OR_RETURN(const ManifestObject object, ManifestObject::open(item, place));
    TP_ASSIGN_OR_RETURN(const std::uint64_t weight, object.number("weight"));
    TP_ASSIGN_OR_RETURN(record.conversions[weight], parse_conversion(object));
  }
  return record;
}

}  // namespace trash_panda::format
