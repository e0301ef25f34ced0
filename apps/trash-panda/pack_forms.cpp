#include "pack_forms.h"

#include <cstddef>

#include <fmt/format.h>

#include "model_input.h"

namespace trash_panda::cli {

std::vector<plan::StorageForm> packable_forms(const plan::Hardware& hardware) {
  std::vector<plan::StorageForm> forms = {plan::StorageForm::kExponent};
  if (hardware.gpus.empty()) {
    forms.push_back(plan::StorageForm::kZstd);
  }
  return forms;
}

std::vector<std::string> form_warnings(const plan::Plan& plan,
                                       const std::set<std::string_view>& coded) {
  if (!plan.predicted) {
    return {};
  }
  std::size_t raw_count = 0;
  std::size_t coded_count = 0;
  for (const plan::PlannedBlock& block : plan.blocks) {
    const bool is_planned_coded = block.form != plan::StorageForm::kRaw;
    const bool is_coded = coded.contains(block.name);
    raw_count += is_planned_coded && !is_coded ? 1 : 0;
    coded_count += !is_planned_coded && is_coded ? 1 : 0;
  }
  std::vector<std::string> warnings;
  if (raw_count > 0) {
    warnings.push_back(
        fmt::format("{} planned coded but packed raw: passes take longer than the plan predicts",
                    counted(raw_count, "block")));
  }
  if (coded_count > 0) {
    warnings.push_back(fmt::format(
        "{} planned raw but packed coded: each use decodes them, in memory beside the plan's",
        counted(coded_count, "block")));
  }
  return warnings;
}

}  // namespace trash_panda::cli
