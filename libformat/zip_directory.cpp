#include "zip_directory.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "trash_panda/format/safetensors_header.h"

#include "header_layout.h"

namespace trash_panda::format {

namespace {

// Signatures and sizes of records, without what varies. @see APPNOTE 4.3.7, 4.3.12, 4.3.14 to 16
constexpr std::uint32_t kLocalSignature = 0x04034b50;
constexpr std::uint64_t kLocalBytes = 30;
constexpr std::uint32_t kCentralSignature = 0x02014b50;
constexpr std::uint64_t kCentralBytes = 46;
constexpr std::uint32_t kEndSignature = 0x06054b50;
constexpr std::uint64_t kEndBytes = 22;
constexpr std::uint32_t kEnd64Signature = 0x06064b50;
constexpr std::uint64_t kEnd64Bytes = 56;
constexpr std::uint32_t kLocatorSignature = 0x07064b50;
constexpr std::uint64_t kLocatorBytes = 20;

constexpr std::uint64_t kCommentBytesMax = 65'535;
constexpr std::uint16_t kZip64Extra = 1;
constexpr std::uint32_t kIn64Bits = 0xffff'ffff;  ///< "See the zip64 field".
constexpr std::uint16_t kEncryptedFlag = 1;

Error broken_zip(std::string message) {
  return Error(ErrorCode::kCorrupt, std::move(message))
      .with_reason("zip")
      .with_hint("the file is damaged: download it again");
}

/// Little-endian fields of a record, which is long enough for all that are asked for.
class Record {
 public:
  explicit Record(std::span<const std::byte> bytes) : bytes_(bytes) {}

  [[nodiscard]] std::uint16_t u16(std::size_t at) const {
    return static_cast<std::uint16_t>(number(at, 2));
  }
  [[nodiscard]] std::uint32_t u32(std::size_t at) const {
    return static_cast<std::uint32_t>(number(at, 4));
  }
  [[nodiscard]] std::uint64_t u64(std::size_t at) const { return number(at, 8); }

 private:
  [[nodiscard]] std::uint64_t number(std::size_t at, std::size_t width) const {
    TP_ASSERT(at + width <= bytes_.size());
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < width; ++i) {
      value |= std::to_integer<std::uint64_t>(bytes_[at + i]) << (8 * i);
    }
    return value;
  }

