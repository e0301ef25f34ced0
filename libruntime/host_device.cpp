#include "host_device.h"

#include <cstring>

#include "trash_panda/runtime/expand.h"

namespace trash_panda::runtime {

namespace {

std::span<std::byte> bytes_of(const format::PackedTensor& tensor, std::span<std::byte> extent) {
  return extent.subspan(tensor.offset_bytes, tensor.size_bytes);
}

/// Canonical scales start on kTensorAlignment, so they are read where they lie.
template <class T>
std::span<const T> elements_of(const format::PackedTensor& tensor, std::span<std::byte> extent) {
  const std::span<std::byte> bytes = bytes_of(tensor, extent);
  return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
}

void make_tensor(const TensorStep& step, std::span<std::byte> stored, std::span<std::byte> target) {
  const format::PackedTensor& tensor = *step.stored;
  const std::span<std::byte> payload = bytes_of(tensor, stored);
  if (step.dtype == tensor.dtype) {
    if (!payload.empty()) {
      std::memcpy(target.data(), payload.data(), payload.size());
    }
    return;
  }
  ExpandSource source = {
      .dtype = tensor.dtype, .shape = &tensor.shape, .payload = payload, .scale = {}};
  if (step.scale != nullptr) {
    if (step.scale->dtype == format::Dtype::kF8E8M0) {
      source.scale_codes = elements_of<std::uint8_t>(*step.scale, stored);
    } else {
      source.scale = elements_of<float>(*step.scale, stored);
    }
    source.granularity = tensor.scale->granularity;
    if (tensor.scale->block_shape.size() == 2) {
      source.block_rows = tensor.scale->block_shape[0];
      source.block_columns = tensor.scale->block_shape[1];
    }
  }
  expand(source, step.dtype, target);
}

}  // namespace

std::vector<TensorView> HostDevice::place(const TensorLayout& layout, std::span<std::byte> stored,
                                          std::span<std::byte> compute) {
  std::vector<TensorView> views;
  views.reserve(layout.steps.size());
  for (const TensorStep& step : layout.steps) {
    std::span<std::byte> target;
    if (step.is_in_place) {
      target = bytes_of(*step.stored, stored);
    } else {
      target = compute.subspan(step.compute_offset_bytes, step.size_bytes);
      make_tensor(step, stored, target);
    }
    views.push_back({.name = step.stored->name,
                     .dtype = step.dtype,
                     .shape = &step.stored->shape,
                     .data = target.data(),
                     .size_bytes = step.size_bytes});
  }
  return views;
}

}  // namespace trash_panda::runtime
