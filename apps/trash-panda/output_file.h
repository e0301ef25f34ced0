#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "trash_panda/base/error.h"

#include "setting.h"

namespace trash_panda::cli {

/// The folder that a path is in; "." for a plain name.
[[nodiscard]] std::filesystem::path folder_of(const std::filesystem::path& path);

/// Whether something can be put into a folder: called before long work, so that it is not done in
/// vain.
///
/// @param flag      The option that chooses another one, for the hint.
/// @retval kOutput  It is no folder, or may not be written to.
Result<void> check_output_folder(const std::filesystem::path& folder, std::string_view flag);

enum class Overwrite { kRefuse, kReplace };

/// Whether `path` may be written: called before long work, so that it is not done in vain.
///
/// @retval kOutput  It exists (with kRefuse), or is not a regular file, or its folder is missing.
Result<void> check_output_file(const std::filesystem::path& path, Overwrite overwrite);

/// The same for an option that names the file. Does nothing where it is not given.
///
/// @retval kUsage  The name is empty.
Result<void> check_output_setting(const Setting& setting, Overwrite overwrite);

/// Writes a small file so that at any moment there is the old content, the new, or none.
///
/// @retval kOutput  As check_output_file(), or the system refused.
Result<void> write_output_file(const std::filesystem::path& path, std::string_view text,
                               Overwrite overwrite);

/// Reads a small file as text.
///
/// @param limit_bytes  Longer files are refused: what a person writes is never that long.
/// @retval kMissing  There is none. @retval kCorrupt  It is longer.
Result<std::string> read_small_file(const std::filesystem::path& path, std::uint64_t limit_bytes);

/// The same, with "-" for stdin: what one command prints, the next one reads.
/// @retval kCorrupt  It is longer. @retval kFailed  stdin can't be read.
Result<std::string> read_small_input(const std::string& name, std::uint64_t limit_bytes);

/// What messages call an input: "stdin" for "-".
[[nodiscard]] std::string_view input_name(std::string_view name);

}  // namespace trash_panda::cli
