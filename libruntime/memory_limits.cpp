#include "memory_limits.h"

#include <charconv>
#include <cstdint>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

namespace trash_panda::runtime {

namespace {

std::string first_line(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// A number file of a control group; nothing for "max", for a missing file and for the huge value
/// by which v1 says "no limit" (PAGE_COUNTER_MAX pages).
std::optional<std::uint64_t> read_limit(const std::filesystem::path& path) {
  const std::string line = first_line(path);
  std::uint64_t value = 0;
  const auto [end, status] = std::from_chars(line.data(), line.data() + line.size(), value);
  constexpr std::uint64_t kNoLimitBytes = std::uint64_t{1} << 60;
  if (status != std::errc() || end == line.data() || value >= kNoLimitBytes) {
    return std::nullopt;
  }
  return value;
}

struct GroupFiles {
  std::filesystem::path root;  ///< Where the hierarchy is mounted.
  std::string path;            ///< Of this process in it, e.g. "/user.slice/…".
  std::string_view limit_name;
  std::string_view used_name;
};

/// Where this process is in the memory hierarchy, from lines like `0::/path` (v2) or
/// `9:memory:/path` (v1). See cgroups(7).
std::optional<GroupFiles> find_group(const std::filesystem::path& proc,
                                     const std::filesystem::path& cgroup) {
  std::ifstream file(proc / "self" / "cgroup");
  std::string line;
  std::optional<GroupFiles> found;
  while (std::getline(file, line)) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) {
      continue;
    }
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    if (controllers.find(",memory,") != std::string::npos) {
      return GroupFiles{.root = cgroup / "memory",
                        .path = line.substr(second + 1),
                        .limit_name = "memory.limit_in_bytes",
                        .used_name = "memory.usage_in_bytes"};
    }
    if (controllers == ",,") {
      found = GroupFiles{.root = cgroup,
                         .path = line.substr(second + 1),
                         .limit_name = "memory.max",
                         .used_name = "memory.current"};
    }
  }
  return found;
}

/// The tightest limit of the process's group and of all that it lies in. In a container the path
/// often names groups that are not visible here: then the mount's own root counts.
void read_group_limit(const GroupFiles& group, plan::Hardware& hardware) {
  std::filesystem::path relative = std::filesystem::path(group.path).relative_path();
  while (true) {
    const std::filesystem::path folder = group.root / relative;
    const std::optional<std::uint64_t> limit = read_limit(folder / group.limit_name);
    if (limit && (!hardware.cgroup_limit_bytes || *limit < *hardware.cgroup_limit_bytes)) {
      hardware.cgroup_limit_bytes = limit;
      hardware.cgroup_used_bytes = read_limit(folder / group.used_name).value_or(0);
      hardware.cgroup_path = "/" + relative.string();
    }
    if (relative.empty()) {
      return;
    }
    relative = relative.parent_path();
  }
}

}  // namespace

void read_memory_limits(const std::filesystem::path& proc, const std::filesystem::path& cgroup,
                        plan::Hardware& hardware) {
  std::ifstream meminfo(proc / "meminfo");
  std::string line;
  while (std::getline(meminfo, line)) {
    std::istringstream fields(line);
    std::string key;
    std::uint64_t kib = 0;
    fields >> key >> kib;
    if (key == "MemTotal:") {
      hardware.ram_total_bytes = kib * 1024;
    } else if (key == "MemAvailable:") {
      hardware.ram_available_bytes = kib * 1024;
    } else if (key == "SwapTotal:") {
      hardware.swap_total_bytes = kib * 1024;
    } else if (key == "SwapFree:") {
      hardware.swap_free_bytes = kib * 1024;
    } else if (key == "Hugetlb:") {
      hardware.hugepage_total_bytes = kib * 1024;  // Pages of all sizes.
    }
  }
  if (const auto group = find_group(proc, cgroup)) {
    read_group_limit(*group, hardware);
  }
  if (hardware.cgroup_limit_bytes && *hardware.cgroup_limit_bytes >= hardware.ram_total_bytes) {
    hardware.cgroup_limit_bytes.reset();  // It limits nothing.
    hardware.cgroup_path.clear();
  }
}

}  // namespace trash_panda::runtime
