#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "trash_panda/base/error.h"
#include "trash_panda/format/checkpoint.h"
#include "trash_panda/format/checksum.h"

#include "file_contents.h"
#include "index_file.h"
#include "json_walk.h"

namespace trash_panda::format {

/// Opens a checkpoint's files one after another and puts their headers together.
class CheckpointBuilder {
 public:
  explicit CheckpointBuilder(std::filesystem::path path);

  /// Opens one file and takes all its tensors.
  Result<void> add_file(const std::filesystem::path& path, std::string_view name);
  /// Opens the shards of an index and takes the tensors that it lists, each from its shard.
  Result<void> add_index(const std::filesystem::path& index_path);
  /// Whether a file was added under this name.
  [[nodiscard]] bool has_file(std::string_view name) const;
  void add_note(std::string note) { checkpoint_.notes_.push_back(std::move(note)); }
  /// @retval kCorrupt  A tensor is in two files (reason duplicate_across_shards), or tied to one
  ///                   that is not there (reason missing_tensor).
  Result<Checkpoint> finish();

 private:
  Result<FileContents> read_contents(const File& file, std::string_view name);
  Result<FileContents> read_safetensors(const File& file, std::uint64_t head_bytes);
  Result<void> check_shards_exist(const std::filesystem::path& folder, const IndexFile& index);
  Result<void> keep_listed(IndexFile& index);
  void compare_total(const IndexFile& index);
  void index_names();
  Result<void> check_names_differ();
  Result<void> add_tied_names();

  Checkpoint checkpoint_;
  JsonParser parser_;
  std::vector<std::byte> buffer_;  ///< First bytes of a file: its head; of safetensors
                                   ///< the length, header, padding.
  Checksum fingerprint_;
  bool has_unique_names_ = false;  ///< Names are indexed already, and none is there twice.
};

}  // namespace trash_panda::format
