#pragma once

#include <cstdint>
#include <filesystem>

#include "trash_panda/base/error.h"
#include "trash_panda/plan/hardware.h"

#include "console.h"
#include "setting.h"

namespace trash_panda::cli {

/// Whether a plan may measure the machine first.
enum class ProbeMode {
  kAuto,   ///< Takes what was measured in the last 30 days, else measures for about 3 s.
  kNever,  ///< Takes that or nothing.
  kForce,  ///< Measures for about 10 s, whatever is known.
};

/// The word of --probe; kAuto when not given. @retval kUsage  Another word.
Result<ProbeMode> probe_mode_of(const Setting& setting);

/// A --path that isn't there is a mistake; a drive that can't be measured is not.
/// @retval kMissing  It does not exist.
Result<void> check_measured_path(const std::filesystem::path& path);

/// The model that a plan is for.
struct MeasuredModel {
  std::filesystem::path path;
  /// Small models are not worth measuring for: they are in memory before a figure matters.
  std::uint64_t size_bytes = 0;
};

/// Adds to `hardware`, as probe_hardware() leaves it, where the model lies and how fast it and the
/// rest of the machine are. Only reads the model; says how long measuring took and keeps the
/// result. Rates that are not known stay empty.
///
/// @retval kInterrupted  The user ended the measurement.
Result<void> add_measured_rates(const MeasuredModel& model, ProbeMode mode,
                                plan::Hardware& hardware, Console& console);

}  // namespace trash_panda::cli
