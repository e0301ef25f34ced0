#include "gguf_file.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trash_panda/base/printable.h"

#include "gguf_header.h"

namespace trash_panda::format {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kGgufEnding = ".gguf";

/// Digits of each number in the name of a part: writers and readers print five.
/// @see gguf.md, "GGUF Naming Convention", Shard
constexpr std::size_t kPartDigits = 5;

/// Most missing parts that a message names.
constexpr std::size_t kNamedPartsMax = 10;

/// `model-00002-of-00003.gguf`, taken apart.
struct PartName {
  std::string prefix;  ///< "model".
  std::uint64_t part;  ///< From 1 on.
  std::uint64_t count;

  [[nodiscard]] std::string name_of(std::uint64_t number) const {
    return fmt::format("{}-{:0{}}-of-{:0{}}{}", prefix, number, kPartDigits, count, kPartDigits,
                       kGgufEnding);
  }
};

std::optional<std::uint64_t> whole_number(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number)
                                                                  : std::nullopt;
}

std::optional<PartName> parse_part_name(std::string_view name) {
  constexpr std::string_view kOf = "-of-";
  constexpr std::size_t kTailBytes = 1 + kPartDigits + kOf.size() + kPartDigits;
  if (!name.ends_with(kGgufEnding) || name.size() <= kTailBytes + kGgufEnding.size()) {
    return std::nullopt;
  }
  name.remove_suffix(kGgufEnding.size());
  const std::string_view tail = name.substr(name.size() - kTailBytes);
  const auto part = whole_number(tail.substr(1, kPartDigits));
  const auto count = whole_number(tail.substr(kTailBytes - kPartDigits));
  const bool is_part = tail.starts_with('-') && tail.substr(1 + kPartDigits).starts_with(kOf) &&
                       part && count && *part >= 1 && *part <= *count;
  if (!is_part) {
    return std::nullopt;
  }
  return PartName{.prefix = std::string(name.substr(0, name.size() - kTailBytes)),
                  .part = *part,
                  .count = *count};
}

/// A number among a file's values; nothing where it says none.
std::optional<std::uint64_t> number_of(const CheckpointFile& file, const char* key) {
  const auto found = file.metadata.find(key);
  return found == file.metadata.end() ? std::nullopt : whole_number(found->second);
}

Error wrong_parts(std::string message) {
  return gguf_error(ErrorCode::kCorrupt, std::move(message))
      .with_hint("keep the parts of one model together, under the names that they were given");
}

}  // namespace

Result<FileContents> read_gguf_file(const File& file, Checksum& fingerprint) {
  const ReadAt read_at = [&file](std::uint64_t offset_bytes, std::span<std::byte> target) {
    return file.read_exact_at(offset_bytes, target);
  };
  TP_ASSIGN_OR_RETURN(GgufHeader header, read_gguf_header(read_at, file.size_bytes(), fingerprint));
  return FileContents{.tensors = std::move(header.tensors),
                      .names = std::move(header.names),
                      .metadata = std::move(header.metadata),
                      .data_offset_bytes = header.data_offset_bytes,
                      .notes = {}};
}

Result<std::vector<fs::path>> list_gguf_parts(const fs::path& path) {
  const std::optional<PartName> named = parse_part_name(path.filename().string());
  if (!named) {
    return std::vector{path};
  }
  std::vector<fs::path> parts;
  std::vector<std::string> missing;
  for (std::uint64_t number = 1; number <= named->count; ++number) {
    const std::string name = named->name_of(number);
    parts.push_back(path.parent_path() / name);
    std::error_code ignored;
    if (!fs::exists(parts.back(), ignored)) {
      missing.push_back(printable(name));
    }
  }
  if (missing.empty()) {
    return parts;
  }
  const std::size_t count = missing.size();
  missing.resize(std::min(count, kNamedPartsMax));
  return std::unexpected(
      Error(ErrorCode::kMissing,
            fmt::format("{}: {} of {} parts of the GGUF model are missing: {}{}", printable(path),
                        count, named->count, fmt::join(missing, ", "),
                        count > kNamedPartsMax ? ", …" : ""))
          .with_reason("missing_shard")
          .with_hint("download the missing files"));
}

Result<void> check_gguf_parts(std::span<const CheckpointFile> files, std::size_t tensor_count) {
  for (std::size_t index = 0; index < files.size(); ++index) {
    const CheckpointFile& file = files[index];
    const std::uint64_t count = number_of(file, "split.count").value_or(files.size());
    // Written as 0 or 1 by some for models in one piece.
    if (std::max<std::uint64_t>(count, 1) != files.size()) {
      return std::unexpected(wrong_parts(
          fmt::format("{} is a part of a GGUF model of {} parts, by its split.count; of its name "
                      "there are {}",
                      printable(file.path), count, files.size())));
    }
    const std::uint64_t number = number_of(file, "split.no").value_or(index);
    if (number != index) {
      return std::unexpected(
          wrong_parts(fmt::format("{} is part {} of its GGUF model by its split.no, part {} by its "
                                  "name",
                                  printable(file.path), number + 1, index + 1)));
    }
    const std::uint64_t tensors = number_of(file, "split.tensors.count").value_or(tensor_count);
    if (tensors != tensor_count) {
      return std::unexpected(wrong_parts(
          fmt::format("{} is a part of a GGUF model of {} tensors, but its parts have {}",
                      printable(file.path), tensors, tensor_count)));
    }
  }
  return {};
}

}  // namespace trash_panda::format
