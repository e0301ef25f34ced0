#include "inspect_report.h"

#include <cstdint>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trash_panda/base/file.h"
#include "trash_panda/base/units.h"

#include "json_text.h"
#include "model_input.h"
#include "table.h"

namespace trash_panda::cli {

namespace {

struct DtypeTotal {
  std::uint64_t tensor_count = 0;
  std::uint64_t bytes = 0;
};

std::map<format::Dtype, DtypeTotal> dtype_totals(const InspectSummary& summary) {
  std::map<format::Dtype, DtypeTotal> totals;
  for (const InspectedTensor& tensor : summary.tensors) {
    DtypeTotal& total = totals[tensor.dtype];
    ++total.tensor_count;
    total.bytes += tensor.size_bytes;
  }
  return totals;
}

std::string group_table(const InspectSummary& summary) {
  std::vector<std::vector<std::string>> rows = {{"blocks", "count", "each", "total"}};
  for (const InspectedGroup& group : summary.groups) {
    rows.push_back({printable(std::string_view(group.prefix)), format_count(group.count),
                    group.bytes_min == group.bytes_max
                        ? format_bytes(group.bytes_min)
                        : fmt::format("{} to {}", format_bytes(group.bytes_min),
                                      format_bytes(group.bytes_max)),
                    format_bytes(group.bytes_total)});
  }
  rows.push_back({"outside", format_count(summary.outside_count),
                  summary.outside_count == 1 ? "tensor" : "tensors",
                  format_bytes(summary.outside_bytes)});
  return format_table("lrrr", rows);
}

std::string tensor_table(const InspectSummary& summary, const std::vector<std::size_t>& listed) {
  std::vector<std::vector<std::string>> rows = {{"tensor", "dtype", "shape", "size"}};
  for (const std::size_t index : listed) {
    const InspectedTensor& tensor = summary.tensors[index];
    rows.push_back({printable(std::string_view(tensor.name)),
                    std::string(format::dtype_name(tensor.dtype)), format::to_string(tensor.shape),
                    format_bytes(tensor.size_bytes)});
  }
  return format_table("lllr", rows);
}

Json files_json(const InspectSummary& summary) {
  Json files = Json::array();
  for (const InspectedFile& file : summary.files) {
    files.push_back({{"name", file.name},
                     {"path", file.path.native()},
                     {"size_bytes", file.size_bytes},
                     {"header_bytes", file.header_bytes}});
  }
  return files;
}

Json groups_json(const InspectSummary& summary) {
  Json groups = Json::array();
  for (const InspectedGroup& group : summary.groups) {
    groups.push_back({{"prefix", group.prefix},
                      {"count", group.count},
                      {"bytes_min", group.bytes_min},
                      {"bytes_max", group.bytes_max},
                      {"bytes_total", group.bytes_total}});
  }
  return groups;
}

Json dtypes_json(const InspectSummary& summary) {
  Json dtypes = Json::array();
  for (const auto& [dtype, total] : dtype_totals(summary)) {
    dtypes.push_back({{"dtype", format::dtype_name(dtype)},
                      {"tensor_count", total.tensor_count},
                      {"bytes", total.bytes}});
  }
  return dtypes;
}

Json tensors_json(const InspectSummary& summary, const std::vector<std::size_t>& listed) {
  Json tensors = Json::array();
  for (const std::size_t index : listed) {
    const InspectedTensor& tensor = summary.tensors[index];
    tensors.push_back({{"name", tensor.name},
                       {"dtype", format::dtype_name(tensor.dtype)},
                       {"shape", tensor.shape},
                       {"size_bytes", tensor.size_bytes},
                       {"file", summary.files[tensor.file_index].name},
                       {"offset_bytes", tensor.offset_bytes}});
  }
  return tensors;
}

}  // namespace

std::string inspect_text(const InspectSummary& summary, std::string_view name,
                         const std::vector<std::size_t>& listed, const Console& console) {
  std::string out =
      fmt::format("{}  {}  {} in {}", console.styled(Style::kBold, printable(name)),
                  format_bytes(summary.total_bytes()), counted(summary.tensors.size(), "tensor"),
                  counted(summary.files.size(), "file"));
  out += summary.kind == "checkpoint" ? "" : fmt::format("  {}", summary.kind);
  if (!summary.architecture.empty()) {
    out += fmt::format("  {}", printable(std::string_view(summary.architecture)));
  }
  std::vector<std::string> dtypes;
  for (const auto& [dtype, total] : dtype_totals(summary)) {
    dtypes.push_back(fmt::format("{} {} in {}", format::dtype_name(dtype),
                                 format_bytes(total.bytes), counted(total.tensor_count, "tensor")));
  }
  out += fmt::format("\ndtypes   {}\n", fmt::join(dtypes, ", "));
  if (!summary.formats.empty()) {
    out += fmt::format("formats  {}\n", fmt::join(summary.formats, ", "));
  }
  out += "\n" + group_table(summary);
  if (!listed.empty()) {
    out += "\n" + tensor_table(summary, listed);
  }
  return out;
}

std::string inspect_json(const InspectSummary& summary, const std::vector<std::size_t>& listed) {
  const Json document = {{"schema", "trash-panda/inspect/1"},
                         {"path", summary.path.native()},
                         {"kind", summary.kind},
                         {"fingerprint", summary.fingerprint},
                         {"architecture", summary.architecture},
                         {"tensor_count", summary.tensors.size()},
                         {"total_bytes", summary.total_bytes()},
                         {"outside_bytes", summary.outside_bytes},
                         {"outside_count", summary.outside_count},
                         {"groups", groups_json(summary)},
                         {"dtypes", dtypes_json(summary)},
                         {"formats", summary.formats},
                         {"files", files_json(summary)},
                         {"tensors", tensors_json(summary, listed)},
                         {"warnings", summary.warnings}};
  return json_document(document);
}

}  // namespace trash_panda::cli