  std::span<const std::byte> bytes_;
};

Result<std::vector<std::byte>> read_bytes(const ByteSource& source, std::uint64_t offset_bytes,
                                          std::uint64_t size_bytes) {
  std::vector<std::byte> bytes(size_bytes);
  TP_RETURN_IF_ERROR(source.read(offset_bytes, bytes));
  return bytes;
}

/// Where the central directory is.
struct DirectoryPlace {
  std::uint64_t offset_bytes;
  std::uint64_t size_bytes;
  std::uint64_t entry_count;
  std::uint64_t end_record_bytes;  ///< Offset of the record that says so.
};

/// Offset of the end record within the last bytes of an archive; its comment reaches to the end.
std::optional<std::size_t> find_end_record(std::span<const std::byte> tail) {
  for (std::size_t at = tail.size() - kEndBytes + 1; at-- > 0;) {
    const Record record(tail.subspan(at));
    if (record.u32(0) == kEndSignature && record.u16(20) == tail.size() - at - kEndBytes) {
      return at;
    }
  }
  return std::nullopt;
}

/// The 64-bit end record, where a locator before the plain one leads to it.
Result<std::optional<DirectoryPlace>> find_place64(const ByteSource& source,
                                                   std::uint64_t end_offset_bytes) {
  if (end_offset_bytes < kLocatorBytes + kEnd64Bytes) {
    return std::nullopt;
  }
  TP_ASSIGN_OR_RETURN(const auto locator_bytes,
                      read_bytes(source, end_offset_bytes - kLocatorBytes, kLocatorBytes));
  const Record locator(locator_bytes);
  if (locator.u32(0) != kLocatorSignature) {
    return std::nullopt;
  }
  const std::uint64_t offset_bytes = locator.u64(8);
  if (offset_bytes > end_offset_bytes - kLocatorBytes - kEnd64Bytes) {
    return std::unexpected(broken_zip(fmt::format(
        "the zip archive's 64-bit end record at {} is outside the archive", offset_bytes)));
  }
  TP_ASSIGN_OR_RETURN(const auto end_bytes, read_bytes(source, offset_bytes, kEnd64Bytes));
  const Record end(end_bytes);
  if (end.u32(0) != kEnd64Signature || end.u32(16) != 0 || end.u32(20) != 0 ||
      end.u64(24) != end.u64(32)) {
    return std::unexpected(
        broken_zip("the zip archive's 64-bit end record is none, or of several volumes"));
  }
  return DirectoryPlace{.offset_bytes = end.u64(48),
                        .size_bytes = end.u64(40),
                        .entry_count = end.u64(32),
                        .end_record_bytes = offset_bytes};
}

Result<DirectoryPlace> find_place(const ByteSource& source) {
  const std::uint64_t tail_bytes = std::min(source.size_bytes, kEndBytes + kCommentBytesMax);
  TP_ASSIGN_OR_RETURN(const auto tail,
                      read_bytes(source, source.size_bytes - tail_bytes, tail_bytes));
  const auto at = tail.size() < kEndBytes ? std::nullopt : find_end_record(tail);
  if (!at) {
    return std::unexpected(
        Error(ErrorCode::kCorrupt,
              fmt::format("the zip archive of {} bytes has no directory at its end",
                          source.size_bytes))
            .with_reason("truncated")
            .with_hint("the file is incomplete: download it again"));
  }
  const std::uint64_t end_offset_bytes = source.size_bytes - tail_bytes + *at;
  TP_ASSIGN_OR_RETURN(const auto place64, find_place64(source, end_offset_bytes));
  if (place64) {
    return *place64;
  }
  const Record end{std::span(tail).subspan(*at)};
  if (end.u16(4) != 0 || end.u16(6) != 0 || end.u16(8) != end.u16(10)) {
    return std::unexpected(broken_zip("the zip archive is one of several volumes"));
  }
  return DirectoryPlace{.offset_bytes = end.u32(16),
                        .size_bytes = end.u32(12),
                        .entry_count = end.u16(10),
                        .end_record_bytes = end_offset_bytes};
}

/// An entry as the central directory has it, before its own header was looked at.
struct CentralEntry {
  ZipEntry entry;
  std::uint64_t header_offset_bytes;
  std::uint64_t raw_bytes;
};

/// Replaces 32-bit fields by those of the zip64 extra field, which has only the ones that need it.
Result<void> widen(CentralEntry& entry, std::span<const std::byte> extra) {
  while (extra.size() >= 4) {
    const Record head(extra);
    const std::size_t size = head.u16(2);
    if (size > extra.size() - 4) {
      break;
    }
    std::span<const std::byte> field = extra.subspan(4, size);
    extra = extra.subspan(4 + size);
    if (head.u16(0) != kZip64Extra) {
      continue;
    }
    for (std::uint64_t* value :
         {&entry.raw_bytes, &entry.entry.size_bytes, &entry.header_offset_bytes}) {
      if (*value != kIn64Bits) {
        continue;
      }
      if (field.size() < 8) {
        return std::unexpected(broken_zip(fmt::format(
            "entry {} of the zip archive lacks its 64-bit sizes", quote_name(entry.entry.name))));
      }
      *value = Record(field).u64(0);
      field = field.subspan(8);
    }
    return {};
  }
  return {};
}

Result<std::vector<CentralEntry>> parse_central(std::span<const std::byte> bytes,
                                                std::uint64_t entry_count) {
  std::vector<CentralEntry> entries;
  while (bytes.size() >= kCentralBytes) {
    const Record record(bytes);
    const std::size_t name_bytes = record.u16(28);
    const std::size_t extra_bytes = record.u16(30);
    const std::size_t record_bytes = kCentralBytes + name_bytes + extra_bytes + record.u16(32);
    if (record.u32(0) != kCentralSignature || record_bytes > bytes.size()) {
      return std::unexpected(broken_zip(
          fmt::format("the zip archive's directory is damaged after {} entries", entries.size())));
    }
    const auto* name = reinterpret_cast<const char*>(bytes.data()) + kCentralBytes;
    CentralEntry entry{
        .entry = {.name = std::string(name, name_bytes),
                  .data_offset_bytes = 0,
                  .size_bytes = record.u32(20),
                  .is_stored = record.u16(10) == 0 && (record.u16(8) & kEncryptedFlag) == 0},
        .header_offset_bytes = record.u32(42),
        .raw_bytes = record.u32(24)};
    TP_RETURN_IF_ERROR(widen(entry, bytes.subspan(kCentralBytes + name_bytes, extra_bytes)));
    if (entry.entry.is_stored && entry.raw_bytes != entry.entry.size_bytes) {
      return std::unexpected(broken_zip(
          fmt::format("entry {} of the zip archive is stored as it is, but in {} bytes "
                      "instead of {}",
                      quote_name(entry.entry.name), entry.entry.size_bytes, entry.raw_bytes)));
    }
    entries.push_back(std::move(entry));
    bytes = bytes.subspan(record_bytes);
  }
  if (!bytes.empty() || entries.size() != entry_count) {
    return std::unexpected(
        broken_zip(fmt::format("the zip archive's directory has {} entries and {} bytes more, but "
                               "says that it has {}",
                               entries.size(), bytes.size(), entry_count)));
  }
  return entries;
}

/// Finds where an entry's data are: behind its own header, which has fields of its own length.
///
/// @param limit_bytes  Where the directory begins: entries end before.
Result<void> locate(const ByteSource& source, CentralEntry& entry, std::uint64_t limit_bytes) {
  const std::string& name = entry.entry.name;
  const auto outside = [&] {
    return std::unexpected(broken_zip(fmt::format(
        "entry {} of the zip archive, {} bytes from {} on, reaches past {}, where the "
        "directory begins",
        quote_name(name), entry.entry.size_bytes, entry.header_offset_bytes, limit_bytes)));
  };
  const std::uint64_t named_bytes = kLocalBytes + name.size();
  if (limit_bytes < named_bytes || entry.header_offset_bytes > limit_bytes - named_bytes) {
    return outside();
  }
  std::array<std::byte, kLocalBytes + 65'535> buffer;
  const std::span<std::byte> bytes = std::span(buffer).first(named_bytes);
  TP_RETURN_IF_ERROR(source.read(entry.header_offset_bytes, bytes));
  const Record header(bytes);
  if (header.u32(0) != kLocalSignature || header.u16(26) != name.size() ||
      std::memcmp(bytes.data() + kLocalBytes, name.data(), name.size()) != 0) {
    return std::unexpected(
        broken_zip(fmt::format("entry {} of the zip archive is not at {}, where the directory says",
                               quote_name(name), entry.header_offset_bytes)));
  }
  const std::uint64_t left_bytes = limit_bytes - entry.header_offset_bytes - named_bytes;
  const std::uint64_t extra_bytes = header.u16(28);
  if (extra_bytes > left_bytes || entry.entry.size_bytes > left_bytes - extra_bytes) {
    return outside();
  }
  entry.entry.data_offset_bytes = entry.header_offset_bytes + named_bytes + extra_bytes;
  return {};
}

Result<void> check_overlap(std::vector<CentralEntry>& entries) {
  std::ranges::sort(entries, {}, &CentralEntry::header_offset_bytes);
  for (std::size_t i = 1; i < entries.size(); ++i) {
    const ZipEntry& before = entries[i - 1].entry;
    if (before.data_offset_bytes + before.size_bytes > entries[i].header_offset_bytes) {
      return std::unexpected(
          broken_zip(fmt::format("entries {} and {} of the zip archive overlap",
                                 quote_name(before.name), quote_name(entries[i].entry.name))));
    }
  }
  return {};
}

}  // namespace

