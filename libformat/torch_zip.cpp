#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "header_layout.h"
#include "pickle_globals.h"
#include "pickle_machine.h"
#include "torch_file.h"
#include "torch_records.h"
#include "torch_state.h"
#include "zip_directory.h"

namespace trash_panda::format {

namespace {

constexpr std::string_view kPickleEntry = "/data.pkl";
/// Longest content of an entry that is one word.
constexpr std::uint64_t kWordBytesMax = 64;

/// The folder of the archive that holds everything, by where its pickle is.
Result<std::string> find_root(const ZipDirectory& zip) {
  std::vector<std::string> roots;
  for (const ZipEntry& entry : zip.entries()) {
    const std::size_t slash = entry.name.find('/');
    if (slash != std::string::npos && std::string_view(entry.name).substr(slash) == kPickleEntry) {
      roots.push_back(entry.name.substr(0, slash));
    }
  }
  if (roots.size() == 1) {
    return roots.front();
  }
  return std::unexpected(refused_pickle(
      roots.empty() ? fmt::format("a zip archive of {} entries, but none of torch.save(): it has "
                                  "no data.pkl in a folder",
                                  zip.entries().size())
                    : fmt::format("a zip archive with {} times data.pkl: {} and {} …", roots.size(),
                                  quote_name(roots[0]), quote_name(roots[1]))));
}

/// The bytes of an entry that is stored as it is.
Result<std::vector<std::byte>> read_stored_entry(const File& file, const ZipEntry& entry,
                                                 std::uint64_t limit_bytes) {
  if (!entry.is_stored || entry.size_bytes > limit_bytes) {
    return std::unexpected(refused_pickle(
        entry.is_stored ? fmt::format("{} has {} bytes, more than the limit of {}",
                                      quote_name(entry.name), entry.size_bytes, limit_bytes)
                        : fmt::format("{} is compressed or encrypted in the zip archive, which "
                                      "torch.save() never does",
                                      quote_name(entry.name))));
  }
  std::vector<std::byte> bytes(entry.size_bytes);
  TP_RETURN_IF_ERROR(file.read_exact_at(entry.data_offset_bytes, bytes));
  return bytes;
}

/// Archives without the entry are of times when all were little-endian.
Result<void> check_byte_order(const File& file, const ZipDirectory& zip, const std::string& root) {
  const ZipEntry* entry = zip.find(root + "/byteorder");
  if (entry == nullptr) {
    return {};
  }
  TP_ASSIGN_OR_RETURN(const auto bytes, read_stored_entry(file, *entry, kWordBytesMax));
  const std::string_view order(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (order == "little") {
    return {};
  }
  return std::unexpected(refused_pickle(fmt::format(
      "its tensors have the byte order {}, and only little is read", quote_name(order))));
}

Result<std::uint64_t> find_storage(const ZipDirectory& zip, const std::string& root,
                                   const TorchStorage& storage) {
  const std::string name = fmt::format("{}/data/{}", root, storage.key);
  const ZipEntry* entry = zip.find(name);
  if (entry == nullptr) {
    return std::unexpected(
        Error(ErrorCode::kCorrupt,
              fmt::format("the zip archive lacks {}, which holds tensors", quote_name(name)))
            .with_reason("missing_tensor")
            .with_hint("the file is damaged: download it again"));
  }
  if (!entry->is_stored) {
    return std::unexpected(refused_pickle(
        fmt::format("{} is compressed or encrypted in the zip archive, and only what is stored as "
                    "it is can be streamed",
                    quote_name(name))));
  }
  if (entry->size_bytes != storage.size_bytes) {
    return std::unexpected(
        Error(ErrorCode::kCorrupt,
              fmt::format("{} has {} bytes, but its tensors expect {}", quote_name(name),
                          entry->size_bytes, storage.size_bytes))
            .with_reason("size_mismatch")
            .with_hint("the file is damaged: download it again"));
  }
  return entry->data_offset_bytes;
}

/// Storages that no kept tensor is in, such as an optimizer's, need not be there.
std::vector<bool> used_storages(const TorchState& state) {
  std::vector<bool> is_used(state.storages.size());
  for (const TorchTensor& tensor : state.tensors) {
    is_used[tensor.storage_index] = true;
  }
  return is_used;
}

}  // namespace

Result<FileContents> read_torch_zip(const File& file, Checksum& fingerprint) {
  const ByteSource source{.size_bytes = file.size_bytes(),
                          .read = [&file](std::uint64_t offset_bytes, std::span<std::byte> target) {
                            return file.read_exact_at(offset_bytes, target);
                          }};
  TP_ASSIGN_OR_RETURN(const ZipDirectory zip, ZipDirectory::read(source));
  TP_ASSIGN_OR_RETURN(const std::string root, find_root(zip));
  if (zip.find(root + "/constants.pkl") != nullptr) {
    return std::unexpected(
        refused_pickle("a TorchScript archive, which holds a program and not only tensors"));
  }
  TP_RETURN_IF_ERROR(check_byte_order(file, zip, root));
  const ZipEntry* pickle_entry = zip.find(root + std::string(kPickleEntry));
  TP_ASSIGN_OR_RETURN(const auto pickle, read_stored_entry(file, *pickle_entry, kPickleBytesMax));
  fingerprint.update(pickle);
  TP_ASSIGN_OR_RETURN(TorchState state, parse_torch_pickle(pickle));
  const std::vector<bool> is_used = used_storages(state);
  std::vector<std::uint64_t> storage_offsets(state.storages.size());
  for (std::size_t i = 0; i < storage_offsets.size(); ++i) {
    if (is_used[i]) {
      TP_ASSIGN_OR_RETURN(storage_offsets[i], find_storage(zip, root, state.storages[i]));
      const std::string place = fmt::format("{}\n", storage_offsets[i]);
      fingerprint.update(std::as_bytes(std::span(place)));
    }
  }
  return make_torch_records(std::move(state), storage_offsets, file);
}

}  // namespace trash_panda::format
