#pragma once

#include <span>
#include <string>
#include <string_view>

namespace trash_panda::plan {

/// Brings the comments of one TOML document into another: those before a table or key and those
/// behind it stay with it, tables of an array go by their `name`. What has no place any more comes
/// last. Comments that the writer makes are left out: they are in `written` already.
///
/// @param commented  Valid TOML.
/// @param written    One statement a line, as write_plan_toml() gives it.
/// @param remarks    Lines of comment that are the writer's, beside the amounts behind numbers.
[[nodiscard]] std::string keep_toml_comments(std::string_view commented, std::string_view written,
                                             std::span<const std::string_view> remarks);

}  // namespace trash_panda::plan
