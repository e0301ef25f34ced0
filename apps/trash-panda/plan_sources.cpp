#include "plan_sources.h"

#include <utility>

#include <fmt/format.h>

#include "trash_panda/plan/kv_cache.h"
#include "trash_panda/plan/plan_toml.h"
#include "trash_panda/plan/planner.h"

#include "kv_cache_config.h"
#include "output_file.h"
#include "plan_input.h"
#include "run_log.h"

namespace trash_panda::cli {

Result<void> check_stdin_use(const PlanOptions& options) {
  std::string_view user;
  for (const Setting* setting : {&options.from, &options.hardware, &options.profile}) {
    if (setting->text != "-") {
      continue;
    }
    if (!user.empty()) {
      return std::unexpected(Error(
          ErrorCode::kUsage, fmt::format("{} - and {} - both want stdin", user, setting->source)));
    }
    user = setting->source;
  }
  return {};
}

std::string plan_file_text(const plan::Plan& plan, const EarlierPlan& earlier) {
  return earlier.text.empty() ? plan::write_plan_toml(plan)
                              : plan::rewrite_plan_toml(plan, earlier.text);
}

Result<EarlierPlan> read_earlier_plan(const Setting& from) {
  EarlierPlan earlier;
  if (from.given()) {
    TP_ASSIGN_OR_RETURN(earlier.text, read_small_input(from.text, kPlanInputBytesMax));
    TP_ASSIGN_OR_RETURN(const plan::Plan plan,
                        plan::parse_plan_toml(earlier.text, input_name(from.text)));
    earlier.request = plan::repeated_request(plan);
  }
  return earlier;
}

Result<std::vector<std::string>> measure_context(const format::Checkpoint& checkpoint,
                                                 plan::PlanRequest& request) {
  if (!request.context) {
    return std::vector<std::string>();
  }
  TP_ASSIGN_OR_RETURN(const std::string config, checkpoint.side_file("config.json"));
  TP_ASSIGN_OR_RETURN(KvCacheConfig cache,
                      read_kv_cache_config(config, request.context->context_tokens));
  TP_ASSIGN_OR_RETURN(request.kv_cache_bytes, plan::kv_cache_bytes(cache.layers, *request.context));
  return std::move(cache.warnings);
}

Result<void> read_profile(const Setting& profile, const std::vector<plan::PlannedBlock>& blocks,
                          plan::PlanRequest& request) {
  if (!profile.given()) {
    return {};
  }
  TP_ASSIGN_OR_RETURN(const std::string text, read_small_input(profile.text, kRunLogBytesMax));
  TP_ASSIGN_OR_RETURN(const RunLog log, parse_run_log(text, input_name(profile.text)));
  TP_ASSIGN_OR_RETURN(request.profile_s, block_profile(log, blocks, input_name(profile.text)));
  request.compute_s.reset();
  return {};
}

}  // namespace trash_panda::cli
