#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <vector>

#include "trash_panda/base/error.h"
#include "trash_panda/base/file.h"
#include "trash_panda/format/name_index.h"
#include "trash_panda/format/tensor_record.h"
#include "trash_panda/format/text_arena.h"

namespace trash_panda::format {

/// Formats of files that are read.
enum class FileKind : std::uint8_t {
  kSafetensors,
  kTorch,
  kGguf,  ///< Its header only: the blocks of its tensors have no meaning here yet.
};

/// One file of a checkpoint.
struct CheckpointFile {
  std::string name;            ///< Relative to the checkpoint's folder, as the index spells it.
  std::filesystem::path path;  ///< Where it was opened.
  std::uint64_t size_bytes = 0;
  std::uint64_t data_offset_bytes = 0;          ///< Where the data section starts.
  std::map<std::string, std::string> metadata;  ///< `__metadata__` of this file; of a GGUF file
                                                ///< the values that describe the model.
  bool has_metadata = false;  ///< A safetensors file says `__metadata__`, were it of no entries.
  FileKind kind = FileKind::kSafetensors;
  struct stat opened = {};  ///< Of the file when it was opened, before its header was read.
};

/// The index that a checkpoint was opened by.
struct CheckpointIndex {
  std::string name;  ///< Of its file: "model.safetensors.index.json".
  /// A JSON object of all members but the weight_map, as they are written, without white space.
  std::string members;

  bool operator==(const CheckpointIndex&) const = default;
};

/// An opened checkpoint: one safetensors or torch file, or several by an index. All headers were
/// read and validated, nothing in them was executed; tensor data are read on demand, by explicit
/// positioned reads, never mapped.
///
/// Thread-safe once opened.
class Checkpoint {
 public:
  /// Opens a `.safetensors` file, a file that torch.save() wrote (`.pt`, `.pth`, `.bin`, `.ckpt`),
  /// a GGUF file with all its parts, an `*.index.json`, or a folder that holds one of them.
  ///
  /// The index's weight_map is the law per tensor: a listed tensor that its shard lacks and a
  /// missing shard are errors, tensors of the shards that the index does not list are left out
  /// with a note.
  ///
  /// @retval kMissing      There is no such path, or the folder holds no checkpoint.
  /// @retval kCorrupt      A file breaks the format; the message names file, tensor and sizes.
  /// @retval kUnsupported  Another format, or a pickle that would do more than make tensors; the
  ///                       hint says how to convert.
  static Result<Checkpoint> open(const std::filesystem::path& where);

  /// What the user named, absolute.
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] const std::vector<CheckpointFile>& files() const { return files_; }
  /// Nothing for a checkpoint that was opened without an index.
  [[nodiscard]] const std::optional<CheckpointIndex>& index() const { return index_; }
  /// Whether a file is GGUF: it can be looked at and planned for, but not packed.
  [[nodiscard]] bool is_gguf() const;
  /// In file order, then by offset; names are valid as long as the checkpoint. Tensors may share
  /// bytes: views of torch files, and names that
  /// `__metadata__` ties to a stored tensor. find_weights() says which of them are one weight.
  [[nodiscard]] const std::vector<TensorRecord>& tensors() const { return tensors_; }
  /// Index into tensors(), or nothing.
  [[nodiscard]] std::optional<std::size_t> find(std::string_view name) const;
  /// Bytes of all tensors, without headers; what several share counts for each.
  [[nodiscard]] std::uint64_t total_bytes() const;
  /// Text of a JSON file beside the checkpoint ("config.json", "hf_quant_config.json"), or of the
  /// parent folder for the latter; empty where there is none.
  [[nodiscard]] Result<std::string> side_file(std::string_view name) const;
  /// Hex xxh3-128 over every file's name, size and header: two checkpoints with equal
  /// fingerprints have the same layout. Data bytes are not read.
  [[nodiscard]] const std::string& fingerprint() const { return fingerprint_; }
  /// Remarks for the user, one line each, such as tensors that the index does not list.
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }

  /// Reads a tensor's bytes. @param target  Exactly `size_bytes` of the tensor.
  Result<void> read_tensor(std::size_t tensor_index, std::span<std::byte> target) const;
  /// Reads a part of a tensor, from `offset_bytes` within the tensor.
  Result<void> read_tensor_part(std::size_t tensor_index, std::uint64_t offset_bytes,
                                std::span<std::byte> target) const;

 private:
  friend class CheckpointBuilder;

  std::filesystem::path path_;
  std::vector<CheckpointFile> files_;
  std::optional<CheckpointIndex> index_;
  std::vector<File> open_files_;  ///< Same indexes as files_.
  std::vector<TensorRecord> tensors_;
  TextArena names_;          ///< Of tensors_.
  NameIndex index_by_name_;  ///< Of tensors_.
  std::string fingerprint_;
  std::vector<std::string> notes_;
};

/// Environment that a Hugging Face cache lookup depends on; filled by the application.
struct HubCacheEnvironment {
  std::string hub_cache;  ///< HF_HUB_CACHE, empty when unset.
  std::string hf_home;    ///< HF_HOME, empty when unset.
  std::string home;       ///< HOME.
};

/// Turns a MODEL argument into a path: an existing path as it is, else `org/name[@rev][:subfolder]`
/// looked up offline in the Hugging Face cache. Nothing is ever downloaded.
///
/// @retval kMissing  Neither exists; the hint gives the `hf download` line when it looks like a
///                   repository name.
Result<std::filesystem::path> resolve_model(std::string_view argument,
                                            const HubCacheEnvironment& environment);

}  // namespace trash_panda::format
