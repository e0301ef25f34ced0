#include "trash_panda/format/manifest.h"

#include <span>

#include <fmt/format.h>

#include "trash_panda/base/file.h"
#include "trash_panda/base/units.h"

namespace trash_panda::format {

namespace {

/// Longest manifest that is read: 90,000 tensors take about 20 MB, and a hostile size must not
/// make us allocate more than this.
constexpr std::uint64_t kManifestBytesMax = kGiB;

Result<void> check_shard_file(const std::filesystem::path& pack, const PackedShard& shard) {
  const std::filesystem::path path = pack / shard.name;
  const Result<File> file = File::open(path);
  if (!file && file.error().code() != ErrorCode::kMissing) {
    return std::unexpected(
        Error(file.error())
            .with_hint("see that it may be read, and look at the drive; it may well be whole"));
  }
  if (!file) {
    return std::unexpected(Error(file.error())
                               .with_code(ErrorCode::kCorrupt)
                               .with_reason("missing_shard")
                               .with_hint("copy or repack it again"));
  }
  if (file->size_bytes() != shard.size_bytes) {
    return std::unexpected(
        Error(ErrorCode::kCorrupt,
              fmt::format("{} has {} bytes, but the manifest says {}", printable(path),
                          file->size_bytes(), shard.size_bytes))
            .with_reason(file->size_bytes() < shard.size_bytes ? "truncated" : "trailing")
            .with_hint("copy or repack it again"));
  }
  return {};
}

}  // namespace

std::string_view tensor_coding_name(TensorCoding coding) {
  switch (coding) {
    case TensorCoding::kRaw:
      return "raw";
    case TensorCoding::kExponent:
      return "exponent";
    case TensorCoding::kZstd:
      break;
  }
  return "zstd";
}

std::optional<TensorCoding> parse_tensor_coding(std::string_view name) {
  for (const TensorCoding coding :
       {TensorCoding::kRaw, TensorCoding::kExponent, TensorCoding::kZstd}) {
    if (tensor_coding_name(coding) == name) {
      return coding;
    }
  }
  return std::nullopt;
}

Result<Manifest> read_manifest_only(const std::filesystem::path& pack) {
  const std::filesystem::path path = pack / kManifestName;
  Result<File> opened = File::open(path);
  if (!opened) {
    return std::unexpected(Error(opened.error())
                               .with_context(fmt::format("{} is not a pack", printable(pack)))
                               .with_hint("packs are made by: trash-panda repack MODEL"));
  }
  const File file = *std::move(opened);
  if (file.size_bytes() > kManifestBytesMax) {
    return std::unexpected(Error(ErrorCode::kCorrupt,
                                 fmt::format("{} has {} bytes, over the limit of {}",
                                             printable(path), file.size_bytes(), kManifestBytesMax))
                               .with_reason("too_large"));
  }
  std::string text(file.size_bytes(), '\0');
  TP_RETURN_IF_ERROR(file.read_exact_at(0, std::as_writable_bytes(std::span(text))));
  return parse_manifest(text, printable(path));
}

Result<Manifest> read_manifest(const std::filesystem::path& pack) {
  TP_ASSIGN_OR_RETURN(Manifest manifest, read_manifest_only(pack));
  for (const PackedShard& shard : manifest.shards) {
    TP_RETURN_IF_ERROR(check_shard_file(pack, shard));
  }
  return manifest;
}

}  // namespace trash_panda::format
