#include "repack_dtype.h"

#include <array>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "trash_panda/format/dtype.h"
#include "trash_panda/format/weight_scan.h"
#include "trash_panda/plan/planner.h"

#include "json_text.h"
#include "model_input.h"
#include "progress_bar.h"
#include "setting.h"
#include "signals.h"
#include "version_info.h"

namespace trash_panda::cli {

namespace {

constexpr std::array<std::string_view, 4> kDtypeWords = {"keep", "compute", "bf16", "fp8"};
enum class DtypeWord { kKeep, kCompute, kBf16, kFp8 };

/// What large matrices become; nothing: they stay as they are.
std::optional<format::Dtype> rounded_dtype(DtypeWord word, const plan::Plan& plan) {
  switch (word) {
    case DtypeWord::kBf16:
      return format::Dtype::kBf16;
    case DtypeWord::kFp8:
      return format::Dtype::kF8E4M3;
    case DtypeWord::kCompute:
      // In fp32 there is nothing to round, and without one nothing to round to.
      return plan.compute_dtype == "bf16"   ? std::optional(format::Dtype::kBf16)
             : plan.compute_dtype == "fp16" ? std::optional(format::Dtype::kF16)
                                            : std::nullopt;
    case DtypeWord::kKeep:
      break;
  }
  return std::nullopt;
}

/// What the choice depends on besides the files, the program's version included.
std::string conversions_key(const format::ConversionRequest& request) {
  return fmt::format("{} {} {}", kVersion, request.narrows,
                     request.rounded_to ? format::dtype_name(*request.rounded_to) : "");
}

}  // namespace

Result<void> choose_dtypes(const RepackOptions& options, const std::filesystem::path& staged,
                           RepackInput& input, Console& console) {
  TP_ASSIGN_OR_RETURN(const std::optional<std::size_t> index,
                      choice_of(options.dtype, kDtypeWords));
  constexpr std::array kWords = {DtypeWord::kKeep, DtypeWord::kCompute, DtypeWord::kBf16,
                                 DtypeWord::kFp8};
  const InterruptScope interrupts;
  ProgressBar progress(console, "looking at weights");
  format::ConversionRequest request = {
      .narrows = options.compress.text != "none",
      .rounded_to = rounded_dtype(kWords.at(index.value_or(0)), input.plan),
      .depth = options.dry_run ? format::ScanDepth::kSample : format::ScanDepth::kFull,
      .progress = progress.callback(),
      .stop = stop_flag()};
  input.layout.conversions_key = conversions_key(request);
  if (!options.no_resume) {
    request.known = format::interrupted_conversions(staged, input.model.checkpoint,
                                                    input.layout.conversions_key);
  }
  TP_ASSIGN_OR_RETURN(
      format::ConversionChoice choice,
      format::choose_conversions(input.model.checkpoint, input.model.weights, request));
  if (!choice.kept.empty()) {
    input.warnings.push_back(fmt::format("{} with infinities or NaN {} not rounded to fp8: {}",
                                         counted(choice.kept.size(), "weight"),
                                         choice.kept.size() == 1 ? "is" : "are",
                                         some_names(choice.kept)));
  }
  input.layout.conversions = std::move(choice.conversions);
  return {};
}

}  // namespace trash_panda::cli
