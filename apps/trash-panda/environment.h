#pragma once

#include <string>
#include <vector>

#include "trash_panda/base/error.h"
#include "trash_panda/format/checkpoint.h"
#include "trash_panda/runtime/io_engine.h"

#include "command_description.h"

namespace trash_panda::cli {

/// Value of an environment variable; empty where it is not set.
[[nodiscard]] std::string environment_value(const char* name);

/// What a lookup in the Hugging Face cache depends on, from HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME
/// and HOME.
[[nodiscard]] format::HubCacheEnvironment hub_cache_environment();

/// How disks are read: TRASH_PANDA_IO, "auto" where it is not set.
///
/// @retval kUsage  It names no engine.
[[nodiscard]] Result<runtime::IoBackend> io_backend();

/// One warning for each TRASH_PANDA_* variable that nothing here reads, with the nearest name.
[[nodiscard]] std::vector<std::string> unknown_variables(const CommandDescriptions& commands);

}  // namespace trash_panda::cli
