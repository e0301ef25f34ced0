#include "inspect_pipeline.h"

#include <algorithm>
#include <iterator>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "trash_panda/base/file.h"
#include "trash_panda/format/pipeline.h"

namespace trash_panda::cli {

namespace {

/// `org/name:unet` where the pipeline was found in the cache, else a path as the user began it.
std::string component_argument(std::string_view pipeline, const std::string& component) {
  std::error_code ignored;
  const std::filesystem::path path(pipeline);
  if (!std::filesystem::exists(path, ignored)) {
    const char* separator = pipeline.find(':') == std::string_view::npos ? ":" : "/";
    return fmt::format("{}{}{}", pipeline, separator, component);
  }
  const std::filesystem::path root =
      path.filename() == format::kPipelineFile ? path.parent_path() : path;
  return (root / component).string();
}

/// Appends what a component has to the pipeline's lists, under names that begin with its own.
void append_component(InspectSummary& summary, const std::string& name, InspectSummary component) {
  const std::size_t first_file = summary.files.size();
  for (InspectedFile& file : component.files) {
    file.name = fmt::format("{}/{}", name, file.name);
    summary.files.push_back(std::move(file));
  }
  const auto prefixed = [&name](const std::string& text) {
    return text.empty() ? text : fmt::format("{}:{}", name, text);
  };
  for (InspectedTensor& tensor : component.tensors) {
    tensor.name = prefixed(tensor.name);
    tensor.scale = prefixed(tensor.scale);
    tensor.block = prefixed(tensor.block);
    tensor.file_index += first_file;
    summary.tensors.push_back(std::move(tensor));
  }
  for (const std::string& left_out : component.left_out) {
    summary.left_out.push_back(prefixed(left_out));
  }
  summary.tensor_count += component.tensor_count;
  summary.total_bytes += component.total_bytes;
  for (const auto& [dtype, total] : component.dtypes) {
    summary.dtypes[dtype].tensor_count += total.tensor_count;
    summary.dtypes[dtype].bytes += total.bytes;
  }
  for (InspectedGroup& group : component.groups) {
    group.prefix = prefixed(group.prefix);
    summary.groups.push_back(std::move(group));
  }
  for (const Tie& tie : component.ties) {
    summary.ties.push_back(
        {.name = prefixed(tie.name), .target = prefixed(tie.target), .source = tie.source});
  }
  for (const std::string& warning : component.warnings) {
    summary.warnings.push_back(fmt::format("{}: {}", name, warning));
  }
  for (std::string& format : component.formats) {
    if (std::ranges::find(summary.formats, format) == summary.formats.end()) {
      summary.formats.push_back(std::move(format));
    }
  }
  for (const auto& [layout, total] : component.outside_layouts) {
    summary.outside_layouts[layout].tensor_count += total.tensor_count;
    summary.outside_layouts[layout].bytes += total.bytes;
  }
  summary.outside_count += component.outside_count;
  summary.outside_bytes += component.outside_bytes;
  summary.scales.count += component.scales.count;
  summary.scales.bytes += component.scales.bytes;
  summary.scales.is_checked &= component.scales.is_checked;
  for (const InspectedScales::Special& special : component.scales.special) {
    summary.scales.special.push_back({.name = prefixed(special.name), .kind = special.kind});
  }
}

void describe_component(InspectedComponent& component, const InspectSummary& summary) {
  component.tensor_count = summary.tensor_count;
  component.bytes = summary.total_bytes;
  for (const auto& [dtype, total] : summary.dtypes) {
    component.dtype_bytes[dtype] = total.bytes;
  }
  component.groups = summary.groups;
  component.formats = summary.formats;
}

}  // namespace

Result<InspectSummary> inspect_pipeline(const std::filesystem::path& path, std::string_view name,
                                        ScaleCheck scale_check, const TensorListing& listing,
                                        Console& console) {
  TP_ASSIGN_OR_RETURN(const format::PipelineIndex pipeline, format::read_pipeline(path));
  InspectSummary summary;
  summary.path = pipeline.root;
  summary.kind = "pipeline";
  summary.architecture = {.name = pipeline.class_name, .source = format::kPipelineFile};
  for (const format::PipelineComponent& part : pipeline.components) {
    InspectedComponent& component = summary.components.emplace_back();
    component.name = part.name;
    component.library = part.library;
    component.class_name = part.class_name;
    component.model = component_argument(name, part.name);
    if (!part.has_folder) {
      component.error = "its folder is not here";
      summary.warnings.push_back(fmt::format("{}: {} names it, but its folder is not here",
                                             printable(part.name), format::kPipelineFile));
      continue;
    }
    TensorListing part_listing = listing;
    part_listing.prefix = fmt::format("{}:", part.name);
    Result<InspectSummary> inspected =
        inspect_checkpoint(part.path, {}, scale_check, part_listing, console);
    if (inspected) {
      describe_component(component, *inspected);
      append_component(summary, part.name, *std::move(inspected));
    } else if (inspected.error().reason() != "no_checkpoint") {
      component.error = inspected.error().message();
      summary.warnings.push_back(
          fmt::format("{} can't be read: {}", printable(part.name), inspected.error().to_string()));
    }
  }
  list_tensors(summary, listing);  // Of the largest of each, the largest of all.
  return summary;
}

}  // namespace trash_panda::cli