ByteSource memory_source(std::span<const std::byte> bytes) {
  return {.size_bytes = bytes.size(),
          .read = [bytes](std::uint64_t offset_bytes, std::span<std::byte> target) -> Result<void> {
            TP_ASSERT(offset_bytes <= bytes.size() && target.size() <= bytes.size() - offset_bytes);
            std::ranges::copy(bytes.subspan(offset_bytes, target.size()), target.begin());
            return {};
          }};
}

Result<ZipDirectory> ZipDirectory::read(const ByteSource& source) {
  TP_ASSIGN_OR_RETURN(const DirectoryPlace place, find_place(source));
  if (place.offset_bytes > place.end_record_bytes ||
      place.size_bytes > place.end_record_bytes - place.offset_bytes) {
    return std::unexpected(broken_zip(
        fmt::format("the zip archive's directory of {} bytes at {} does not fit before its end "
                    "record at {}",
                    place.size_bytes, place.offset_bytes, place.end_record_bytes)));
  }
  if (place.size_bytes > kHeaderBytesMax) {
    return std::unexpected(
        Error(ErrorCode::kUnsupported,
              fmt::format("the zip archive's directory of {} bytes is longer than the limit of {}",
                          place.size_bytes, kHeaderBytesMax))
            .with_reason("zip"));
  }
  TP_ASSIGN_OR_RETURN(const auto central, read_bytes(source, place.offset_bytes, place.size_bytes));
  TP_ASSIGN_OR_RETURN(std::vector<CentralEntry> entries, parse_central(central, place.entry_count));
  for (CentralEntry& entry : entries) {
    TP_RETURN_IF_ERROR(locate(source, entry, place.offset_bytes));
  }
  TP_RETURN_IF_ERROR(check_overlap(entries));
  ZipDirectory directory;
  directory.entries_.reserve(entries.size());
  for (CentralEntry& entry : entries) {
    directory.entries_.push_back(std::move(entry.entry));
  }
  std::ranges::sort(directory.entries_, {}, &ZipEntry::name);
  const auto twice = std::ranges::adjacent_find(directory.entries_, {}, &ZipEntry::name);
  if (twice != directory.entries_.end()) {
    return std::unexpected(broken_zip(
        fmt::format("the zip archive has two entries named {}", quote_name(twice->name))));
  }
  return directory;
}

const ZipEntry* ZipDirectory::find(std::string_view name) const {
  const auto found = std::ranges::lower_bound(
      entries_, name, {}, [](const ZipEntry& entry) { return std::string_view(entry.name); });
  return found != entries_.end() && found->name == name ? &*found : nullptr;
}

}  // namespace trash_panda::format
