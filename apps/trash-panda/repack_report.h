#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "trash_panda/format/manifest.h"

#include "console.h"
#include "repack_plan.h"

namespace trash_panda::cli {

/// A drive that a pack goes to.
struct DriveSpace {
  std::filesystem::path folder;  ///< On it.
  std::uint64_t needed_bytes;    ///< Of the pack, beside what an interrupted run left there.
  std::uint64_t free_bytes;
};

struct RepackReport {
  const RepackInput* input = nullptr;
  const format::Manifest* manifest = nullptr;  ///< Of the pack, or of what it would be.
  std::filesystem::path target;
  bool dry_run = false;
  bool verified = false;
  std::chrono::steady_clock::duration elapsed{};
  /// Of a dry run: the pack's drive, and that of the disk tier if it is another one.
  std::vector<DriveSpace> drives = {};
  /// What reading the source takes at the rate that was measured of its drive, of a dry run.
  std::optional<double> read_s = {};
};

/// What `repack` says to people: name, size, and what lies in which tier.
[[nodiscard]] std::string repack_text(const RepackReport& report, const Console& console);

/// The same as a JSON document. @see schemas/repack.schema.json
[[nodiscard]] std::string repack_json(const RepackReport& report);

}  // namespace trash_panda::cli
