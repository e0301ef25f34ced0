#include "torch_tensor.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "header_layout.h"

namespace trash_panda::format {

namespace {

constexpr std::uint64_t kUint64Max = std::numeric_limits<std::uint64_t>::max();

/// Most dimensions that torch computes with. @see torch, ATen/native/TensorIterator.h, its bitsets
constexpr std::size_t kTorchDimensionsMax = 64;

Error broken_tensor(std::string_view reason, std::string message) {
  return Error(ErrorCode::kCorrupt, std::move(message))
      .with_reason(reason)
      .with_hint("the file is damaged: download it again");
}

/// A tuple or list of numbers, none of which is negative.
std::optional<Shape> counts(const PickleGraph& graph, const PickleValue& value) {
  if (value.kind != PickleKind::kTuple && value.kind != PickleKind::kList) {
    return std::nullopt;
  }
  Shape numbers;
  for (const PickleValue& item : graph.values(value)) {
    if (item.kind != PickleKind::kInteger || std::bit_cast<std::int64_t>(item.payload) < 0) {
      return std::nullopt;
    }
    numbers.push_back(item.payload);
  }
  return numbers;
}

bool is_empty(const Shape& shape) {
  return std::ranges::find(shape, std::uint64_t{0}) != shape.end();
}

/// Whether elements lie one after another in the order of their indices.
bool is_row_major(const Shape& shape, const Shape& strides) {
  std::uint64_t next = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    if (shape[i] == 1) {
      continue;  // Its stride is never used.
    }
    if (strides[i] != next) {
      return false;
    }
    next *= shape[i];
  }
  return true;
}

/// Elements of the storage from its start to behind the tensor's last one; nothing when 64 bits
/// can't count them.
std::optional<std::uint64_t> reach(const Shape& shape, const Shape& strides, std::uint64_t offset) {
  std::uint64_t last = offset;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const std::uint64_t steps = shape[i] - 1;
    if (strides[i] != 0 && steps > (kUint64Max - 1 - last) / strides[i]) {
      return std::nullopt;
    }
    last += steps * strides[i];
  }
  return last == kUint64Max ? std::nullopt : std::optional(last + 1);
}

}  // namespace

Result<std::uint64_t> torch_storage_bytes(const PickledStorage& storage) {
  const std::uint64_t width_bytes = storage.dtype ? dtype_bits(*storage.dtype) / 8 : 1;
  if (storage.element_count > kUint64Max / width_bytes) {
    return std::unexpected(broken_tensor(
        "overflow", fmt::format("storage {} of {} elements has more bytes than can be counted",
                                quote_name(storage.key), storage.element_count)));
  }
  return storage.element_count * width_bytes;
}

Result<TorchTensor> make_torch_tensor(const PickleGraph& graph, const PickledTensor& pickled,
                                      std::string name) {
  const PickledStorage& storage = graph.storages[pickled.storage_index];
  const std::optional<Dtype> dtype = pickled.dtype ? pickled.dtype : storage.dtype;
  if (!dtype) {
    return std::unexpected(
        Error(ErrorCode::kUnsupported,
              fmt::format("tensor {} has a storage without a type", quote_name(name)))
            .with_reason("dtype"));
  }
  const std::size_t dimension_count = graph.values(pickled.shape).size();
  if (dimension_count > kTorchDimensionsMax) {
    return std::unexpected(broken_tensor(
        "schema", fmt::format("tensor {} has {} dimensions, more than the {} of torch",
                              quote_name(name), dimension_count, kTorchDimensionsMax)));
  }
  std::optional<Shape> shape = counts(graph, pickled.shape);
  std::optional<Shape> strides = counts(graph, pickled.strides);
  if (!shape || !strides || shape->size() != strides->size() || pickled.storage_offset < 0) {
    return std::unexpected(broken_tensor(
        "schema", fmt::format("tensor {} has no sound shape, strides and offset: numbers from 0 "
                              "on, as many strides as dimensions",
                              quote_name(name))));
  }
  TP_ASSIGN_OR_RETURN(const std::uint64_t size_bytes, tensor_size_bytes(name, *dtype, *shape));
  TP_ASSIGN_OR_RETURN(const std::uint64_t storage_bytes, torch_storage_bytes(storage));
  const std::uint64_t width_bytes = dtype_bits(*dtype) / 8;
  const auto offset = static_cast<std::uint64_t>(pickled.storage_offset);
  TorchTensor tensor{.name = std::move(name),
                     .dtype = *dtype,
                     .shape = *std::move(shape),
                     .strides = *std::move(strides),
                     .offset_bytes = 0,
                     .size_bytes = size_bytes,
                     .storage_index = pickled.storage_index};
  if (is_empty(tensor.shape)) {
    tensor.strides.clear();
    return tensor;
  }
  const std::optional<std::uint64_t> end = reach(tensor.shape, tensor.strides, offset);
  if (!end || *end > storage_bytes / width_bytes) {
    return std::unexpected(broken_tensor(
        "offsets",
        fmt::format("tensor {} of shape {}, strides {} and offset {} reaches past its "
                    "storage {} of {} bytes",
                    quote_name(tensor.name), to_string(tensor.shape), to_string(tensor.strides),
                    offset, quote_name(storage.key), storage_bytes)));
  }
  tensor.offset_bytes = offset * width_bytes;
  if (is_row_major(tensor.shape, tensor.strides)) {
    tensor.strides.clear();
  }
  return tensor;
}

}  // namespace trash_panda::format
