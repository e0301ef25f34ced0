#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trash_panda/base/aligned_buffer.h"
#include "trash_panda/base/error.h"
#include "trash_panda/format/name_index.h"

namespace trash_panda::format {

/// Longest index that is read, in bytes: more than twice the longest header, whose names it lists.
inline constexpr std::uint64_t kIndexBytesMax = 256'000'000;

/// Which files an index may name: those of its own format.
enum class IndexShards : std::uint8_t {
  kSafetensors,  ///< `*.safetensors.index.json`
  kTorch,        ///< `*.bin.index.json`
};

/// One line of a weight_map.
struct IndexEntry {
  std::string_view tensor;    ///< Valid as long as the IndexFile.
  std::uint32_t shard_index;  ///< Into IndexFile::shards.
};

/// What an `*.index.json` says. Names are not copied: it keeps the text that they are in.
class IndexFile {
 public:
  /// Parses an index. Shard names are checked to stay inside the folder.
  ///
  /// @param buffer      Is kept: entries point into it.
  /// @param text_bytes  Of the index; kJsonPaddingBytes more are there, whatever they hold.
  /// @retval kCorrupt      Reasons: index (no JSON, no weight_map, a value that is no string),
  ///                       index_duplicate, unsafe_path.
  /// @retval kUnsupported  A shard is of another format by its name (reason unsupported_format).
  static Result<IndexFile> parse(AlignedBuffer buffer, std::uint64_t text_bytes,
                                 IndexShards shards = IndexShards::kSafetensors);

  /// In the order of the file; no name is there twice.
  [[nodiscard]] const std::vector<IndexEntry>& entries() const { return entries_; }
  /// As spelled, sorted; each one is listed by some tensor.
  [[nodiscard]] const std::vector<std::string>& shards() const { return shards_; }
  /// metadata.total_size, where there is one.
  [[nodiscard]] std::optional<double> total_size() const { return total_size_; }
  /// A JSON object of all members but the weight_map, as they are written, without white space.
  [[nodiscard]] const std::string& other_members() const { return other_members_; }
  /// Index into entries(), or nothing.
  [[nodiscard]] std::optional<std::size_t> find(std::string_view tensor) const;
  /// What find() looks into, for who goes on with the same names; find() finds no more.
  [[nodiscard]] NameIndex take_names() { return std::move(names_); }

 private:
  AlignedBuffer text_;
  std::deque<std::string> unescaped_;  ///< Names that the text spells with escapes.
  std::vector<IndexEntry> entries_;
  std::vector<std::string> shards_;
  std::optional<double> total_size_;
  std::string other_members_;
  NameIndex names_;  ///< Of entries_.
};

/// Finds the entries of tensors that come shard by shard. Where those of a shard come in about the
/// order of the index, as nearly all writers have it, no more than the next entries are looked at.
class IndexCursor {
 public:
  /// @param index  Outlives this.
  explicit IndexCursor(const IndexFile& index);

  /// Index into entries(); nothing when the index does not list the tensor, or in another shard.
  std::optional<std::size_t> find(std::uint32_t shard_index, std::string_view tensor);

 private:
  const IndexFile& index_;
  std::vector<std::uint32_t> order_;  ///< Entries by shard, those of one in the index's order.
  std::vector<std::uint32_t> next_;   ///< By shard, into order_: the entry that is expected.
  std::vector<std::uint32_t> ends_;   ///< By shard, into order_.
};

}  // namespace trash_panda::format
