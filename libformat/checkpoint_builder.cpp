#include "checkpoint_builder.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <iterator>
#include <limits>
#include <optional>
#include <span>
#include <sys/stat.h>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "trash_panda/base/aligned_buffer.h"
#include "trash_panda/base/file.h"
#include "trash_panda/base/units.h"
#include "trash_panda/format/safetensors_header.h"

#include "file_format.h"
#include "file_sniff.h"
#include "gguf_file.h"
#include "header_layout.h"
#include "header_parser.h"
#include "tied_names.h"

namespace trash_panda::format {

namespace {

namespace fs = std::filesystem;

/// Bytes read of a file before its header's length is known: many headers fit, and no more than
/// this is read in vain.
constexpr std::uint64_t kFirstReadBytes = 16 * kKiB;

/// Most names that one message lists.
constexpr std::size_t kQuotedNamesMax = 10;

template <class Names>
std::string list_quoted(const Names& names) {
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kQuotedNamesMax); ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : ", ", quote_name(names[i]));
  }
  if (names.size() > kQuotedNamesMax) {
    text += fmt::format(" and {} more", names.size() - kQuotedNamesMax);
  }
  return text;
}

/// An index is of the format that its name says: pytorch_model.bin.index.json of torch files.
IndexShards shards_of(const fs::path& index_path) {
  return index_path.filename().string().find(".bin.index.") == std::string::npos
             ? IndexShards::kSafetensors
             : IndexShards::kTorch;
}

/// A foreign file under its own name (model.ckpt, model.gguf) is no broken safetensors file: the
/// reason is its format.
Error name_claimed_format(Error error, const fs::path& path, std::span<const std::byte> head) {
  if (error.reason() != "not_safetensors" || path.extension() == ".safetensors") {
    return error;
  }
  const std::optional<ForeignFormat> format = sniff_foreign_format(head);
  return format ? std::move(error).with_reason(format->reason) : std::move(error);
}

}  // namespace

CheckpointBuilder::CheckpointBuilder(fs::path path) {
  checkpoint_.path_ = std::move(path);
}

Result<FileContents> CheckpointBuilder::read_contents(const File& file, std::string_view name) {
  const std::uint64_t head_bytes = std::min(file.size_bytes(), kFirstReadBytes);
  if (buffer_.size() < kFirstReadBytes + kJsonPaddingBytes) {
    buffer_.resize(kFirstReadBytes + kJsonPaddingBytes);
  }
  const std::span<std::byte> head = std::span(buffer_).first(head_bytes);
  TP_RETURN_IF_ERROR(file.read_exact_at(0, head));
  const std::string frame = fmt::format("{}\n{}\n{}\n", name.size(), name, file.size_bytes());
  fingerprint_.update(std::as_bytes(std::span(frame)));
  if (const FileFormat* format = find_file_format(file.path(), head)) {
    TP_ASSIGN_OR_RETURN(FileContents contents, format->read(file, fingerprint_));
    contents.kind = format->kind;
    return contents;
  }
  return read_safetensors(file, head_bytes);
}

Result<FileContents> CheckpointBuilder::read_safetensors(const File& file,
                                                         std::uint64_t head_bytes) {
  const std::span<std::byte> head = std::span(buffer_).first(head_bytes);
  Result<std::uint64_t> header_size = read_header_size(head, file.size_bytes());
  if (!header_size) {
    return std::unexpected(name_claimed_format(std::move(header_size).error(), file.path(), head));
  }
  const std::uint64_t header_bytes = *header_size;
  const std::uint64_t end_bytes = kLengthFieldBytes + header_bytes;
  if (buffer_.size() < end_bytes + kJsonPaddingBytes) {
    buffer_.resize(end_bytes + kJsonPaddingBytes);
  }
  if (end_bytes > head_bytes) {
    TP_RETURN_IF_ERROR(file.read_exact_at(
        head_bytes, std::span(buffer_).subspan(head_bytes, end_bytes - head_bytes)));
  }
  fingerprint_.update(std::span(buffer_).first(end_bytes));
  const std::string_view text(reinterpret_cast<const char*>(buffer_.data()) + kLengthFieldBytes,
                              header_bytes);
  TP_ASSIGN_OR_RETURN(
      SafetensorsHeader header,
      parse_padded_header(parser_, text, buffer_.size() - kLengthFieldBytes, file.size_bytes()));
  return FileContents{.tensors = std::move(header.tensors),
                      .names = std::move(header.names),
                      .metadata = std::move(header.metadata),
                      .has_metadata = header.has_metadata,
                      .data_offset_bytes = end_bytes,
                      .notes = {}};
}

