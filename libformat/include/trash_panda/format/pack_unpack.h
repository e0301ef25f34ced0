#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "trash_panda/base/error.h"
#include "trash_panda/base/file_system.h"
#include "trash_panda/base/log.h"
#include "trash_panda/base/progress.h"
#include "trash_panda/format/checkpoint.h"
#include "trash_panda/format/manifest.h"

namespace trash_panda::format {

/// A tensor of a checkpoint that is made from a pack.
struct UnpackedTensor {
  std::string name;
  Dtype dtype;
  Shape shape;
  std::uint64_t size_bytes;
  std::size_t extent_index;  ///< Where it is in the pack.
  std::size_t tensor_index;
  /// F32 in the pack, widened from `dtype`: a scale.
  bool is_widened = false;
  /// BF16 in the pack, narrowed from F32.
  bool is_narrowed = false;
};

/// A file of a checkpoint that is made from a pack.
struct UnpackedFile {
  std::string name;  ///< "model.safetensors", "model-00001-of-00003.safetensors".
  std::optional<std::map<std::string, std::string>> metadata;  ///< Nothing: no `__metadata__`.
  std::vector<UnpackedTensor> tensors;                         ///< In the order of the file.
  std::uint64_t size_bytes = 0;                                ///< Header included.
};

/// What unpack_pack() makes.
struct UnpackLayout {
  std::vector<UnpackedFile> files;
  /// The index to write; nothing: none.
  std::optional<CheckpointIndex> index;
  /// Tensors that have other bytes than in the source: scales in another form, rounded weights.
  std::vector<std::string> normalized;
};

/// Decides which files a pack's checkpoint has: those that the source had, with its names, metadata
/// and index, or, with a limit, files that are filled one after the other. Tensors lie in the order
/// in which the safetensors library writes them. Several files have an index, whatever the source
/// had; its total_size is that of the source where all bytes are.
///
/// @param file_bytes_max  Of the tensors of a file; a larger tensor gets a file of its own.
[[nodiscard]] UnpackLayout lay_out_unpacked(const Manifest& manifest,
                                            std::optional<std::uint64_t> file_bytes_max);

struct UnpackOptions {
  std::optional<std::uint64_t> file_bytes_max;
  std::uint64_t reserve_bytes = 1'000'000'000;  ///< Space to leave free on the target drive.
  ProgressCallback progress;                    ///< May be empty.
  StopFlag stop = nullptr;
  Logger log = silent_logger();
};

/// Makes a standard checkpoint of a pack: the folder `target`, with the files and the index that
/// lay_out_unpacked() says. Every tensor has the bytes that the source had, save those that
/// UnpackLayout::normalized lists.
///
/// Works in `<target>.partial`, which is renamed at the end, and removed on failure.
///
/// @retval kOutput       `target` exists, can't be written, or there is not enough space.
/// @retval kCorrupt      The pack is damaged in what has to be understood. Checksums are not looked
///                       at: verify_pack() does.
/// @retval kStale        The pack was replaced meanwhile.
/// @retval kInterrupted  `options.stop` was set.
Result<UnpackLayout> unpack_pack(FileSystem& file_system, const std::filesystem::path& pack,
                                 const std::filesystem::path& target, const UnpackOptions& options);

}  // namespace trash_panda::format
