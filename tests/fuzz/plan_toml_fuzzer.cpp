// The text of a plan file.

#include <string>

#include "trash_panda/plan/plan_toml.h"

#include "fuzz_target.h"

namespace trash_panda::fuzz {

namespace {

bool fuzz_plan_toml(std::string_view input) {
  const Result<plan::Plan> parsed = plan::parse_plan_toml(input, "plan.toml");
  if (!parsed) {
    check_refusal(parsed.error());
    return false;
  }
  std::uint64_t stored_bytes = 0;
  for (const plan::PlannedBlock& block : parsed->blocks) {
    TP_ASSERT(block.stored_bytes <= parsed->model_bytes - stored_bytes);
    stored_bytes += block.stored_bytes;
  }
  TP_ASSERT(parsed->stored_bytes(plan::Tier::kBase) == parsed->model_bytes - stored_bytes);
  TP_ASSERT(parsed->ram_used_bytes() < (std::uint64_t{1} << 63U));
  TP_ASSERT(parsed->vram_used_bytes() < (std::uint64_t{1} << 63U));

  const std::string written = plan::write_plan_toml(*parsed);
  const Result<plan::Plan> again = plan::parse_plan_toml(written, "plan.toml");
  TP_ASSERT(again && *again == *parsed);
  TP_ASSERT(plan::write_plan_toml(*again) == written);

  // Comments are brought along, change nothing, and stay when that is done again.
  const std::string commented = plan::rewrite_plan_toml(*parsed, input);
  const Result<plan::Plan> with_comments = plan::parse_plan_toml(commented, "plan.toml");
  TP_ASSERT(with_comments && *with_comments == *parsed);
  TP_ASSERT(plan::rewrite_plan_toml(*parsed, commented) == commented);
  return true;
}

[[maybe_unused]] const bool kPlanTomlAdded = add_target("plan_toml", fuzz_plan_toml);

}  // namespace

}  // namespace trash_panda::fuzz
