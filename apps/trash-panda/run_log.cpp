#include "run_log.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trash_panda/base/json_depth.h"
#include "trash_panda/base/nearest_name.h"
#include "trash_panda/base/printable.h"

namespace trash_panda::cli {

namespace {

/// Longer passes than a day are no measurement.
constexpr double kComputeSecondsMax = 86'400;

const nlohmann::json* record_member(const nlohmann::json& record, const char* key) {
  const auto found = record.find(key);
  return found == record.end() ? nullptr : &*found;
}

/// Adds one block record; what is wrong with it, or nothing.
std::string add_block(const nlohmann::json& record, RunLog& log) {
  const nlohmann::json* const pass = record_member(record, "pass");
  const nlohmann::json* const name = record_member(record, "name");
  const nlohmann::json* const seconds = record_member(record, "compute_s");
  if (pass == nullptr || !pass->is_number_unsigned() || pass->get<std::uint64_t>() == 0) {
    return "pass must be a whole number from 1";
  }
  if (name == nullptr || !name->is_string()) {
    return "name must be a string";
  }
  if (seconds == nullptr || !seconds->is_number() || !(seconds->get<double>() >= 0) ||
      seconds->get<double>() > kComputeSecondsMax) {
    return fmt::format("compute_s must be a number of seconds from 0 to {}", kComputeSecondsMax);
  }
  const bool is_new = log.compute_s[name->get<std::string>()]
                          .emplace(pass->get<std::uint64_t>(), seconds->get<double>())
                          .second;
  return is_new ? std::string()
                : fmt::format("{} is computed a second time in pass {}",
                              printable(name->get_ref<const std::string&>()),
                              pass->get<std::uint64_t>());
}

std::string add_record(std::string_view line, RunLog& log) {
  const nlohmann::json record =
      is_json_too_deep(line) ? nlohmann::json(nlohmann::json::value_t::discarded)
                             : nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!record.is_object()) {
    return "not a JSON object";
  }
  const nlohmann::json* const type = record_member(record, "type");
  if (type == nullptr || !type->is_string()) {
    return "type must be a string: this is no record of a run log";
  }
  return *type == "block" ? add_block(record, log) : std::string();
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace

Result<RunLog> parse_run_log(std::string_view text, std::string_view where) {
  RunLog log;
  for (std::uint64_t number = 1; !text.empty(); ++number) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    const bool is_cut_off = end == std::string_view::npos;
    text.remove_prefix(is_cut_off ? text.size() : end + 1);
    if (const std::string wrong = add_record(line, log); !wrong.empty()) {
      Error error(ErrorCode::kCorrupt, fmt::format("{}:{}: {}", printable(where), number, wrong));
      return std::unexpected(
          is_cut_off ? std::move(error).with_hint("the last line has no end: the run may have been "
                                                  "cut off there; without that line it can be read")
                     : std::move(error));
    }
  }
  return log;
}

std::map<std::string, double> median_compute_s(const RunLog& log) {
  std::map<std::string, double> medians;
  for (const auto& [name, passes] : log.compute_s) {
    std::vector<double> later;
    for (const auto& [pass, seconds] : passes) {
      if (pass > 1) {
        later.push_back(seconds);
      }
    }
    if (!later.empty()) {
      medians.emplace(name, median(std::move(later)));
    }
  }
  return medians;
}

Result<std::vector<double>> block_profile(const RunLog& log,
                                          const std::vector<plan::PlannedBlock>& blocks,
                                          std::string_view where) {
  const std::map<std::string, double> medians = median_compute_s(log);
  if (medians.empty()) {
    return std::unexpected(
        Error(ErrorCode::kCorrupt,
              log.compute_s.empty()
                  ? fmt::format("{} has no records of blocks", printable(where))
                  : fmt::format("{} has no pass after the first", printable(where)))
            .with_hint("a profile needs a run of two passes or more"));
  }
  std::vector<std::string_view> known;
  for (const plan::PlannedBlock& block : blocks) {
    known.push_back(block.name);
  }
  for (const auto& [name, seconds] : medians) {
    if (std::ranges::find(known, name) == known.end()) {
      const std::string_view nearest = nearest_name(name, known);
      Error error(ErrorCode::kStale, fmt::format("{} is of another model: this one has no block {}",
                                                 printable(where), printable(name)));
      return std::unexpected(nearest.empty() ? std::move(error)
                                             : std::move(error).with_hint(fmt::format(
                                                   "the nearest is {}", printable(nearest))));
    }
  }
  std::vector<double> profile_s;
  for (const plan::PlannedBlock& block : blocks) {
    const auto seconds = medians.find(block.name);
    if (seconds == medians.end()) {
      return std::unexpected(
          Error(ErrorCode::kStale, fmt::format("{} has nothing of {} after the first pass",
                                               printable(where), printable(block.name)))
              .with_hint("the run must be of this model, whole passes, two or more"));
    }
    profile_s.push_back(seconds->second);
  }
  return profile_s;
}

}  // namespace trash_panda::cli
