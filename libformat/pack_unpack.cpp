#include "trash_panda/format/pack_unpack.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "trash_panda/base/file.h"
#include "trash_panda/base/units.h"

#include "page_writer.h"
#include "source_watch.h"
#include "staged_text.h"
#include "staging_directory.h"
#include "tensor_pieces.h"
#include "unpacked_header.h"
#include "weight_rounding.h"

namespace trash_panda::format {

namespace {

bool is_unpacked_name(std::string_view name) {
  return is_unpacked_index_name(name) || name.ends_with(".safetensors");
}

/// The F16 that was widened to an F32 with these bits.
std::uint16_t f16_of_widened(std::uint32_t bits) {
  const std::uint32_t sign = bits >> 31 << 15;
  const std::uint32_t mantissa = bits & 0x7fffff;
  const std::uint32_t exponent = bits >> 23 & 0xff;
  constexpr std::uint32_t kBiasDifference = 127 - 15;
  if (exponent == 0xff) {
    return static_cast<std::uint16_t>(sign | 0x7c00 | mantissa >> 13);
  }
  if (exponent > kBiasDifference) {
    return static_cast<std::uint16_t>(sign | (exponent - kBiasDifference) << 10 | mantissa >> 13);
  }
  // A subnormal F16: its leading one is implicit in F32. What is smaller is zero.
  const std::uint32_t shift = 14 + kBiasDifference - exponent;
  return static_cast<std::uint16_t>(sign | (shift < 32 ? (mantissa | 0x800000) >> shift : 0));
}

/// Turns widened values into what they were.
void narrow(Dtype dtype, std::span<const std::byte> wide, std::span<std::byte> target) {
  for (std::size_t i = 0; i < target.size() / 2; ++i) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, wide.data() + 4 * i, sizeof(bits));
    const std::uint16_t half =
        dtype == Dtype::kF16 ? f16_of_widened(bits) : static_cast<std::uint16_t>(bits >> 16);
    std::memcpy(target.data() + 2 * i, &half, sizeof(half));
  }
}

/// Writes the files of one checkpoint into a staging folder.
class Unpacker {
 public:
  Unpacker(FileSystem& file_system, const std::filesystem::path& pack, const Manifest& manifest,
           const UnpackOptions& options, const UnpackLayout& layout)
      : file_system_(file_system), pack_(pack), manifest_(manifest), options_(options) {
    for (const UnpackedFile& file : layout.files) {
      progress_.total_bytes += file.size_bytes;
    }
  }

  Result<void> write_file(const std::filesystem::path& folder, const UnpackedFile& file) {
    TP_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> target,
                        file_system_.create_file(folder / file.name, WriteMode::kDirect));
    TP_ASSIGN_OR_RETURN(PageWriter writer, PageWriter::create(*target, 0));
    const std::string header = make_unpacked_header(file);
    TP_RETURN_IF_ERROR(writer.append(std::as_bytes(std::span(header))));
    advance(header.size());
    TP_RETURN_IF_ERROR(write_tensors(writer, file.tensors));
    TP_RETURN_IF_ERROR(writer.flush());
    TP_RETURN_IF_ERROR(target->sync());
    return target->close();
  }

 private:
  Result<void> write_tensors(PageWriter& writer, const std::vector<UnpackedTensor>& tensors) {
    std::vector<TensorPlace> places;
    places.reserve(tensors.size());
    for (const UnpackedTensor& tensor : tensors) {
      places.push_back({.extent_index = tensor.extent_index, .tensor_index = tensor.tensor_index});
    }
    std::vector<std::byte> converted;
    const auto write = [&](const TensorPiece& piece,
                           Result<std::span<const std::byte>> read) -> Result<void> {
      TP_ASSIGN_OR_RETURN(std::span<const std::byte> bytes, std::move(read));
      const UnpackedTensor& tensor = tensors[piece.place_index];
      if (tensor.is_widened) {
        converted.resize(bytes.size() / 2);
        narrow(tensor.dtype, bytes, converted);
        bytes = converted;
      } else if (tensor.is_narrowed) {
        converted.resize(bytes.size() * 2);
        widen_bf16(bytes, converted);
        bytes = converted;
      }
      TP_RETURN_IF_ERROR(writer.append(bytes));
      advance(bytes.size());
      return {};
    };
    return for_each_piece(pack_, manifest_, places, options_.stop, write);
  }

  void advance(std::uint64_t bytes) {
    progress_.done_bytes += bytes;
    if (options_.progress) {
      options_.progress(progress_);
    }
  }

  FileSystem& file_system_;
  const std::filesystem::path& pack_;
  const Manifest& manifest_;
  const UnpackOptions& options_;
  Progress progress_;
};

