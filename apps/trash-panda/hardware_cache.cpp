#include "hardware_cache.h"

#include <algorithm>
#include <ctime>
#include <iomanip>
#include <optional>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "trash_panda/base/units.h"
#include "trash_panda/plan/hardware_json.h"

#include "environment.h"
#include "output_file.h"

namespace trash_panda::cli {

namespace {

using SystemTime = std::chrono::system_clock::time_point;

constexpr std::uint64_t kCacheBytesMax = 4 * kMiB;
/// Of drives that were plugged in at some time.
constexpr std::size_t kCachedDisksMax = 32;

/// One file per machine: a home folder may be shared between several.
std::filesystem::path cache_file(const std::filesystem::path& folder,
                                 const plan::Hardware& hardware) {
  return folder / fmt::format("hardware-{}.json", hardware.fingerprint);
}

std::optional<SystemTime> parse_time(std::string_view text) {
  std::istringstream in{std::string(text)};
  std::tm parts = {};
  in >> std::get_time(&parts, "%Y-%m-%dT%H:%M:%SZ");
  if (in.fail()) {
    return std::nullopt;
  }
  return std::chrono::system_clock::from_time_t(::timegm(&parts));
}

/// A time in the future is no measurement of this clock's.
bool is_fresh(std::string_view measured_at, SystemTime now) {
  const std::optional<SystemTime> measured = parse_time(measured_at);
  return measured && *measured <= now + std::chrono::minutes(5) &&
         now - *measured < kMeasurementLifetime;
}

bool is_same_disk(const plan::DiskInfo& a, const plan::DiskInfo& b) {
  // A filesystem without a drive (network, overlay) is known by its path only.
  return a.filesystem == b.filesystem && a.device == b.device && a.model == b.model &&
         a.total_bytes == b.total_bytes && (!a.device.empty() || a.path == b.path);
}

void take_disk_rates(const plan::DiskInfo& from, plan::DiskInfo& to) {
  plan::DiskInfo merged = from;
  merged.path = to.path;
  merged.link = to.link;
  merged.link_max = to.link_max;
  merged.numa_node = to.numa_node;
  merged.is_read_only = to.is_read_only;
  merged.free_bytes = to.free_bytes;
  to = std::move(merged);
}

void take_gpu_rates(const plan::GpuInfo& from, plan::GpuInfo& to) {
  to.h2d_pinned_bytes_per_s = from.h2d_pinned_bytes_per_s;
  to.h2d_pageable_bytes_per_s = from.h2d_pageable_bytes_per_s;
  to.d2h_pinned_bytes_per_s = from.d2h_pinned_bytes_per_s;
  to.d2h_pageable_bytes_per_s = from.d2h_pageable_bytes_per_s;
  to.h2d_duplex_bytes_per_s = from.h2d_duplex_bytes_per_s;
  to.expand = from.expand;
}

/// What the cache has of this machine; nothing when there is no cache.
Result<std::optional<plan::Hardware>> read_cache(const std::filesystem::path& path) {
  const Result<std::string> text = read_small_file(path, kCacheBytesMax);
  if (!text) {
    if (text.error().code() == ErrorCode::kMissing) {
      return std::nullopt;
    }
    return std::unexpected(text.error());
  }
  TP_ASSIGN_OR_RETURN(plan::Hardware hardware, plan::parse_hardware(*text, path.native()));
  return hardware;
}

}  // namespace

std::filesystem::path cache_folder() {
  // Relative paths are to be ignored, says the XDG Base Directory Specification.
  const std::filesystem::path named = environment_value("XDG_CACHE_HOME");
  if (named.is_absolute()) {
    return named / "trash-panda";
  }
  const std::filesystem::path home = environment_value("HOME");
  std::error_code error;
  // Services have homes that are not there: none is made for a cache.
  return home.is_absolute() && std::filesystem::is_directory(home, error)
             ? home / ".cache" / "trash-panda"
             : std::filesystem::path();
}

Result<void> make_cache_folder(const std::filesystem::path& folder) {
  std::error_code error;
  if (std::filesystem::create_directories(folder, error)) {
    // It has the names of drives and paths.
    std::filesystem::permissions(folder, std::filesystem::perms::owner_all, error);
  }
  if (error) {
    return std::unexpected(
        Error::from_errno(error.value(), fmt::format("can't make {}", printable(folder)))
            .with_code(ErrorCode::kOutput));
  }
  return {};
}

Result<void> apply_cached_rates(const std::filesystem::path& folder, plan::Hardware& hardware,
                                SystemTime now) {
  if (folder.empty()) {
    return {};
  }
  Result<std::optional<plan::Hardware>> read = read_cache(cache_file(folder, hardware));
  if (!read) {
    return std::unexpected(std::move(read).error());
  }
  if (!*read || (*read)->fingerprint != hardware.fingerprint) {
    return {};
  }
  const plan::Hardware& cached = **read;
  for (plan::DiskInfo& disk : hardware.disks) {
    const auto found = std::ranges::find_if(cached.disks, [&](const plan::DiskInfo& candidate) {
      return is_same_disk(candidate, disk) && is_fresh(candidate.measured_at, now);
    });
    if (!disk.read_bytes_per_s && found != cached.disks.end()) {
      take_disk_rates(*found, disk);
    }
  }
  if (!hardware.measured_at.empty() || !is_fresh(cached.measured_at, now)) {
    return {};
  }
  hardware.measured_at = cached.measured_at;
  hardware.ram_copy_one_thread_bytes_per_s = cached.ram_copy_one_thread_bytes_per_s;
  hardware.ram_copy_bytes_per_s = cached.ram_copy_bytes_per_s;
  hardware.cpu.expand_one_thread = cached.cpu.expand_one_thread;
  hardware.cpu.expand = cached.cpu.expand;
  for (plan::GpuInfo& gpu : hardware.gpus) {
    const auto found = std::ranges::find(cached.gpus, gpu.uuid, &plan::GpuInfo::uuid);
    if (found != cached.gpus.end()) {
      take_gpu_rates(*found, gpu);
    }
  }
  return {};
}

Result<void> save_rates(const std::filesystem::path& folder, const plan::Hardware& hardware,
                        SystemTime now) {
  if (folder.empty()) {
    return {};
  }
  TP_RETURN_IF_ERROR(make_cache_folder(folder));
  const std::filesystem::path path = cache_file(folder, hardware);
  plan::Hardware kept = hardware;
  std::erase_if(kept.disks,
                [](const plan::DiskInfo& disk) { return !disk.read_bytes_per_s.has_value(); });
  // A cache that can't be read is what this replaces.
  if (const auto old = read_cache(path); old && *old) {
    for (const plan::DiskInfo& disk : (*old)->disks) {
      const bool is_known = std::ranges::any_of(
          kept.disks, [&](const plan::DiskInfo& other) { return is_same_disk(disk, other); });
      if (!is_known && is_fresh(disk.measured_at, now) && kept.disks.size() < kCachedDisksMax) {
        kept.disks.push_back(disk);
      }
    }
  }
  return write_output_file(path, plan::write_hardware(kept), Overwrite::kReplace);
}

std::string measurement_age(std::string_view measured_at, SystemTime now) {
  const std::optional<SystemTime> measured = parse_time(measured_at);
  if (!measured) {
    return {};
  }
  const auto minutes = std::chrono::duration_cast<std::chrono::minutes>(now - *measured).count();
  if (minutes < 60) {
    return fmt::format("{} min old", std::max<std::int64_t>(minutes, 0));
  }
  return minutes < 48 * 60 ? fmt::format("{} h old", minutes / 60)
                           : fmt::format("{} d old", minutes / (24 * 60));
}

}  // namespace trash_panda::cli
