#include "pack_journal.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "trash_panda/base/file.h"
#include "trash_panda/base/units.h"
#include "trash_panda/format/checksum.h"

#include "manifest_extent.h"

namespace trash_panda::format {

namespace {

constexpr std::size_t kLineChecksumDigits = 32;
/// A journal is about as long as the manifest will be.
constexpr std::uint64_t kJournalBytesMax = kGiB;

std::string journal_line(std::string_view text) {
  return fmt::format("{} {}\n", checksum_hex(std::as_bytes(std::span(text))), text);
}

/// Takes the first line off `rest`. @return Its text, or nothing when it is not whole.
std::optional<std::string_view> take_line(std::string_view& rest) {
  const std::size_t end = rest.find('\n');
  if (end == std::string_view::npos || end <= kLineChecksumDigits ||
      rest[kLineChecksumDigits] != ' ') {
    return std::nullopt;
  }
  const std::string_view text = rest.substr(kLineChecksumDigits + 1, end - kLineChecksumDigits - 1);
  if (rest.substr(0, kLineChecksumDigits) != checksum_hex(std::as_bytes(std::span(text)))) {
    return std::nullopt;
  }
  rest.remove_prefix(end + 1);
  return text;
}

std::string read_journal_text(const std::filesystem::path& path) {
  const Result<File> file = File::open(path);
  if (!file || file->size_bytes() > kJournalBytesMax) {
    return {};
  }
  std::string text(file->size_bytes(), '\0');
  return file->read_exact_at(0, std::as_writable_bytes(std::span(text))) ? text : std::string();
}

}  // namespace

JournalContents read_journal(const std::filesystem::path& path) {
  const std::string text = read_journal_text(path);
  std::string_view rest = text;
  JournalContents contents;
  const std::optional<std::string_view> key = take_line(rest);
  if (!key) {
    return contents;
  }
  const std::optional<std::string_view> conversions = take_line(rest);
  if (!conversions) {
    return contents;
  }
  contents.key = *key;
  contents.conversions = *conversions;
  while (const std::optional<std::string_view> line = take_line(rest)) {
    Result<PackedExtent> extent = parse_extent_line(*line, "journal");
    if (!extent) {
      break;
    }
    contents.extents.push_back(*std::move(extent));
    contents.ends_bytes.push_back(text.size() - rest.size());
  }
  return contents;
}

Result<PackJournal> PackJournal::begin(FileSystem& file_system, const std::filesystem::path& path,
                                       std::string_view key, std::string_view conversions) {
  TP_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file,
                      file_system.open_file(path, 0, WriteMode::kBuffered));
  PackJournal journal(std::move(file), 0, /*has_extents=*/false);
  TP_RETURN_IF_ERROR(journal.append_lines(journal_line(key) + journal_line(conversions)));
  return journal;
}

Result<PackJournal> PackJournal::resume(FileSystem& file_system, const std::filesystem::path& path,
                                        std::uint64_t kept_bytes) {
  TP_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file,
                      file_system.open_file(path, kept_bytes, WriteMode::kBuffered));
  return PackJournal(std::move(file), kept_bytes, /*has_extents=*/true);
}

Result<void> PackJournal::append(const std::vector<const PackedExtent*>& extents) {
  std::string lines;
  for (const PackedExtent* extent : extents) {
    lines += journal_line(write_extent_line(*extent));
  }
  TP_RETURN_IF_ERROR(append_lines(lines));
  has_extents_ = has_extents_ || !extents.empty();
  return {};
}

Result<void> PackJournal::append_lines(std::string_view lines) {
  TP_RETURN_IF_ERROR(file_->write_at(size_bytes_, std::as_bytes(std::span(lines))));
  TP_RETURN_IF_ERROR(file_->sync());
  size_bytes_ += lines.size();
  return {};
}

Result<void> PackJournal::close() {
  return file_->close();
}

}  // namespace trash_panda::format