Result<void> CheckpointBuilder::add_file(const fs::path& path, std::string_view name) {
  TP_ASSIGN_OR_RETURN(File file, File::open(path));
  struct stat opened = {};
  if (::fstat(file.fd(), &opened) != 0) {
    return std::unexpected(Error::from_errno(errno, fmt::format("can't stat {}", printable(path))));
  }
  Result<FileContents> contents = read_contents(file, name);
  if (!contents) {
    return std::unexpected(std::move(contents).error().with_context(printable(path)));
  }
  const auto file_index = static_cast<std::uint32_t>(checkpoint_.files_.size());
  for (TensorRecord& tensor : contents->tensors) {
    tensor.file_index = file_index;
    checkpoint_.tensors_.push_back(std::move(tensor));
  }
  checkpoint_.names_.take(std::move(contents->names));
  has_unique_names_ = false;
  for (std::string& note : contents->notes) {
    add_note(std::move(note));
  }
  checkpoint_.files_.push_back({.name = std::string(name),
                                .path = path,
                                .size_bytes = file.size_bytes(),
                                .data_offset_bytes = contents->data_offset_bytes,
                                .metadata = std::move(contents->metadata),
                                .has_metadata = contents->has_metadata,
                                .kind = contents->kind,
                                .opened = opened});
  checkpoint_.open_files_.push_back(std::move(file));
  return {};
}

bool CheckpointBuilder::has_file(std::string_view name) const {
  return std::ranges::any_of(checkpoint_.files_,
                             [name](const CheckpointFile& file) { return file.name == name; });
}

Result<void> CheckpointBuilder::check_shards_exist(const fs::path& folder, const IndexFile& index) {
  std::vector<std::string> missing;
  for (const std::string& shard : index.shards()) {
    std::error_code ignored;
    if (!fs::exists(folder / shard, ignored)) {
      missing.push_back(shard);
    }
  }
  if (missing.empty()) {
    return {};
  }
  return std::unexpected(
      Error(ErrorCode::kMissing,
            fmt::format("{} of {} shards that the index lists are missing: {}", missing.size(),
                        index.shards().size(), list_quoted(missing)))
          .with_reason("missing_shard")
          .with_hint("download the missing files"));
}

Result<void> CheckpointBuilder::keep_listed(IndexFile& index) {
  constexpr std::uint32_t kLost = std::numeric_limits<std::uint32_t>::max();
  std::vector<std::uint32_t> tensor_of(index.entries().size(), kLost);
  std::vector<std::string_view> strays;
  std::uint32_t kept_count = 0;
  IndexCursor cursor(index);
  std::erase_if(checkpoint_.tensors_, [&](const TensorRecord& tensor) {
    if (const auto entry = cursor.find(tensor.file_index, tensor.name)) {
      tensor_of[*entry] = kept_count++;
      return false;
    }
    strays.push_back(tensor.name);
    return true;
  });
  const auto lost = std::ranges::find(tensor_of, kLost);
  if (lost != tensor_of.end()) {
    const IndexEntry& entry =
        index.entries()[static_cast<std::size_t>(std::distance(tensor_of.begin(), lost))];
    return std::unexpected(
        Error(ErrorCode::kCorrupt,
              fmt::format("the index lists tensor {} in {}, which does not have it",
                          quote_name(entry.tensor), quote_name(index.shards()[entry.shard_index])))
            .with_reason("missing_tensor")
            .with_hint("index and shards are not of one version: download both again"));
  }
  if (!strays.empty()) {
    add_note(
        fmt::format("{} tensors of the shards are not listed by the index and are left out: {}",
                    strays.size(), list_quoted(strays)));
  }
  // The same names, none of them twice, as the index's own are.
  checkpoint_.index_by_name_ = index.take_names();
  checkpoint_.index_by_name_.move_names(tensor_of);
  has_unique_names_ = true;
  return {};
}

void CheckpointBuilder::compare_total(const IndexFile& index) {
  const auto total_bytes = static_cast<double>(checkpoint_.total_bytes());
  if (index.total_size() && *index.total_size() != total_bytes) {
    add_note(fmt::format("the index says total_size {:.0f}, the tensors have {:.0f} bytes",
                         *index.total_size(), total_bytes));
  }
}

