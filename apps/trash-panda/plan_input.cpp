#include "plan_input.h"

#include <system_error>

#include <fmt/format.h>

#include "trash_panda/base/file.h"
#include "trash_panda/plan/hardware_json.h"
#include "trash_panda/plan/plan_toml.h"

#include "output_file.h"

namespace trash_panda::cli {

Result<plan::Plan> read_plan_input(const std::string& name) {
  TP_ASSIGN_OR_RETURN(const std::string text, read_small_input(name, kPlanInputBytesMax));
  return plan::parse_plan_toml(text, input_name(name));
}

Result<plan::Hardware> read_hardware_input(const std::string& name) {
  TP_ASSIGN_OR_RETURN(const std::string text, read_small_input(name, kPlanInputBytesMax));
  return plan::parse_hardware(text, input_name(name));
}

Result<void> check_replaceable_plan(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    return {};
  }
  const Result<std::string> text = read_small_file(path, kPlanInputBytesMax);
  if (text && (text->empty() || plan::parse_plan_toml(*text, path.native()))) {
    return {};
  }
  return std::unexpected(
      Error(ErrorCode::kOutput, fmt::format("{} is no plan of trash-panda", printable(path)))
          .with_hint("-f replaces plans only: choose another name with -o, or remove it first"));
}

}  // namespace trash_panda::cli
