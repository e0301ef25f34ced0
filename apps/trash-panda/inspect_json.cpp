#include <string>
#include <string_view>
#include <vector>

#include "inspect_report.h"
#include "json_text.h"

namespace trash_panda::cli {

namespace {

std::string_view role_name(TensorRole role) {
  switch (role) {
    case TensorRole::kWeight:
      return "weight";
    case TensorRole::kScale:
      return "scale";
    case TensorRole::kLeftOut:
      return "left out";
  }
  return "";
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

Json layouts_json(const LayoutTotals& totals) {
  Json layouts = Json::array();
  for (const auto& [layout, total] : totals) {
    layouts.push_back({{"format", layout.format},
                       {"scale_dtype", layout.scale_dtype},
                       {"scale_name", layout.scale_leaf},
                       {"tensor_count", total.tensor_count},
                       {"bytes", total.bytes}});
  }
  return layouts;
}

Json groups_json(const std::vector<InspectedGroup>& inspected) {
  Json groups = Json::array();
  for (const InspectedGroup& group : inspected) {
    groups.push_back({{"prefix", group.prefix},
                      {"count", group.count},
                      {"bytes_min", group.bytes_min},
                      {"bytes_max", group.bytes_max},
                      {"bytes_total", group.bytes_total},
                      {"layouts", layouts_json(group.layouts)}});
  }
  return groups;
}

Json dtypes_json(const InspectSummary& summary) {
  Json dtypes = Json::array();
  for (const auto& [dtype, total] : summary.dtypes) {
    dtypes.push_back(
        {{"dtype", dtype}, {"tensor_count", total.tensor_count}, {"bytes", total.bytes}});
  }
  return dtypes;
}

Json ties_json(const InspectSummary& summary) {
  Json ties = Json::array();
  for (const Tie& tie : summary.ties) {
    ties.push_back({{"name", tie.name}, {"target", tie.target}, {"source", tie.source}});
  }
  return ties;
}

Json scales_json(const InspectedScales& scales) {
  Json special = Json::array();
  for (const InspectedScales::Special& scale : scales.special) {
    special.push_back({{"name", scale.name}, {"value", scale.kind}});
  }
  return {{"count", scales.count},
          {"bytes", scales.bytes},
          {"values_checked", scales.is_checked},
          {"special", std::move(special)}};
}

Json left_out_json(const InspectSummary& summary) {
  Json names = Json::array();
  for (const std::string& name : summary.left_out) {
    names.push_back(name);
  }
  return names;
}

Json components_json(const InspectSummary& summary) {
  Json components = Json::array();
  for (const InspectedComponent& component : summary.components) {
    Json dtypes = Json::array();
    for (const auto& [dtype, bytes] : component.dtype_bytes) {
      dtypes.push_back({{"dtype", dtype}, {"bytes", bytes}});
    }
    components.push_back({{"name", component.name},
                          {"library", component.library},
                          {"class", component.class_name},
                          {"model", component.model},
                          {"tensor_count", component.tensor_count},
                          {"total_bytes", component.bytes},
                          {"dtypes", std::move(dtypes)},
                          {"formats", component.formats},
                          {"groups", groups_json(component.groups)},
                          {"error", component.error}});
  }
  return components;
}

Json tensors_json(const InspectSummary& summary) {
  Json tensors = Json::array();
  for (const InspectedTensor& tensor : summary.tensors) {
    tensors.push_back({{"name", tensor.name},
                       {"dtype", tensor.dtype},
                       {"shape", tensor.shape},
                       {"size_bytes", tensor.size_bytes},
                       {"file", summary.files[tensor.file_index].name},
                       {"offset_bytes", tensor.offset_bytes},
                       {"role", role_name(tensor.role)},
                       {"format", tensor.format},
                       {"scale", tensor.scale},
                       {"block", tensor.block}});
  }
  return tensors;
}

}  // namespace

std::string inspect_json(const InspectSummary& summary) {
  const Json document = {{"schema", "trash-panda/inspect/1"},
                         {"path", summary.path.native()},
                         {"kind", summary.kind},
                         {"file_format", summary.file_format},
                         {"fingerprint", summary.fingerprint},
                         {"architecture", summary.architecture.name},
                         {"architecture_source", summary.architecture.source},
                         {"tensor_count", summary.tensor_count},
                         {"total_bytes", summary.total_bytes},
                         {"outside_bytes", summary.outside_bytes},
                         {"outside_count", summary.outside_count},
                         {"groups", groups_json(summary.groups)},
                         {"outside_layouts", layouts_json(summary.outside_layouts)},
                         {"dtypes", dtypes_json(summary)},
                         {"formats", summary.formats},
                         {"scales", scales_json(summary.scales)},
                         {"ties", ties_json(summary)},
                         {"left_out", left_out_json(summary)},
                         {"components", components_json(summary)},
                         {"files", files_json(summary)},
                         {"tensors", tensors_json(summary)},
                         {"warnings", summary.warnings}};
  return json_document(document);
}

}  // namespace trash_panda::cli
