#include "gguf_header.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "trash_panda/format/name_index.h"

#include "file_sniff.h"
#include "gguf_layout.h"
#include "gguf_values.h"
#include "header_layout.h"

namespace trash_panda::format {

namespace {

constexpr std::string_view kGgufMagic = "GGUF";

/// Versions of one layout: 3 only added big-endian files.
constexpr std::uint32_t kGgufVersionMin = 2;
constexpr std::uint32_t kGgufVersionMax = 3;

/// More dimensions no tensor of ggml has. @see ggml.h, GGML_MAX_DIMS
constexpr std::uint32_t kGgufDimensionsMax = 4;

/// Least bytes of a tensor's description: an empty name, no dimension, type and offset.
constexpr std::uint64_t kTensorInfoBytesMin = 8 + 4 + 4 + 8;

Error no_gguf(std::span<const std::byte> head) {
  const std::optional<ForeignFormat> format = sniff_foreign_format(head);
  Error error =
      gguf_error(ErrorCode::kUnsupported,
                 format ? fmt::format("not a GGUF file but {}", format->name)
                        : std::string("not a GGUF file: it does not begin with \"GGUF\""));
  return format ? std::move(error).with_hint(std::string(format->hint)) : std::move(error);
}

Result<std::uint32_t> read_version(GgufStream& stream) {
  TP_ASSIGN_OR_RETURN(
      const std::span<const std::byte> magic,
      stream.take(std::min<std::uint64_t>(kGgufMagic.size(), stream.remaining_bytes())));
  if (std::string_view(reinterpret_cast<const char*>(magic.data()), magic.size()) != kGgufMagic) {
    return std::unexpected(no_gguf(magic));
  }
  TP_ASSIGN_OR_RETURN(const auto version, stream.take_number<std::uint32_t>());
  if (version != 0 && (version & 0xffffU) == 0) {
    return std::unexpected(
        gguf_error(ErrorCode::kUnsupported, "the GGUF file is big-endian, which is not supported")
            .with_hint("convert it to little-endian: gguf-convert-endian FILE little"));
  }
  if (version < kGgufVersionMin || version > kGgufVersionMax) {
    return std::unexpected(
        gguf_error(ErrorCode::kUnsupported,
                   fmt::format("the GGUF file is of version {}; versions {} and {} are read",
                               version, kGgufVersionMin, kGgufVersionMax)));
  }
  return version;
}

Result<Shape> take_shape(GgufStream& stream) {
  TP_ASSIGN_OR_RETURN(const auto dimension_count, stream.take_number<std::uint32_t>());
  if (dimension_count > kGgufDimensionsMax) {
    return std::unexpected(
        gguf_error(ErrorCode::kCorrupt, fmt::format("{} dimensions are more than the {} of GGUF",
                                                    dimension_count, kGgufDimensionsMax)));
  }
  Shape shape(dimension_count);
  // The file has the fastest one first.
  for (auto dimension = shape.rbegin(); dimension != shape.rend(); ++dimension) {
    TP_ASSIGN_OR_RETURN(*dimension, stream.take_number<std::uint64_t>());
  }
  return shape;
}

Result<const GgmlType*> take_tensor_type(GgufStream& stream) {
  TP_ASSIGN_OR_RETURN(const auto id, stream.take_number<std::uint32_t>());
  if (const GgmlType* type = find_ggml_type(id)) {
    return type;
  }
  const std::string_view removed = removed_ggml_type(id);
  if (!removed.empty()) {
    return std::unexpected(
        gguf_error(ErrorCode::kUnsupported,
                   fmt::format("its type is {}, which GGUF no longer has", removed))
            .with_hint("get a newer GGUF file of the model, quantized otherwise"));
  }
  return std::unexpected(
      gguf_error(ErrorCode::kUnsupported, fmt::format("its type {} is not known", id)));
}

/// Bytes of a tensor: whole blocks in each row.
Result<std::uint64_t> measure_blocks(const GgmlType& type, const Shape& shape) {
  const std::uint64_t row_elements = shape.empty() ? 1 : shape.back();
  if (row_elements % type.block_elements != 0) {
    return std::unexpected(gguf_error(
        ErrorCode::kCorrupt,
        fmt::format("rows of {} elements are no whole number of {} blocks of {} (shape {})",
                    row_elements, type.name, type.block_elements, to_string(shape))));
  }
  if (std::ranges::find(shape, 0U) != shape.end()) {
    return 0;  // Whatever the other dimensions are.
  }
  std::uint64_t elements = 1;
  bool overflow = false;
  for (const std::uint64_t dimension : shape) {
    overflow = overflow || __builtin_mul_overflow(elements, dimension, &elements);
  }
  std::uint64_t size_bytes = 0;
  overflow = overflow ||
             __builtin_mul_overflow(elements / type.block_elements, type.block_bytes, &size_bytes);
  if (overflow) {
    return std::unexpected(gguf_error(
        ErrorCode::kCorrupt,
        fmt::format("shape {} of type {} takes 2^64 bytes or more", to_string(shape), type.name)));
  }
  return size_bytes;
}

/// Passes what follows a tensor's name.
Result<TensorRecord> take_tensor(GgufStream& stream) {
  TP_ASSIGN_OR_RETURN(Shape shape, take_shape(stream));
  TP_ASSIGN_OR_RETURN(const GgmlType* type, take_tensor_type(stream));
  TP_ASSIGN_OR_RETURN(const auto offset_bytes, stream.take_number<std::uint64_t>());
  TP_ASSIGN_OR_RETURN(const std::uint64_t size_bytes, measure_blocks(*type, shape));
  return TensorRecord{.name = {},
                      .dtype = type->dtype.value_or(Dtype::kGgmlBlock),
                      .shape = std::move(shape),
                      .file_index = 0,
                      .offset_bytes = offset_bytes,
                      .size_bytes = size_bytes,
                      .ggml_type = type->dtype ? nullptr : type};
}

Result<std::vector<TensorRecord>> read_tensors(GgufStream& stream, std::uint64_t count,
                                               TextArena& names) {
  std::vector<TensorRecord> tensors;
  for (std::uint64_t i = 0; i < count; ++i) {
    TP_ASSIGN_OR_RETURN(const std::string name, take_gguf_name(stream, "tensor name"));
    Result<TensorRecord> tensor = take_tensor(stream);
    if (!tensor) {
      return std::unexpected(
          std::move(tensor).error().with_context(fmt::format("tensor {}", quote_name(name))));
    }
    tensor->name = names.keep(name);
    tensors.push_back(*std::move(tensor));
  }
  const auto name_at = [&tensors](std::size_t i) { return tensors[i].name; };
  if (const auto twice = NameIndex(tensors.size(), name_at).find_twice(name_at)) {
    return std::unexpected(
        gguf_error(ErrorCode::kCorrupt,
                   fmt::format("tensor {} is there twice", quote_name(name_at(twice->first)))));
  }
  return tensors;
}

}  // namespace

Result<GgufHeader> read_gguf_header(const ReadAt& read_at, std::uint64_t file_size_bytes,
                                    Checksum& checksum) {
  GgufStream stream(read_at, file_size_bytes, checksum);
  GgufHeader header;
  TP_ASSIGN_OR_RETURN(header.version, read_version(stream));
  TP_ASSIGN_OR_RETURN(const auto tensor_count, stream.take_number<std::uint64_t>());
  TP_ASSIGN_OR_RETURN(const auto pair_count, stream.take_number<std::uint64_t>());
  if (tensor_count > stream.remaining_bytes() / kTensorInfoBytesMin) {
    return std::unexpected(gguf_error(ErrorCode::kCorrupt,
                                      fmt::format("{} tensors can't be in a GGUF file of {} bytes",
                                                  tensor_count, file_size_bytes))
                               .with_hint("the file is incomplete or damaged: download it again"));
  }
  TP_ASSIGN_OR_RETURN(GgufValues values, read_gguf_values(stream, pair_count));
  TP_ASSIGN_OR_RETURN(header.tensors, read_tensors(stream, tensor_count, header.names));
  TP_ASSIGN_OR_RETURN(header.data_offset_bytes,
                      lay_out_gguf(header.tensors, {.header_bytes = stream.position_bytes(),
                                                    .alignment_bytes = values.alignment_bytes,
                                                    .file_size_bytes = file_size_bytes}));
  stream.finish();
  header.alignment_bytes = values.alignment_bytes;
  header.metadata = std::move(values.metadata);
  return header;
}

Result<GgufHeader> parse_gguf_header(std::span<const std::byte> head,
                                     std::uint64_t file_size_bytes) {
  const ReadAt copy_from_head = [head](std::uint64_t offset_bytes,
                                       std::span<std::byte> target) -> Result<void> {
    // The window reaches past the header; what is not there is not looked at.
    const std::size_t begin = std::min<std::uint64_t>(offset_bytes, head.size());
    const std::size_t count = std::min(target.size(), head.size() - begin);
    std::ranges::copy(head.subspan(begin, count), target.begin());
    std::ranges::fill(target.subspan(count), std::byte{0});
    return {};
  };
  Checksum unused;
  return read_gguf_header(copy_from_head, file_size_bytes, unused);
}

}  // namespace trash_panda::format
