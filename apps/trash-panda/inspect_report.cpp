#include "inspect_report.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trash_panda/base/file.h"
#include "trash_panda/base/units.h"

#include "model_input.h"
#include "table.h"

namespace trash_panda::cli {

namespace {

/// Most names that a line lists; --json lists all.
constexpr std::size_t kNamesMax = 6;

std::string joined(const std::vector<std::string>& names) {
  const std::span<const std::string> shown =
      std::span(names).first(std::min(names.size(), kNamesMax));
  const std::string text = fmt::format("{}", fmt::join(shown, ", "));
  return names.size() == shown.size()
             ? text
             : fmt::format("{} and {} more", text, names.size() - shown.size());
}

/// "fp8 (scale per 128x128 block: F32 weight_scale_inv) 655 GB, bf16 2.1 GB", most bytes first.
std::string layouts_text(const LayoutTotals& totals) {
  std::vector<std::pair<std::uint64_t, std::string>> by_size;
  for (const auto& [layout, total] : totals) {
    const std::string scale = layout.scale_leaf.empty()
                                  ? std::string()
                                  : fmt::format(" by {} {}", layout.scale_dtype,
                                                printable(std::string_view(layout.scale_leaf)));
    by_size.emplace_back(total.bytes,
                         fmt::format("{} {}{}", format_bytes(total.bytes), layout.format, scale));
  }
  std::ranges::stable_sort(by_size, std::greater(), &std::pair<std::uint64_t, std::string>::first);
  std::vector<std::string> texts;
  for (auto& [bytes, text] : by_size) {
    texts.push_back(std::move(text));
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

std::string group_table(const InspectSummary& summary) {
  std::vector<std::vector<std::string>> rows = {{"blocks", "count", "each", "total", "stored as"}};
  for (const InspectedGroup& group : summary.groups) {
    rows.push_back({printable(std::string_view(group.prefix)), format_count(group.count),
                    group.bytes_min == group.bytes_max
                        ? format_bytes(group.bytes_min)
                        : fmt::format("{} to {}", format_bytes(group.bytes_min),
                                      format_bytes(group.bytes_max)),
                    format_bytes(group.bytes_total), layouts_text(group.layouts)});
  }
  rows.push_back({"outside", format_count(summary.outside_count),
                  summary.outside_count == 1 ? "tensor" : "tensors",
                  format_bytes(summary.outside_bytes), layouts_text(summary.outside_layouts)});
  return format_table("lrrrl", rows);
}

std::string component_table(const InspectSummary& summary) {
  std::vector<std::vector<std::string>> rows = {
      {"component", "class", "size", "dtypes", "blocks", "to plan or repack it, say"}};
  for (const InspectedComponent& component : summary.components) {
    std::vector<std::string> dtypes;
    for (const auto& [dtype, bytes] : component.dtype_bytes) {
      dtypes.push_back(dtype);
    }
    std::vector<std::string> blocks;
    for (const InspectedGroup& group : component.groups) {
      blocks.push_back(fmt::format("{}{}", group.count, printable(" " + group.prefix)));
    }
    const bool has_weights = component.tensor_count > 0;
    rows.push_back({printable(component.name), printable(component.class_name),
                    has_weights ? format_bytes(component.bytes) : "-", joined(dtypes),
                    joined(blocks),
                    !component.error.empty() ? "can't be read"
                    : has_weights            ? path_argument(component.model)
                                             : "no weights"});
  }
  return format_table("llrlll", rows);
}

std::string remark_of(const InspectedTensor& tensor) {
  switch (tensor.role) {
    case TensorRole::kWeight:
      return tensor.format;
    case TensorRole::kScale:
      return "a scale";
    case TensorRole::kLeftOut:
      return "left out";
  }
  return {};
}

std::string tensor_table(const std::vector<InspectedTensor>& tensors) {
  std::vector<std::vector<std::string>> rows = {{"tensor", "dtype", "shape", "size", "is"}};
  for (const InspectedTensor& tensor : tensors) {
    rows.push_back({printable(std::string_view(tensor.name)), std::string(tensor.dtype),
                    format::to_string(tensor.shape), format_bytes(tensor.size_bytes),
                    remark_of(tensor)});
  }
  return format_table("lllrl", rows);
}

std::string architecture_text(const InspectSummary& summary) {
  if (summary.architecture.name.empty()) {
    return {};
  }
  // A guess is told as one; a class name stands for itself.
  return fmt::format("  {}{}", printable(std::string_view(summary.architecture.name)),
                     summary.architecture.source == "tensor names" ? " (by its tensor names)" : "");
}

std::string dtypes_text(const InspectSummary& summary) {
  std::vector<std::string> dtypes;
  for (const auto& [dtype, total] : summary.dtypes) {
    dtypes.push_back(fmt::format("{} {} in {}", dtype, format_bytes(total.bytes),
                                 counted(total.tensor_count, "tensor")));
  }
  return fmt::format("dtypes   {}\n",
                     dtypes.empty() ? "none" : fmt::format("{}", fmt::join(dtypes, ", ")));
}

std::string ties_text(const InspectSummary& summary) {
  std::string text;
  for (std::size_t i = 0; i < std::min(summary.ties.size(), kNamesMax); ++i) {
    const Tie& tie = summary.ties[i];
    text += fmt::format("tied     {} is {} ({})\n", printable(std::string_view(tie.name)),
                        printable(std::string_view(tie.target)), tie.source);
  }
  if (summary.ties.size() > kNamesMax) {
    text += fmt::format("tied     {} more\n", summary.ties.size() - kNamesMax);
  }
  return text;
}

std::string left_out_text(const InspectSummary& summary) {
  std::vector<std::string> names;
  for (const std::string& name : summary.left_out) {
    names.push_back(printable(std::string_view(name)));
  }
  return names.empty()
             ? std::string()
             : fmt::format("left out {}: {}\n", counted(names.size(), "tensor"), joined(names));
}

}  // namespace

std::string inspect_text(const InspectSummary& summary, std::string_view name,
                         const Console& console) {
  std::string out =
      fmt::format("{}  {}  {} in {}", console.styled(Style::kBold, printable(name)),
                  format_bytes(summary.total_bytes), counted(summary.tensor_count, "tensor"),
                  counted(summary.files.size(), "file"));
  out += summary.kind == "checkpoint" ? "" : fmt::format("  {}", summary.kind);
  out += summary.file_format == "safetensors" ? "" : fmt::format("  {}", summary.file_format);
  out += architecture_text(summary) + "\n" + dtypes_text(summary);
  if (!summary.formats.empty()) {
    out += fmt::format("formats  {}\n", fmt::join(summary.formats, ", "));
  }
  out += ties_text(summary) + left_out_text(summary);
  out += "\n" + (summary.kind == "pipeline" ? component_table(summary) : group_table(summary));
  if (!summary.tensors.empty()) {
    out += "\n" + tensor_table(summary.tensors);
  }
  return out;
}

}  // namespace trash_panda::cli
