#pragma once

#include <filesystem>
#include <string_view>

#include "trash_panda/base/error.h"
#include "trash_panda/base/file_system.h"

namespace trash_panda::format {

/// Writes a small file of a staging folder, durably; one that is there is replaced.
Result<void> write_staged_text(FileSystem& file_system, const std::filesystem::path& path,
                               std::string_view text);

}  // namespace trash_panda::format
