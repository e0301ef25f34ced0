#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>

#include "trash_panda/base/error.h"
#include "trash_panda/format/pack_writer.h"

namespace trash_panda::format {

/// Which weights a run stores in another dtype, so that a later one need not look at them again.
struct ConversionRecord {
  std::string key;  ///< What they were chosen by, and of which files.
  std::map<std::size_t, WeightConversion> conversions;  ///< As PackLayout::conversions.
};

/// A record on one line of text.
[[nodiscard]] std::string write_conversion_line(const ConversionRecord& record);

/// Reads what write_conversion_line() wrote.
///
/// @retval kCorrupt  It is something else.
Result<ConversionRecord> parse_conversion_line(std::string_view line);

}  // namespace trash_panda::format