Result<void> check_unpack_space(FileSystem& file_system, const std::filesystem::path& folder,
                                const UnpackLayout& layout, std::uint64_t reserve_bytes) {
  std::uint64_t needed_bytes = 0;
  for (const UnpackedFile& file : layout.files) {
    needed_bytes += file.size_bytes;
  }
  TP_ASSIGN_OR_RETURN(const std::uint64_t free_bytes, file_system.free_bytes(folder));
  if (free_bytes >= needed_bytes && free_bytes - needed_bytes >= reserve_bytes) {
    return {};
  }
  return std::unexpected(
      Error(ErrorCode::kOutput,
            fmt::format("not enough space on the drive of {}: the checkpoint takes {} and {} are "
                        "to stay free, but only {} are free",
                        printable(folder), format_bytes(needed_bytes), format_bytes(reserve_bytes),
                        format_bytes(free_bytes)))
          .with_hint("free some, choose an output on another drive, or lower the reserve"));
}

/// Shards are opened one after the other: of a pack that was replaced meanwhile some would be old.
Result<void> check_unchanged(const std::filesystem::path& pack, const Manifest& manifest) {
  const Result<Manifest> now = read_manifest(pack);
  if (now && write_manifest(*now) == write_manifest(manifest)) {
    return {};
  }
  return std::unexpected(
      Error(ErrorCode::kStale, fmt::format("{} was replaced while it was read", printable(pack)))
          .with_hint("unpack it again"));
}

}  // namespace

Result<UnpackLayout> unpack_pack(FileSystem& file_system, const std::filesystem::path& pack,
                                 const std::filesystem::path& target,
                                 const UnpackOptions& options) {
  TP_ASSIGN_OR_RETURN(const Manifest manifest, read_manifest(pack));
  UnpackLayout layout = lay_out_unpacked(manifest, options.file_bytes_max);
  TP_ASSIGN_OR_RETURN(
      StagingDirectory staging,
      StagingDirectory::create(file_system, target, SourceWatch(), is_unpacked_name, options.log));
  const auto write_all = [&]() -> Result<void> {
    TP_RETURN_IF_ERROR(staging.clear(options.log));
    TP_RETURN_IF_ERROR(
        check_unpack_space(file_system, staging.path(), layout, options.reserve_bytes));
    Unpacker unpacker(file_system, pack, manifest, options, layout);
    for (const UnpackedFile& file : layout.files) {
      TP_RETURN_IF_ERROR(unpacker.write_file(staging.path(), file));
    }
    if (layout.index) {
      TP_RETURN_IF_ERROR(write_staged_text(file_system, staging.path() / layout.index->name,
                                           make_unpacked_index(layout)));
    }
    TP_RETURN_IF_ERROR(file_system.sync_directory(staging.path()));
    TP_RETURN_IF_ERROR(check_unchanged(pack, manifest));
    return staging.commit();
  };
  if (Result<void> written = write_all(); !written) {
    staging.discard(options.log);
    return std::unexpected(std::move(written).error());
  }
  return layout;
}

}  // namespace trash_panda::format
