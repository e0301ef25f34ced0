#pragma once

namespace trash_panda::cli {

/// What was built: written at each build by version_info.cmake.
extern const char* const kVersion;   ///< "0.1.0".
extern const char* const kCommit;    ///< Twelve hex digits, or "unknown" outside a git checkout.
extern const char* const kCompiler;  ///< "g++ 12.2.0".

}  // namespace trash_panda::cli
