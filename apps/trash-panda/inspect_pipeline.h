#pragma once

#include <filesystem>
#include <string_view>

#include "trash_panda/base/error.h"

#include "console.h"
#include "inspect_checkpoint.h"
#include "inspect_summary.h"

namespace trash_panda::cli {

/// Looks at each component of a diffusers pipeline. One that can't be read does not hide the
/// others: it says why.
///
/// @param path  For which format::is_pipeline() holds.
/// @param name  The pipeline as the user calls it, to say what the components are called.
Result<InspectSummary> inspect_pipeline(const std::filesystem::path& path, std::string_view name,
                                        ScaleCheck scale_check, const TensorListing& listing,
                                        Console& console);

}  // namespace trash_panda::cli
