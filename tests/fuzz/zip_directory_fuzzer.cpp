// A zip archive; where it has a pickle that is stored as it is, that too.

#include <algorithm>
#include <span>
#include <vector>

#include "fuzz_target.h"
#include "torch_check.h"
#include "zip_directory.h"

namespace trash_panda::fuzz {

namespace {

using format::ZipDirectory;
using format::ZipEntry;

void check_entry_places(std::vector<ZipEntry> entries, std::uint64_t archive_bytes) {
  std::ranges::sort(entries, {}, [](const ZipEntry& entry) {
    return std::pair(entry.data_offset_bytes, entry.size_bytes);
  });
  std::uint64_t end_bytes = 0;
  for (const ZipEntry& entry : entries) {
    TP_ASSERT(entry.data_offset_bytes >= end_bytes && entry.data_offset_bytes <= archive_bytes);
    TP_ASSERT(entry.size_bytes <= archive_bytes - entry.data_offset_bytes);
    end_bytes = entry.data_offset_bytes + entry.size_bytes;
  }
}

bool fuzz_zip_directory(std::string_view input) {
  const auto bytes = std::as_bytes(std::span(input));
  const Result<ZipDirectory> zip = ZipDirectory::read(format::memory_source(bytes));
  if (!zip) {
    check_refusal(zip.error());
    return false;
  }
  check_entry_places(zip->entries(), bytes.size());
  for (const ZipEntry& entry : zip->entries()) {
    TP_ASSERT(zip->find(entry.name) == &entry);
    if (entry.is_stored && entry.name.ends_with(".pkl")) {
      const auto state =
          format::parse_torch_pickle(bytes.subspan(entry.data_offset_bytes, entry.size_bytes));
      if (state) {
        check_torch_state(*state);
      }
    }
  }
  return true;
}

[[maybe_unused]] const bool kZipAdded = add_target("zip_directory", fuzz_zip_directory);

}  // namespace

}  // namespace trash_panda::fuzz
