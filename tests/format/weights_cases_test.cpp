// Every case of the shared folder that is about weights and scales: its values bit for bit, or its
// refusal with the class and the names that it must have. Kinds, not cases: no case is named here.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trash_panda/format/checkpoint.h"
#include "trash_panda/format/weights.h"

#include "support/checkpoint_builder.h"
#include "support/reference_dequantize.h"

namespace trash_panda::format {
namespace {

using nlohmann::json;
using testing::dequantize;
using testing::read_text;

const std::filesystem::path kWeightCases = std::filesystem::path(TP_SOURCE_DIR) / "../shared/cases";

struct Tally {
  int values = 0;
  int refused = 0;
  int failed = 0;
};

/// What a case asks for.
struct Case {
  std::filesystem::path folder;
  std::string id;
  std::string group;
  bool is_optional;
  json expected;

  [[nodiscard]] bool accepts(const std::string& outcome) const {
    const json accepted = expected.value("accept", json::array());
    return accepted.is_array() && std::ranges::find(accepted, json(outcome)) != accepted.end();
  }
  [[nodiscard]] std::vector<std::string> names(const char* key) const {
    return expected.value(key, std::vector<std::string>());
  }
};

std::string read_payload(const Checkpoint& checkpoint, std::size_t index) {
  std::string bytes(checkpoint.tensors()[index].size_bytes, '\0');
  const auto read = checkpoint.read_tensor(index, std::as_writable_bytes(std::span(bytes)));
  if (!read) {
    throw std::runtime_error(read.error().to_string());
  }
  return bytes;
}

bool same_value(float got, float wanted, double tolerance) {
  if (std::isnan(got) || std::isnan(wanted)) {
    return std::isnan(got) && std::isnan(wanted);
  }
  if (tolerance == 0) {
    return std::bit_cast<std::uint32_t>(got) == std::bit_cast<std::uint32_t>(wanted);
  }
  return std::abs(got - wanted) <= tolerance * std::abs(wanted);
}

/// @return Why the weight differs from what is expected; empty when it does not.
std::string compare_weight(const Checkpoint& checkpoint, const Weight& weight,
                           const Checkpoint& expected, double tolerance) {
  const TensorRecord& stored = checkpoint.tensors()[weight.tensor_index];
  const auto wanted_index = expected.find(weight.name);
  if (!wanted_index) {
    return fmt::format("parameter {} is not expected", weight.name);
  }
  const TensorRecord& wanted = expected.tensors()[*wanted_index];
  const std::string wanted_bytes = read_payload(expected, *wanted_index);
  const std::string payload = read_payload(checkpoint, weight.tensor_index);
  if (wanted.dtype != Dtype::kF32) {
    return wanted.dtype == weight.dtype && wanted_bytes == payload
               ? ""
               : fmt::format("{} differs", weight.name);
  }
  if (stored.shape != wanted.shape) {
    return fmt::format("{} has shape {}, expected {}", weight.name, to_string(stored.shape),
                       to_string(wanted.shape));
  }
  std::vector<float> scale;
  if (weight.scale) {
    auto read = read_scale(checkpoint, *weight.scale);
    if (!read) {
      return read.error().to_string();
    }
    scale = *std::move(read);
  }
  const std::vector<float> got = dequantize(weight.dtype, stored.shape, payload,
                                            weight.scale ? &*weight.scale : nullptr, scale);
  for (std::size_t i = 0; i < got.size(); ++i) {
    const float value = testing::decode_element(Dtype::kF32, wanted_bytes.data() + i * 4);
    if (!same_value(got[i], value, tolerance)) {
      return fmt::format("{}[{}] is {:a}, expected {:a}", weight.name, i, got[i], value);
    }
  }
  return {};
}

std::string compare_values(const Case& test, const Checkpoint& checkpoint,
                           const WeightTable& table) {
  const auto expected = Checkpoint::open(test.folder / "expected.safetensors");
  if (!expected) {
    return expected.error().to_string();
  }
  std::set<std::string_view> found;
  for (const Weight& weight : table.weights) {
    found.insert(weight.name);
    if (test.expected.contains("raw_tensors") &&
        test.expected["raw_tensors"].contains(weight.name)) {
      continue;  // Only its bytes are expected, which are the reader's.
    }
    const double tolerance = test.expected.value("rtol", 0.0);
    if (auto why = compare_weight(checkpoint, weight, *expected, tolerance); !why.empty()) {
      return why;
    }
  }
  for (const TensorRecord& wanted : expected->tensors()) {
    if (!wanted.name.starts_with("__as_") && !found.contains(wanted.name)) {
      return fmt::format("parameter {} is not found", wanted.name);
    }
  }
  return {};
}

/// Each name that a warning must mention is in one of them.
std::string check_warnings(const Case& test, const Checkpoint& checkpoint,
                           const WeightTable& table) {
  std::string text;
  for (const std::string& line : table.warnings) {
    text += line + "\n";
  }
  for (const std::string& line : checkpoint.notes()) {
    text += line + "\n";
  }
  for (const std::string& name : test.names("warnings_mention")) {
    if (text.find(name) == std::string::npos) {
      return fmt::format("no warning mentions \"{}\", only: {}", name, text);
    }
  }
  return {};
}

/// "fp8_tensor" and the like, as the cases name what was found for a weight.
bool is_format(const Weight& weight, const std::string& name) {
  if (name == "fp8_plain") {
    return !weight.scale;
  }
  if (!weight.scale) {
    return false;
  }
  const WeightScale& scale = *weight.scale;
  if (name == "fp8_tensor") {
    return scale.granularity == Granularity::kTensor;
  }
  if (name == "fp8_channel" || name == "fp8_expert") {
    return scale.granularity == Granularity::kRow;
  }
  if (name == "fp8_group" || name == "mxfp8") {
    return scale.granularity == Granularity::kBlock && scale.block_shape[0] == 1;
  }
  if (name == "fp8_block") {  // A grid of one tile is a scale per tensor as well.
    return scale.granularity == Granularity::kBlock || scale.shape.empty();
  }
  return true;  // fp8_broadcast, fp8_transposed: the values tell.
}

std::string check_formats(const Case& test, const WeightTable& table) {
  const json formats = test.expected.value("formats", json::object());
  for (const Weight& weight : table.weights) {
    if (formats.contains(weight.name) && !is_format(weight, formats[weight.name])) {
      return fmt::format("{} is not found to be {}", weight.name,
                         formats[weight.name].get<std::string>());
    }
  }
  return {};
}

std::string check_result(const Case& test, const Checkpoint& checkpoint,
                         const Result<WeightTable>& table, Tally& tally) {
  const std::string wanted_class =
      test.expected.value("outcome", "") == "error" ? test.expected.value("error_class", "") : "";
  if (!table) {
    const Error& error = table.error();
    const bool is_refusal = test.is_optional && error.reason() == "unsupported_format";
    if (error.reason() != wanted_class && !is_refusal &&
        !test.accepts("error:" + std::string(error.reason()))) {
      return fmt::format("[{}] {}", error.reason(), error.to_string());
    }
    for (const char* key : {"message_names", "refusal_must_name"}) {
      for (const std::string& name : test.names(key)) {
        if (error.message().find(name) == std::string::npos) {
          return fmt::format("message without \"{}\": {}", name, error.message());
        }
      }
    }
    ++tally.refused;
    return {};
  }
  if (!wanted_class.empty()) {
    return fmt::format("accepted, expected an error of class {}", wanted_class);
  }
  ++tally.values;
  const std::vector<std::string> auxiliary = test.names("aux_tensors");
  for (const Weight& weight : table->weights) {
    if (std::ranges::find(auxiliary, weight.name) != auxiliary.end()) {
      return fmt::format("auxiliary tensor {} is kept as a parameter", weight.name);
    }
  }
  for (const auto& why : {compare_values(test, checkpoint, *table),
                          check_warnings(test, checkpoint, *table), check_formats(test, *table)}) {
    if (!why.empty()) {
      return why;
    }
  }
  return {};
}

/// Errors that find_weights() is the one to report; all others are the reader's.
bool is_about_weights(const std::string& error_class) {
  return error_class.starts_with("scale_") || error_class == "bad_quant_metadata" ||
         error_class == "unsupported_format";
}

TEST(FindWeights, DoesWhatTheSharedCasesExpect) {
  if (!std::filesystem::exists(kWeightCases / "manifest.json")) {
    GTEST_SKIP() << "no shared cases at " << kWeightCases;
  }
  std::map<std::string, Tally> tallies;
  for (const json& entry : json::parse(read_text(kWeightCases / "manifest.json"))) {
    const std::string id = entry["id"];
    Case test{.folder = kWeightCases / id,
              .id = id,
              .group = entry["group"],
              .is_optional = entry["support"] != "core",
              .expected = json::parse(read_text(kWeightCases / id / "expected.json"))};
    const auto checkpoint = Checkpoint::open(kWeightCases / std::string(entry["entry"]));
    const bool wants_error = test.expected["outcome"] == "error";
    const bool is_another_format = test.group == "gguf";
    // Groups of blocks have no values, and containers and shards are the reader's to refuse.
    const bool has_values = checkpoint && test.group != "blocks";
    const bool is_readers = test.group == "container" || test.group == "shards";
    if (is_another_format ||
        (wants_error ? !is_about_weights(test.expected.value("error_class", "")) || is_readers
                     : !has_values && (is_readers || test.group == "blocks"))) {
      continue;
    }
    Tally& tally = tallies[test.group];
    const std::string why = checkpoint
                                ? check_result(test, *checkpoint, find_weights(*checkpoint), tally)
                                : checkpoint.error().to_string();
    if (!why.empty()) {
      ++tally.failed;
      ADD_FAILURE() << id << ": " << why;
    }
  }
  fmt::print("{:<18} {:>7} {:>8} {:>7}\n", "kind", "values", "refused", "failed");
  for (const auto& [group, tally] : tallies) {
    fmt::print("{:<18} {:>7} {:>8} {:>7}\n", group, tally.values, tally.refused, tally.failed);
  }
}

}  // namespace
}  // namespace trash_panda::format
