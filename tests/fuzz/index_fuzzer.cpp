// The text of an *.index.json.

#include <algorithm>
#include <filesystem>
#include <set>
#include <span>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "trash_panda/base/aligned_buffer.h"

#include "fuzz_target.h"
#include "index_file.h"
#include "json_walk.h"

namespace trash_panda::fuzz {

namespace {

using format::IndexEntry;
using format::IndexFile;

void check_shard_names(const IndexFile& index) {
  TP_ASSERT(std::ranges::is_sorted(index.shards(), std::less_equal<>()));
  for (const std::string& shard : index.shards()) {
    std::string name = shard;
    std::ranges::replace(name, '\\', '/');
    const std::filesystem::path path = std::filesystem::path(name).lexically_normal();
    TP_ASSERT(!path.empty() && path.is_relative() && *path.begin() != "..");
    TP_ASSERT(shard.find('\0') == std::string::npos);
  }
}

void check_entries(const IndexFile& index, std::string_view text) {
  auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  TP_ASSERT(json.is_object());
  const auto map = json.at("weight_map");
  TP_ASSERT(map.size() == index.entries().size());
  std::set<std::uint32_t> used;
  for (std::size_t i = 0; i < index.entries().size(); ++i) {
    const IndexEntry& entry = index.entries()[i];
    TP_ASSERT(entry.shard_index < index.shards().size());
    TP_ASSERT(map.at(entry.tensor) == index.shards()[entry.shard_index]);
    TP_ASSERT(index.find(entry.tensor) == i);
    used.insert(entry.shard_index);
  }
  TP_ASSERT(used.size() == index.shards().size());
  json.erase("weight_map");
  TP_ASSERT(json == nlohmann::json::parse(index.other_members(), nullptr, false));
}

bool fuzz_index(std::string_view input) {
  Result<AlignedBuffer> buffer = AlignedBuffer::create(input.size() + format::kJsonPaddingBytes);
  TP_ASSERT(buffer);
  std::ranges::copy(std::as_bytes(std::span(input)), buffer->data());
  Result<IndexFile> index = IndexFile::parse(*std::move(buffer), input.size());
  if (!index) {
    check_refusal(index.error());
    return false;
  }
  check_shard_names(*index);
  check_entries(*index, input);
  // Entries point into the text: moving must leave it where it is.
  const IndexFile moved = std::move(*index);
  check_entries(moved, input);
  return true;
}

[[maybe_unused]] const bool kIndexAdded = add_target("index", fuzz_index);

}  // namespace

}  // namespace trash_panda::fuzz
