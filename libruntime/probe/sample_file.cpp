#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <sys/stat.h>
#include <system_error>

#include "trash_panda/base/units.h"

#include "disk_probe.h"

namespace trash_panda::runtime {

namespace {

/// Less is read in a moment, and sits in a drive's cache.
constexpr std::uint64_t kSampleBytesMin = 64 * kMiB;
/// A folder is searched, not a drive: pipelines have subfolders, and a home folder has no end.
constexpr int kSearchDepthMax = 2;
constexpr int kSearchEntriesMax = 4000;
constexpr std::array<std::string_view, 7> kCheckpointEndings = {
    ".safetensors", ".gguf", ".sft", ".bin", ".ckpt", ".pt", ".pth"};

/// Bytes of a file that a probe can read; 0: none.
std::uint64_t readable_bytes(const std::filesystem::path& path) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) {
    return 0;
  }
  const auto size_bytes = static_cast<std::uint64_t>(status.st_size);
  constexpr std::uint64_t kStatBlockBytes = 512;
  const std::uint64_t stored_bytes = static_cast<std::uint64_t>(status.st_blocks) * kStatBlockBytes;
  // Compressing filesystems store less, holes far less. Some network filesystems count none.
  const bool is_sparse = stored_bytes != 0 && stored_bytes < size_bytes / 4;
  return size_bytes < kSampleBytesMin || is_sparse ? 0 : size_bytes;
}

}  // namespace

std::optional<std::filesystem::path> find_sample_file(const std::filesystem::path& path) {
  if (readable_bytes(path) != 0) {
    return path;
  }
  std::error_code error;
  // A small file is an index, or one of several shards: its folder has the others.
  const std::filesystem::path folder =
      std::filesystem::is_directory(path, error) ? path : path.parent_path();
  std::optional<std::filesystem::path> largest;
  std::uint64_t largest_bytes = 0;
  int entries = 0;
  std::filesystem::recursive_directory_iterator entry(
      folder.empty() ? "." : folder, std::filesystem::directory_options::skip_permission_denied,
      error);
  for (; !error && entry != std::filesystem::recursive_directory_iterator() &&
         ++entries <= kSearchEntriesMax;
       entry.increment(error)) {
    if (entry.depth() >= kSearchDepthMax) {
      entry.disable_recursion_pending();
    }
    if (std::ranges::find(kCheckpointEndings, entry->path().extension().native()) ==
        kCheckpointEndings.end()) {
      continue;
    }
    const std::uint64_t size_bytes = readable_bytes(entry->path());
    if (size_bytes > largest_bytes) {
      largest = entry->path();
      largest_bytes = size_bytes;
    }
  }
  return largest;
}

}  // namespace trash_panda::runtime
