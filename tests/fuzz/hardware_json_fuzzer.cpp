// The text of a hardware.json.

#include <string>

#include "trash_panda/plan/hardware_json.h"

#include "fuzz_target.h"

namespace trash_panda::fuzz {

namespace {

bool fuzz_hardware_json(std::string_view input) {
  const Result<plan::Hardware> hardware = plan::parse_hardware(input, "hardware.json");
  if (!hardware) {
    check_refusal(hardware.error());
    return false;
  }
  const std::string written = plan::write_hardware(*hardware);
  const Result<plan::Hardware> again = plan::parse_hardware(written, "hardware.json");
  TP_ASSERT(again && *again == *hardware);
  TP_ASSERT(plan::write_hardware(*again) == written);
  return true;
}

[[maybe_unused]] const bool kHardwareAdded = add_target("hardware_json", fuzz_hardware_json);

}  // namespace

}  // namespace trash_panda::fuzz
