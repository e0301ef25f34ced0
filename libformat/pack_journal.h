#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "trash_panda/base/error.h"
#include "trash_panda/base/file_system.h"
#include "trash_panda/format/manifest.h"

namespace trash_panda::format {

/// What a journal says.
struct JournalContents {
  std::string key;                        ///< Of what is being written; empty: nothing was begun.
  std::string conversions;                ///< As PackJournal::begin() was given them.
  std::vector<PackedExtent> extents;      ///< Finished and durable, in the order of writing.
  std::vector<std::uint64_t> ends_bytes;  ///< Where the line of each ends in the journal.
};

/// Reads a journal up to its first line that is not whole: a crash may have torn the last one.
///
/// A missing file and one that can't be read are empty journals.
[[nodiscard]] JournalContents read_journal(const std::filesystem::path& path);

/// The list of a pack's finished extents, so that an interrupted run can be taken on with. One line
/// each, which begins with its own checksum; the first line is the key, the second one says which
/// weights are converted.
///
/// A line is written once the extent is durable, and is durable itself when append() returns.
class PackJournal {
 public:
  /// Begins a journal of nothing.
  /// @param key          Tells one pack from another: what the bytes of its extents depend on.
  /// @param conversions  A line of text. @see conversion_line.h
  static Result<PackJournal> begin(FileSystem& file_system, const std::filesystem::path& path,
                                   std::string_view key, std::string_view conversions);
  /// Goes on with a journal, behind its first `kept_bytes`.
  static Result<PackJournal> resume(FileSystem& file_system, const std::filesystem::path& path,
                                    std::uint64_t kept_bytes);

  Result<void> append(const std::vector<const PackedExtent*>& extents);
  [[nodiscard]] bool has_extents() const { return has_extents_; }
  Result<void> close();

 private:
  PackJournal(std::unique_ptr<WritableFile> file, std::uint64_t size_bytes, bool has_extents)
      : file_(std::move(file)), size_bytes_(size_bytes), has_extents_(has_extents) {}

  Result<void> append_lines(std::string_view lines);

  std::unique_ptr<WritableFile> file_;
  std::uint64_t size_bytes_;
  bool has_extents_;
};

}  // namespace trash_panda::format
