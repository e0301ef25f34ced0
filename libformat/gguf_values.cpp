#include "gguf_values.h"

#include <array>
#include <bit>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <simdjson.h>

#include "trash_panda/base/printable.h"
#include "trash_panda/format/name_index.h"

#include "header_layout.h"

namespace trash_panda::format {

namespace {

/// Types of values, numbered as in a file.
enum class ValueType : std::uint32_t {
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kFloat32,
  kBool,
  kString,
  kArray,
  kUint64,
  kInt64,
  kFloat64,
};

/// Bytes of a value of each type; 0 where they vary.
constexpr std::array<std::uint64_t, 13> kValueBytes = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

/// Least bytes of a string (its length), an array (type and length) and a pair (a key of one
/// letter, a type, a value of one byte): counts are held against them.
constexpr std::uint64_t kStringBytesMin = 8;
constexpr std::uint64_t kArrayBytesMin = 12;
constexpr std::uint64_t kPairBytesMin = 14;

/// Arrays in arrays: none is known in the wild; the format sets no limit.
constexpr unsigned kArrayDepthMax = 8;

/// Longest string that is kept: names and addresses, not licences or templates.
constexpr std::uint64_t kKeptStringBytesMax = 4096;

constexpr std::string_view kAlignmentKey = "general.alignment";

/// The format's own rule. @see gguf.md, general.alignment
constexpr std::uint64_t kAlignmentUnit = 8;

bool is_kept(std::string_view key) {
  return key.starts_with("general.") || key.starts_with("split.") || key.ends_with(".block_count");
}

bool is_utf8(std::string_view text) {
  return simdjson::validate_utf8(text.data(), text.size());
}

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Error too_many(std::string_view what, std::uint64_t count, const GgufStream& stream) {
  return gguf_error(ErrorCode::kCorrupt,
                    fmt::format("{} {} can't be in the {} bytes that are left of the GGUF file",
                                count, what, stream.remaining_bytes()))
      .with_hint("the file is incomplete or damaged: download it again");
}

Result<ValueType> take_type(GgufStream& stream) {
  TP_ASSIGN_OR_RETURN(const auto number, stream.take_number<std::uint32_t>());
  if (number >= kValueBytes.size()) {
    return std::unexpected(
        gguf_error(ErrorCode::kCorrupt, fmt::format("{} is no type of a value", number)));
  }
  return static_cast<ValueType>(number);
}

Result<void> skip_value(GgufStream& stream, ValueType type, unsigned depth);

Result<void> skip_array(GgufStream& stream, unsigned depth) {
  if (depth > kArrayDepthMax) {
    return std::unexpected(
        gguf_error(ErrorCode::kUnsupported,
                   fmt::format("arrays within arrays are deeper than {}", kArrayDepthMax)));
  }
  TP_ASSIGN_OR_RETURN(const ValueType type, take_type(stream));
  TP_ASSIGN_OR_RETURN(const auto count, stream.take_number<std::uint64_t>());
  const std::uint64_t fixed_bytes = kValueBytes[std::to_underlying(type)];
  const std::uint64_t element_bytes_min =
      fixed_bytes != 0 ? fixed_bytes
                       : (type == ValueType::kString ? kStringBytesMin : kArrayBytesMin);
  if (count > stream.remaining_bytes() / element_bytes_min) {
    return std::unexpected(too_many("elements", count, stream));
  }
  if (fixed_bytes != 0) {
    return stream.skip(count * fixed_bytes);
  }
  for (std::uint64_t i = 0; i < count; ++i) {
    TP_RETURN_IF_ERROR(skip_value(stream, type, depth));
  }
  return {};
}

Result<void> skip_value(GgufStream& stream, ValueType type, unsigned depth) {
  if (type == ValueType::kArray) {
    return skip_array(stream, depth + 1);
  }
  if (type == ValueType::kString) {
    TP_ASSIGN_OR_RETURN(const auto size_bytes, stream.take_number<std::uint64_t>());
    return stream.skip(size_bytes);
  }
  return stream.skip(kValueBytes[std::to_underlying(type)]);
}

template <class Signed, class Unsigned>
Result<std::string> take_as(GgufStream& stream) {
  TP_ASSIGN_OR_RETURN(const auto number, stream.take_number<Unsigned>());
  return fmt::format("{}", std::bit_cast<Signed>(number));
}

/// A scalar or a short string as text; nothing for all else, which is passed all the same.
Result<std::optional<std::string>> take_text(GgufStream& stream, ValueType type) {
  switch (type) {
    case ValueType::kUint8:
      return take_as<std::uint8_t, std::uint8_t>(stream);
    case ValueType::kInt8:
      return take_as<std::int8_t, std::uint8_t>(stream);
    case ValueType::kUint16:
      return take_as<std::uint16_t, std::uint16_t>(stream);
    case ValueType::kInt16:
      return take_as<std::int16_t, std::uint16_t>(stream);
    case ValueType::kUint32:
      return take_as<std::uint32_t, std::uint32_t>(stream);
    case ValueType::kInt32:
      return take_as<std::int32_t, std::uint32_t>(stream);
    case ValueType::kFloat32:
      return take_as<float, std::uint32_t>(stream);
    case ValueType::kUint64:
      return take_as<std::uint64_t, std::uint64_t>(stream);
    case ValueType::kInt64:
      return take_as<std::int64_t, std::uint64_t>(stream);
    case ValueType::kFloat64:
      return take_as<double, std::uint64_t>(stream);
    case ValueType::kBool: {
      TP_ASSIGN_OR_RETURN(const auto value, stream.take_number<std::uint8_t>());
      return value != 0 ? "true" : "false";
    }
    case ValueType::kString: {
      TP_ASSIGN_OR_RETURN(const auto size_bytes, stream.take_number<std::uint64_t>());
      if (size_bytes > kKeptStringBytesMax) {
        TP_RETURN_IF_ERROR(stream.skip(size_bytes));
        return std::nullopt;
      }
      TP_ASSIGN_OR_RETURN(const std::span<const std::byte> bytes, stream.take(size_bytes));
      const std::string_view text = as_text(bytes);
      return is_utf8(text) ? std::optional<std::string>(text) : std::nullopt;
    }
    case ValueType::kArray:
      break;
  }
  TP_RETURN_IF_ERROR(skip_array(stream, 1));
  return std::nullopt;
}

Result<std::uint64_t> take_alignment(GgufStream& stream, ValueType type) {
  if (type != ValueType::kUint32) {
    return std::unexpected(
        gguf_error(ErrorCode::kCorrupt,
                   fmt::format("the alignment is a value of type {}, not of type {} "
                               "(32 bits, unsigned)",
                               std::to_underlying(type), std::to_underlying(ValueType::kUint32))));
  }
  TP_ASSIGN_OR_RETURN(const auto alignment, stream.take_number<std::uint32_t>());
  if (!std::has_single_bit(alignment) || alignment % kAlignmentUnit != 0) {
    return std::unexpected(gguf_error(
        ErrorCode::kCorrupt, fmt::format("the alignment is {}, which is no power of two from {} on",
                                         alignment, kAlignmentUnit)));
  }
  return alignment;
}

Result<void> read_value(GgufStream& stream, const std::string& key, GgufValues& values) {
  TP_ASSIGN_OR_RETURN(const ValueType type, take_type(stream));
  if (key == kAlignmentKey) {
    TP_ASSIGN_OR_RETURN(values.alignment_bytes, take_alignment(stream, type));
    return {};
  }
  if (!is_kept(key)) {
    return skip_value(stream, type, 0);
  }
  TP_ASSIGN_OR_RETURN(std::optional<std::string> text, take_text(stream, type));
  if (text) {
    values.metadata.insert_or_assign(key, *std::move(text));
  }
  return {};
}

}  // namespace

Result<std::string> take_gguf_name(GgufStream& stream, std::string_view what) {
  TP_ASSIGN_OR_RETURN(const auto size_bytes, stream.take_number<std::uint64_t>());
  if (size_bytes > kGgufNameBytesMax) {
    return std::unexpected(gguf_error(
        ErrorCode::kCorrupt, fmt::format("a {} of {} bytes is longer than the format's limit of {}",
                                         what, size_bytes, kGgufNameBytesMax)));
  }
  TP_ASSIGN_OR_RETURN(const std::span<const std::byte> bytes, stream.take(size_bytes));
  std::string name(as_text(bytes));
  if (!is_utf8(name)) {
    return std::unexpected(gguf_error(
        ErrorCode::kCorrupt, fmt::format("the {} {} is no UTF-8", what, quote_name(name))));
  }
  return name;
}

Result<GgufValues> read_gguf_values(GgufStream& stream, std::uint64_t count) {
  if (count > stream.remaining_bytes() / kPairBytesMin) {
    return std::unexpected(too_many("keys with values", count, stream));
  }
  GgufValues values;
  std::vector<std::string> keys;
  for (std::uint64_t i = 0; i < count; ++i) {
    TP_ASSIGN_OR_RETURN(std::string key, take_gguf_name(stream, "key"));
    if (key.empty()) {
      return std::unexpected(
          gguf_error(ErrorCode::kCorrupt, fmt::format("key {} of {} is empty", i, count)));
    }
    if (Result<void> read = read_value(stream, key, values); !read) {
      return std::unexpected(
          std::move(read).error().with_context(fmt::format("key {}", quote_name(key))));
    }
    keys.push_back(std::move(key));
  }
  const auto key_at = [&keys](std::size_t i) { return std::string_view(keys[i]); };
  if (const auto twice = NameIndex(keys.size(), key_at).find_twice(key_at)) {
    return std::unexpected(gguf_error(
        ErrorCode::kCorrupt, fmt::format("key {} is there twice", quote_name(keys[twice->first]))));
  }
  return values;
}

}  // namespace trash_panda::format
