#include "tensor_layout.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "trash_panda/base/file.h"
#include "trash_panda/base/units.h"
#include "trash_panda/format/exponent_code.h"
#include "trash_panda/runtime/expand.h"

#include "expand/scale_grid.h"

namespace trash_panda::runtime {

namespace {

using format::Dtype;
using format::PackedTensor;

/// Chunks of a tensor in the exponent code; 0 of any other.
std::uint64_t exponent_chunk_count(const PackedTensor& tensor) {
  if (tensor.coding != format::TensorCoding::kExponent) {
    return 0;
  }
  const std::uint64_t count = tensor.size_bytes / (format::dtype_bits(tensor.dtype) / 8);
  return (count + format::kExponentChunkElements - 1) / format::kExponentChunkElements;
}

Result<Dtype> wanted_dtype(const PackedTensor& tensor, const StreamOptions& options) {
  const auto asked = options.dtype_overrides.find(tensor.name);
  if (asked != options.dtype_overrides.end()) {
    if (asked->second != tensor.dtype && !can_expand(tensor.dtype, asked->second)) {
      return std::unexpected(
          Error(ErrorCode::kUsage,
                fmt::format("\"{}\" is stored as {} and can't become {}", printable(tensor.name),
                            format::dtype_name(tensor.dtype), format::dtype_name(asked->second))));
    }
    return asked->second;
  }
  const bool is_expanded = options.compute_dtype && !tensor.is_scale &&
                           can_expand(tensor.dtype, *options.compute_dtype) &&
                           tensor.dtype != Dtype::kF64;
  if (options.compute_dtype && tensor.scale && !is_expanded) {
    return std::unexpected(
        Error(ErrorCode::kUnsupported,
              fmt::format("\"{}\" is {} with a scale, which can't be expanded",
                          printable(tensor.name), format::dtype_name(tensor.dtype))));
  }
  return is_expanded ? *options.compute_dtype : tensor.value_dtype();
}

/// The scale of a weight, checked once more against what expand() asserts: a manifest is a file.
Result<const PackedTensor*> find_scale(
    const format::PackedExtent& extent,
    const std::map<std::string_view, const PackedTensor*>& by_name, const PackedTensor& weight) {
  const format::PackedScale& how = *weight.scale;
  const bool has_block = how.block_shape.size() == 2;
  const auto found = by_name.find(weight.name + "_scale");
  if (found != by_name.end() &&
      (found->second->dtype == Dtype::kF32 || found->second->dtype == Dtype::kF8E8M0)) {
    const unsigned scale_bytes = format::dtype_bits(found->second->dtype) / 8;
    const ScaleForm form = {.count = found->second->size_bytes / scale_bytes,
                            .granularity = how.granularity,
                            .block_rows = has_block ? how.block_shape[0] : 0,
                            .block_columns = has_block ? how.block_shape[1] : 0};
    if (weight.size_bytes == 0 || (form.count > 0 && make_scale_grid(weight.shape, form))) {
      return found->second;
    }
  }
  return std::unexpected(
      Error(ErrorCode::kCorrupt,
            fmt::format("extent \"{}\" has no scale that fits \"{}\" {}", printable(extent.name),
                        printable(weight.name), format::to_string(weight.shape)))
          .with_reason("scale_missing"));
}

}  // namespace

Result<TensorLayout> lay_out_tensors(const format::PackedExtent& extent,
                                     const StreamOptions& options, Unchanged unchanged) {
  std::map<std::string_view, const PackedTensor*> by_name;
  for (const PackedTensor& tensor : extent.tensors) {
    by_name.emplace(tensor.name, &tensor);
  }
  TensorLayout layout;
  TP_ASSIGN_OR_RETURN(layout.chunk_table_offset_bytes,
                      round_up(extent.stored_bytes, format::kTensorAlignment));
  std::vector<const PackedTensor*> applied;
  for (const PackedTensor& tensor : extent.tensors) {
    TP_ASSIGN_OR_RETURN(const Dtype dtype, wanted_dtype(tensor, options));
    const bool is_changed = tensor.dtype != dtype;
    // In packs all are; a checkpoint may have them anywhere.
    const std::uint64_t width_bytes = std::max(format::dtype_bits(tensor.dtype) / 8, 1U);
    const bool is_aligned = tensor.stored_offset_bytes % width_bytes == 0;
    TensorStep step = {.stored = &tensor,
                       .scale = nullptr,
                       .dtype = dtype,
                       .size_bytes = tensor.size_bytes,
                       .is_in_place = !is_changed && is_aligned &&
                                      unchanged == Unchanged::kInPlace &&
                                      tensor.coding == format::TensorCoding::kRaw,
                       .compute_offset_bytes = layout.compute_bytes};
    if (is_changed) {
      if (tensor.scale) {
        TP_ASSIGN_OR_RETURN(step.scale, find_scale(extent, by_name, tensor));
        applied.push_back(step.scale);
      }
      const std::uint64_t elements = tensor.size_bytes / (format::dtype_bits(tensor.dtype) / 8);
      step.size_bytes = elements * (format::dtype_bits(dtype) / 8);
    }
    if (!step.is_in_place) {
      TP_ASSIGN_OR_RETURN(const std::uint64_t taken_bytes,
                          round_up(step.size_bytes, format::kTensorAlignment));
      layout.compute_bytes += taken_bytes;
    }
    if (step.scale != nullptr && tensor.coding != format::TensorCoding::kRaw) {
      step.decoded_offset_bytes = layout.compute_bytes;
      TP_ASSIGN_OR_RETURN(const std::uint64_t decoded_bytes,
                          round_up(tensor.size_bytes, format::kTensorAlignment));
      layout.compute_bytes += decoded_bytes;
    }
    layout.is_coded = layout.is_coded || tensor.coding != format::TensorCoding::kRaw;
    layout.steps.push_back(step);
  }
  std::erase_if(layout.steps, [&](const TensorStep& step) {
    return std::ranges::find(applied, step.stored) != applied.end();
  });
  for (TensorStep& step : layout.steps) {
    step.chunk_index = layout.chunk_count;
    layout.chunk_count += exponent_chunk_count(*step.stored);
  }
  return layout;
}

Result<StreamOptions> resolve_options(const format::Manifest& manifest, StreamOptions options) {
  if (options.compute_dtype && !can_expand(Dtype::kF32, *options.compute_dtype)) {
    return std::unexpected(
        Error(ErrorCode::kUsage, fmt::format("weights can't be expanded to {}",
                                             format::dtype_name(*options.compute_dtype)))
            .with_hint("compute dtypes are BF16, F16 and F32"));
  }
  std::set<std::string_view> stored;
  for (const format::PackedExtent& extent : manifest.extents) {
    for (const PackedTensor& tensor : extent.tensors) {
      stored.insert(tensor.name);
    }
  }
  std::map<std::string, Dtype> resolved;
  for (const auto& [name, dtype] : options.dtype_overrides) {
    const auto alias = manifest.aliases.find(name);
    const std::string& target = alias == manifest.aliases.end() ? name : alias->second;
    if (!stored.contains(target)) {
      return std::unexpected(
          Error(ErrorCode::kUsage, fmt::format("a dtype is given for \"{}\", which is not in the "
                                               "pack",
                                               printable(name))));
    }
    const auto [at, is_new] = resolved.emplace(target, dtype);
    if (!is_new && at->second != dtype) {
      return std::unexpected(
          Error(ErrorCode::kUsage,
                fmt::format("\"{}\" and \"{}\" are tied, but {} and {} are asked for",
                            printable(name), printable(target), format::dtype_name(dtype),
                            format::dtype_name(at->second))));
    }
  }
  options.dtype_overrides = std::move(resolved);
  return options;
}

}  // namespace trash_panda::runtime
