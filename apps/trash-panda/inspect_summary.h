#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "trash_panda/format/dtype.h"
#include "trash_panda/format/manifest.h"
#include "trash_panda/format/tensor_record.h"

#include "model_input.h"

namespace trash_panda::cli {

struct InspectedTensor {
  std::string name;
  format::Dtype dtype;
  format::Shape shape;
  std::uint64_t size_bytes = 0;
  std::uint64_t offset_bytes = 0;  ///< From the start of its file.
  std::size_t file_index = 0;      ///< Into InspectSummary::files.
};

struct InspectedFile {
  std::string name;
  std::filesystem::path path;
  std::uint64_t size_bytes = 0;
  std::uint64_t header_bytes = 0;  ///< Where the data begin.
};

struct InspectedGroup {
  std::string prefix;
  std::uint64_t count = 0;
  std::uint64_t bytes_min = 0;
  std::uint64_t bytes_max = 0;
  std::uint64_t bytes_total = 0;

  void add_block(std::uint64_t block_bytes);
};

/// What `inspect` tells, whatever kind of thing it looked at.
struct InspectSummary {
  std::filesystem::path path;
  std::string fingerprint;  ///< Of the checkpoint, or of a pack's source.
  std::string kind;         ///< "checkpoint" or "pack".
  std::string architecture;
  std::vector<std::string> formats;
  std::vector<std::string> warnings;
  std::vector<InspectedFile> files;
  std::vector<InspectedTensor> tensors;  ///< All, in the order of the files.
  std::vector<InspectedGroup> groups;
  std::uint64_t outside_count = 0;
  std::uint64_t outside_bytes = 0;

  [[nodiscard]] std::uint64_t total_bytes() const;
};

[[nodiscard]] InspectSummary summarize_checkpoint(const LoadedModel& model);

/// @param path  The pack's folder.
[[nodiscard]] InspectSummary summarize_pack(const std::filesystem::path& path,
                                            const format::Manifest& manifest);

/// The model's class, as its config.json says; empty where it says nothing.
[[nodiscard]] std::string architecture_of(const format::Checkpoint& checkpoint);

}  // namespace trash_panda::cli