Result<void> CheckpointBuilder::add_index(const fs::path& index_path) {
  const auto add = [&]() -> Result<void> {
    TP_ASSIGN_OR_RETURN(const File file, File::open(index_path));
    if (file.size_bytes() > kIndexBytesMax) {
      return std::unexpected(Error(ErrorCode::kUnsupported,
                                   fmt::format("index of {} bytes is longer than the limit of {}",
                                               file.size_bytes(), kIndexBytesMax))
                                 .with_reason("index"));
    }
    TP_ASSIGN_OR_RETURN(AlignedBuffer text,
                        AlignedBuffer::create(file.size_bytes() + kJsonPaddingBytes));
    TP_RETURN_IF_ERROR(file.read_exact_at(0, text.span().first(file.size_bytes())));
    TP_ASSIGN_OR_RETURN(IndexFile index, IndexFile::parse(std::move(text), file.size_bytes(),
                                                          shards_of(index_path)));
    const fs::path folder = index_path.parent_path();
    TP_RETURN_IF_ERROR(check_shards_exist(folder, index));
    checkpoint_.tensors_.reserve(index.entries().size());
    for (const std::string& shard : index.shards()) {
      TP_RETURN_IF_ERROR(add_file(folder / shard, shard));
    }
    TP_RETURN_IF_ERROR(keep_listed(index));
    compare_total(index);
    checkpoint_.index_ =
        CheckpointIndex{.name = index_path.filename().string(), .members = index.other_members()};
    return {};
  };
  Result<void> added = add();
  if (!added) {
    return std::unexpected(std::move(added).error().with_context(printable(index_path)));
  }
  return {};
}

/// @retval kCorrupt  A tensor is in two files.
Result<void> CheckpointBuilder::check_names_differ() {
  const auto name_at = [&](std::size_t i) { return checkpoint_.tensors_[i].name; };
  const auto twice = checkpoint_.index_by_name_.find_twice(name_at);
  if (!twice) {
    return {};
  }
  const auto file_of = [&](std::size_t tensor) -> const std::string& {
    return checkpoint_.files_[checkpoint_.tensors_[tensor].file_index].name;
  };
  return std::unexpected(
      Error(ErrorCode::kCorrupt,
            fmt::format("{}: tensor {} is both in {} and in {}", printable(checkpoint_.path_),
                        quote_name(name_at(twice->first)), quote_name(file_of(twice->first)),
                        quote_name(file_of(twice->second))))
          .with_reason("duplicate_across_shards")
          .with_hint("name the one file or the index that is meant"));
}

void CheckpointBuilder::index_names() {
  checkpoint_.index_by_name_ = NameIndex(
      checkpoint_.tensors_.size(), [this](std::size_t i) { return checkpoint_.tensors_[i].name; });
}

Result<void> CheckpointBuilder::add_tied_names() {
  const auto ties = find_tied_names(checkpoint_);
  if (!ties) {
    return std::unexpected(Error(ties.error()).with_context(printable(checkpoint_.path_)));
  }
  if (ties->empty()) {
    return {};
  }
  std::vector<TensorRecord>& tensors = checkpoint_.tensors_;
  for (const auto& [name, target] : *ties) {
    TensorRecord tied = tensors[*checkpoint_.find(target)];
    tied.name = checkpoint_.names_.keep(name);
    tensors.push_back(std::move(tied));
  }
  std::ranges::stable_sort(tensors, {}, [](const TensorRecord& tensor) {
    return std::pair(tensor.file_index, tensor.offset_bytes);
  });
  index_names();
  return {};
}

Result<Checkpoint> CheckpointBuilder::finish() {
  if (checkpoint_.is_gguf()) {
    TP_RETURN_IF_ERROR(check_gguf_parts(checkpoint_.files_, checkpoint_.tensors_.size()));
  }
  if (!has_unique_names_) {
    index_names();
    TP_RETURN_IF_ERROR(check_names_differ());
  }
  if (!checkpoint_.is_gguf()) {
    TP_RETURN_IF_ERROR(add_tied_names());
  }
  checkpoint_.fingerprint_ = fingerprint_.hex();
  return std::move(checkpoint_);
}

}  // namespace trash_panda::format
