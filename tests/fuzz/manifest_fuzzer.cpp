// The text of a pack's manifest.json. Its own checksum, which no mutation keeps, is made anew.

#include <set>
#include <string>

#include "trash_panda/format/manifest.h"

#include "fuzz_target.h"
#include "manifest_check.h"

namespace trash_panda::fuzz {

namespace {

using format::Manifest;
using format::PackedExtent;
using format::PackedTensor;

void check_tensors(const PackedExtent& extent, std::set<std::string_view>& names) {
  std::uint64_t end_bytes = 0;
  for (const PackedTensor& tensor : extent.tensors) {
    TP_ASSERT(tensor.offset_bytes >= end_bytes && tensor.offset_bytes <= extent.raw_bytes);
    TP_ASSERT(tensor.size_bytes <= extent.raw_bytes - tensor.offset_bytes);
    TP_ASSERT(names.insert(tensor.name).second);
    end_bytes = tensor.offset_bytes + tensor.size_bytes;
  }
}

/// What a reader relies on without looking again.
void check_parsed(const Manifest& manifest) {
  std::set<std::string_view> names;
  std::uint64_t extents_bytes = 0;
  for (const PackedExtent& extent : manifest.extents) {
    TP_ASSERT(extent.shard_index < manifest.shards.size());
    const format::PackedShard& shard = manifest.shards[extent.shard_index];
    TP_ASSERT(extent.offset_bytes >= shard.header_bytes);
    TP_ASSERT(extent.offset_bytes <= shard.size_bytes);
    TP_ASSERT(extent.stored_bytes <= shard.size_bytes - extent.offset_bytes);
    check_tensors(extent, names);
    extents_bytes += extent.stored_bytes;
  }
  std::uint64_t data_bytes = 0;
  for (const format::PackedShard& shard : manifest.shards) {
    TP_ASSERT(shard.header_bytes <= shard.size_bytes);
    data_bytes += shard.size_bytes - shard.header_bytes;
  }
  TP_ASSERT(extents_bytes == data_bytes);
  for (const auto& [alias, target] : manifest.aliases) {
    TP_ASSERT(names.contains(target) && !names.contains(alias));
  }
}

bool check_text(std::string_view text) {
  const Result<Manifest> manifest = format::parse_manifest(text, "manifest.json");
  if (!manifest) {
    check_refusal(manifest.error());
    return false;
  }
  check_parsed(*manifest);
  const std::string written = format::write_manifest(*manifest);
  const Result<Manifest> again = format::parse_manifest(written, "manifest.json");
  TP_ASSERT(again.has_value());
  TP_ASSERT(format::write_manifest(*again) == written);
  return true;
}

bool fuzz_manifest(std::string_view input) {
  bool is_taken = check_text(input);
  const std::size_t key = input.rfind(format::kManifestChecksumKey);
  const std::size_t line = input.rfind('\n', key);
  if (line != std::string_view::npos) {
    is_taken =
        check_text(format::seal_manifest(std::string(input.substr(0, line + 1)))) || is_taken;
  }
  return is_taken;
}

[[maybe_unused]] const bool kManifestAdded = add_target("manifest", fuzz_manifest);

}  // namespace

}  // namespace trash_panda::fuzz
