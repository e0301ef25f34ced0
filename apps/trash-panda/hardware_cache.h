#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <string_view>

#include "trash_panda/base/error.h"
#include "trash_panda/plan/hardware.h"

namespace trash_panda::cli {

/// How long a measurement is believed: drives fill and age, but not from one week to the next.
inline constexpr std::chrono::hours kMeasurementLifetime{24 * 30};

/// Folder of what is kept between runs: $XDG_CACHE_HOME/trash-panda, else ~/.cache/trash-panda.
/// Empty where the environment names neither.
[[nodiscard]] std::filesystem::path cache_folder();

/// Makes that folder, for its owner only. @retval kOutput  The system refuses.
Result<void> make_cache_folder(const std::filesystem::path& folder);

/// Fills the rates that `hardware` lacks from the cache: those of this machine (by fingerprint), of
/// the same drives and GPUs, and younger than kMeasurementLifetime. What changes from hour to hour
/// (free memory, free space) is never taken from there.
///
/// @param hardware  As runtime::describe_hardware() leaves it.
/// @retval kCorrupt  There is a cache that can't be read: measuring anew replaces it.
Result<void> apply_cached_rates(const std::filesystem::path& folder, plan::Hardware& hardware,
                                std::chrono::system_clock::time_point now);

/// Keeps the rates of `hardware`, together with those that the cache has of other drives. Replaced
/// as a whole, so that a reader sees the old or the new.
///
/// @retval kOutput  The folder can't be written.
Result<void> save_rates(const std::filesystem::path& folder, const plan::Hardware& hardware,
                        std::chrono::system_clock::time_point now);

/// "3 min old", "2 d old" of a time as Hardware::measured_at has it; empty when it is none.
[[nodiscard]] std::string measurement_age(std::string_view measured_at,
                                          std::chrono::system_clock::time_point now);

}  // namespace trash_panda::cli
