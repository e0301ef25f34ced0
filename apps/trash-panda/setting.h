#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "trash_panda/base/error.h"

namespace trash_panda::cli {

/// The text of an option and where it came from, so that a message can name the flag or the
/// variable that has to change.
struct Setting {
  std::string text;
  std::string source;  ///< "--max-ram", "TRASH_PANDA_MAX_RAM", "MODEL"; empty: not given.

  [[nodiscard]] bool given() const { return !source.empty(); }
};

/// A size: "1.5GB", "20%", or "max" for all of `whole_bytes`; nothing when not given or "auto".
///
/// @param whole_bytes  What percentages and "max" are of; 0: neither has a meaning here.
/// @retval kUsage  Not a size.
Result<std::optional<std::uint64_t>> size_of(const Setting& setting, std::uint64_t whole_bytes = 0);

/// A plain number; nothing when not given or "auto". @retval kUsage  Anything else.
Result<std::optional<std::uint64_t>> count_of(const Setting& setting);

/// A number with or without a fraction, 0 or more; nothing when not given or "auto".
/// @retval kUsage  Anything else.
Result<std::optional<double>> number_of(const Setting& setting);

/// One of a few words: its index in `words`; nothing when not given.
/// @retval kUsage  Another word; the message lists them.
Result<std::optional<std::size_t>> choice_of(const Setting& setting,
                                             std::span<const std::string_view> words);

/// "yes/true/on/1" or "no/false/off/0", for flags that the environment sets.
Result<bool> flag_of(const Setting& setting);

}  // namespace trash_panda::cli
