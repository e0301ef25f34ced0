#include "torch_records.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "trash_panda/format/name_index.h"

#include "header_layout.h"

namespace trash_panda::format {

namespace {

/// A tensor may repeat bytes (a stride of 0), but a small file must not ask for any amount.
Result<void> check_repetition(const TorchTensor& tensor, const File& file) {
  if (tensor.size_bytes <= file.size_bytes()) {
    return {};
  }
  return std::unexpected(
      Error(ErrorCode::kCorrupt,
            fmt::format("tensor {} of shape {} takes {} bytes, more than the {} of its file",
                        quote_name(tensor.name), to_string(tensor.shape), tensor.size_bytes,
                        file.size_bytes()))
          .with_reason("overflow")
          .with_hint("its strides repeat a few elements: save it with .contiguous()"));
}

/// By place; views of one place side by side, equal ones in the order of the dict.
auto place_of(const TensorRecord& tensor) {
  return std::tie(tensor.offset_bytes, tensor.dtype, tensor.shape, tensor.strides);
}

Result<void> check_names(const std::vector<TensorRecord>& tensors) {
  const auto name_at = [&](std::size_t i) { return tensors[i].name; };
  const NameIndex names(tensors.size(), name_at);
  if (const auto twice = names.find_twice(name_at)) {
    return std::unexpected(
        Error(ErrorCode::kCorrupt,
              fmt::format("two tensors are named {}", quote_name(name_at(twice->first))))
            .with_reason("duplicate"));
  }
  return {};
}

}  // namespace

Result<FileContents> make_torch_records(TorchState state,
                                        std::span<const std::uint64_t> storage_offsets,
                                        const File& file) {
  TP_ASSERT(storage_offsets.size() == state.storages.size());
  FileContents contents;
  contents.notes = std::move(state.notes);
  contents.data_offset_bytes = file.size_bytes();
  for (TorchTensor& tensor : state.tensors) {
    TP_RETURN_IF_ERROR(check_repetition(tensor, file));
    const std::uint64_t storage_offset_bytes = storage_offsets[tensor.storage_index];
    contents.data_offset_bytes = std::min(contents.data_offset_bytes, storage_offset_bytes);
    contents.tensors.push_back({.name = contents.names.keep(tensor.name),
                                .dtype = tensor.dtype,
                                .shape = std::move(tensor.shape),
                                .file_index = 0,
                                .offset_bytes = storage_offset_bytes + tensor.offset_bytes,
                                .size_bytes = tensor.size_bytes,
                                .strides = std::move(tensor.strides)});
  }
  std::ranges::stable_sort(contents.tensors, [](const TensorRecord& a, const TensorRecord& b) {
    return place_of(a) < place_of(b);
  });
  TP_RETURN_IF_ERROR(check_names(contents.tensors));
  return contents;
}

}  // namespace trash_panda::format
