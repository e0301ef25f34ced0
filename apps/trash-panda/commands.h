#pragma once

#include "trash_panda/base/error.h"

#include "command_description.h"
#include "command_options.h"
#include "console.h"

namespace trash_panda::cli {

/// What each command does. A failure is returned, never printed here.

Result<void> run_inspect(const InspectOptions& options, Console& console);
Result<void> run_plan(const PlanOptions& options, Console& console);
/// @retval kUsage  A rate that the plan needs is not known, or an unknown setting.
Result<void> run_simulate(const SimulateOptions& options, Console& console);
/// @retval kUsage  A selector matches nothing, or there are too many blocks at once.
Result<void> run_explain(const ExplainOptions& options, Console& console);
/// @return The exit code: whether the two differ is the answer, and no failure.
Result<int> run_diff(const DiffOptions& options, Console& console);
Result<void> run_repack(const RepackOptions& options, Console& console);
/// @retval kMismatch  Bytes differ; the message names the first extents.
Result<void> run_verify(const VerifyOptions& options, Console& console);
/// @retval kOutput  The folder exists, or can't be written.
Result<void> run_unpack(const UnpackOptions& options, Console& console);
/// Succeeds without GPU, driver or permission: the report says what is missing.
Result<void> run_hwreport(const HwreportOptions& options, Console& console);
/// Succeeds without GPU or driver, and where a drive can't be measured: the report says why.
/// @retval kUsage  Nothing that can be measured, or no number of rounds.
Result<void> run_bench(const BenchOptions& options, Console& console);
/// @retval kCorrupt  It is no run log.
Result<void> run_report(const ReportOptions& options, Console& console);
Result<void> run_version(Console& console);
/// @retval kUsage  No such command.
Result<void> run_help(const HelpOptions& options, const CommandDescriptions& commands,
                      Console& console);
Result<void> run_completion(const CompletionOptions& options, const CommandDescriptions& commands,
                            Console& console);

}  // namespace trash_panda::cli
