#include "trash_panda/format/checkpoint.h"

#include <algorithm>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "checkpoint_builder.h"
#include "checkpoint_folder.h"
#include "gguf_file.h"
#include "header_layout.h"
#include "strided_read.h"

namespace trash_panda::format {

namespace {

namespace fs = std::filesystem;

/// Longest side file that is read, in bytes: real ones have a few kB, tokenizers some MB.
constexpr std::uint64_t kSideFileBytesMax = 64'000'000;

}  // namespace

Result<Checkpoint> Checkpoint::open(const fs::path& where) {
  std::error_code error;
  const fs::path path = fs::absolute(where, error).lexically_normal();
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) {
    return std::unexpected(
        Error(ErrorCode::kMissing, fmt::format("{} does not exist", printable(where)))
            .with_hint("name a .safetensors file, an index or the folder that holds one"));
  }
  CheckpointBuilder builder(path);
  if (fs::is_directory(status)) {
    TP_ASSIGN_OR_RETURN(const FolderChoice choice, choose_in_folder(path));
    for (const std::string& note : choice.notes) {
      builder.add_note(note);
    }
    if (!choice.index.empty()) {
      TP_RETURN_IF_ERROR(builder.add_index(choice.index));
    }
    for (const fs::path& file : choice.files) {
      TP_RETURN_IF_ERROR(builder.add_file(file, file.filename().string()));
    }
    for (const std::string& other : choice.others) {
      if (!builder.has_file(other)) {
        builder.add_note(fmt::format("{} is another checkpoint in the folder and is not used",
                                     printable(std::string_view(other))));
      }
    }
  } else if (path.extension() == ".json") {
    TP_RETURN_IF_ERROR(builder.add_index(path));
  } else {
    TP_ASSIGN_OR_RETURN(const std::vector<fs::path> parts, list_gguf_parts(path));
    for (const fs::path& part : parts) {
      TP_RETURN_IF_ERROR(builder.add_file(part, part.filename().string()));
    }
  }
  return builder.finish();
}

bool Checkpoint::is_gguf() const {
  return std::ranges::any_of(
      files_, [](const CheckpointFile& file) { return file.kind == FileKind::kGguf; });
}

std::optional<std::size_t> Checkpoint::find(std::string_view name) const {
  return index_by_name_.find(name, [this](std::size_t i) { return tensors_[i].name; });
}

std::uint64_t Checkpoint::total_bytes() const {
  std::uint64_t total_bytes = 0;
  for (const TensorRecord& tensor : tensors_) {
    total_bytes += tensor.size_bytes;
  }
  return total_bytes;
}

Result<std::string> Checkpoint::side_file(std::string_view name) const {
  std::error_code ignored;
  const fs::path folder = fs::is_directory(path_, ignored) ? path_ : path_.parent_path();
  std::vector<fs::path> places = {folder / name};
  if (name == "hf_quant_config.json") {
    places.push_back(folder.parent_path() / name);
  }
  for (const fs::path& place : places) {
    if (!fs::exists(place, ignored)) {
      continue;
    }
    TP_ASSIGN_OR_RETURN(const File file, File::open(place));
    if (file.size_bytes() > kSideFileBytesMax) {
      return std::unexpected(
          Error(ErrorCode::kUnsupported,
                fmt::format("{} has {} bytes, more than the limit of {}", printable(place),
                            file.size_bytes(), kSideFileBytesMax)));
    }
    std::string text(file.size_bytes(), '\0');
    TP_RETURN_IF_ERROR(file.read_exact_at(0, std::as_writable_bytes(std::span(text))));
    return text;
  }
  return std::string();
}

Result<void> Checkpoint::read_tensor(std::size_t tensor_index, std::span<std::byte> target) const {
  TP_ASSERT(tensor_index < tensors_.size());
  TP_ASSERT(target.size() == tensors_[tensor_index].size_bytes);
  return read_tensor_part(tensor_index, 0, target);
}

Result<void> Checkpoint::read_tensor_part(std::size_t tensor_index, std::uint64_t offset_bytes,
                                          std::span<std::byte> target) const {
  TP_ASSERT(tensor_index < tensors_.size());
  const TensorRecord& tensor = tensors_[tensor_index];
  TP_ASSERT(offset_bytes <= tensor.size_bytes);
  TP_ASSERT(target.size() <= tensor.size_bytes - offset_bytes);
  const File& file = open_files_[tensor.file_index];
  Result<void> read = tensor.strides.empty()
                          ? file.read_exact_at(tensor.offset_bytes + offset_bytes, target)
                          : read_strided(file, tensor, offset_bytes, target);
  if (!read) {
    return std::unexpected(
        std::move(read).error().with_context(fmt::format("tensor {}", quote_name(tensor.name))));
  }
  return {};
}

}  // namespace trash_panda::format
