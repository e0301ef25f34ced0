#include "plan_input.h"

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

}  // namespace trash_panda::cli
