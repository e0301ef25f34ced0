#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "trash_panda/base/error.h"
#include "trash_panda/plan/plan.h"

#include "toml_library.h"

namespace trash_panda::plan {

/// Where a key's value goes; the type says what the value must be.
using TomlTarget = std::variant<std::uint64_t*, std::optional<std::uint64_t>*, double*,
                                std::optional<double>*, bool*, std::string*, Tier*, StorageForm*,
                                std::vector<std::uint64_t>*, std::vector<std::string>*>;

enum class Presence { kRequired, kOptional };

struct TomlField {
  std::string_view key;
  TomlTarget target;
  Presence presence = Presence::kRequired;
};

/// Reads tables whose keys are known. Every error names the file, line and column.
class TomlReader {
 public:
  /// @param where  Name of the file; must outlive the reader.
  explicit TomlReader(std::string_view where) : where_(where) {}

  /// The document's root. @retval kCorrupt  Not TOML, or a key has too many parts.
  Result<toml::table> parse(std::string_view text) const;

  [[nodiscard]] Error at(const toml::source_region& source, std::string_view what) const;

  /// @retval kCorrupt  A key is none of `known`; the hint has the nearest one.
  Result<void> check_keys(const toml::table& table, std::string_view name,
                          std::span<const std::string_view> known) const;
  /// @retval kCorrupt  The value is not what `target` holds, or out of range.
  Result<void> read_value(const toml::node& node, std::string_view key,
                          const TomlTarget& target) const;
  /// Reads a table whose keys are exactly those of `fields`.
  Result<void> read_table(const toml::table& table, std::string_view name,
                          std::span<const TomlField> fields) const;
  Result<void> read_subtable(const toml::table& document, std::string_view key,
                             std::span<const TomlField> fields) const;
  /// The same for a table that may be left out.
  Result<void> read_optional_subtable(const toml::table& document, std::string_view key,
                                      std::span<const TomlField> fields) const;

 private:
  std::string_view where_;
};

/// Largest size that is read, in bytes, and largest sum of blocks: far more than any drive holds,
/// and few enough that what a plan adds up stays in range.
inline constexpr std::uint64_t kSizeBytesMax = std::uint64_t{1} << 60U;

}  // namespace trash_panda::plan
