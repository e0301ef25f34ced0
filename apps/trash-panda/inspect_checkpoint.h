#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "trash_panda/base/error.h"

#include "console.h"
#include "inspect_summary.h"

namespace trash_panda::cli {

/// Of which scales the values are looked at.
enum class ScaleCheck : std::uint8_t {
  kWhereFew,  ///< As far as opening a checkpoint does it; a warning says what that left.
  kAll,
};

/// Opens a checkpoint and tells what it is.
///
/// @param groups  Prefixes that replace the search for blocks; empty: search.
Result<InspectSummary> inspect_checkpoint(const std::filesystem::path& path,
                                          const std::vector<std::string>& groups,
                                          ScaleCheck scale_check, const TensorListing& listing,
                                          Console& console);

}  // namespace trash_panda::cli
