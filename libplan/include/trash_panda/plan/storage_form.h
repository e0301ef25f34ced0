#pragma once

#include <optional>
#include <string_view>

namespace trash_panda::plan {

/// How the bytes of a block wait and move.
enum class StorageForm {
  kRaw,       ///< As in the checkpoint.
  kExponent,  ///< bf16 with coded exponents, expanded where the block is computed.
  kZstd,      ///< Compressed, decoded by the CPU after the read; disk tier only.
};

/// "raw", "exponent" or "zstd".
[[nodiscard]] std::string_view storage_form_name(StorageForm form);
[[nodiscard]] std::optional<StorageForm> parse_storage_form(std::string_view name);

}  // namespace trash_panda::plan
