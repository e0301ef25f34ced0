#include "cuda/link_probe.h"

#include <optional>
#include <vector>

#include <fmt/format.h>

#include "cuda/link_session.h"
#include "probe/median.h"

namespace trash_panda::runtime::cuda {

namespace {

/// Median rate of copies; nothing when `stop` is set.
Result<std::optional<std::uint64_t>> median_rate_of(LinkSession& session, LinkCopy copy,
                                                    const EffortPlan& effort, StopFlag stop) {
  TP_ASSIGN_OR_RETURN(const std::uint64_t count, session.count_for(copy, effort.memory));
  std::vector<double> rates;
  for (std::uint32_t round = 0; round < effort.memory_rounds; ++round) {
    if (stop != nullptr && *stop) {
      return std::nullopt;
    }
    TP_ASSIGN_OR_RETURN(const double rate, session.rate(copy, count));
    rates.push_back(rate);
  }
  return static_cast<std::uint64_t>(median(rates));
}

Result<void> measure_gpu(const Driver& driver, const EffortPlan& effort,
                         std::uint64_t memory_bytes_max, StopFlag stop, plan::GpuInfo& gpu) {
  LinkSession session(driver);
  TP_RETURN_IF_ERROR(session.open(gpu.uuid, memory_bytes_max));
  const auto rate = [&](LinkCopy copy) { return median_rate_of(session, copy, effort, stop); };
  TP_ASSIGN_OR_RETURN(gpu.h2d_pinned_bytes_per_s, rate(LinkCopy::kToPinned));
  TP_ASSIGN_OR_RETURN(gpu.h2d_pageable_bytes_per_s, rate(LinkCopy::kToPageable));
  TP_ASSIGN_OR_RETURN(gpu.d2h_pinned_bytes_per_s, rate(LinkCopy::kFromPinned));
  TP_ASSIGN_OR_RETURN(gpu.d2h_pageable_bytes_per_s, rate(LinkCopy::kFromPageable));
  TP_ASSIGN_OR_RETURN(gpu.h2d_duplex_bytes_per_s, rate(LinkCopy::kToDuplex));
  return {};
}

}  // namespace

void measure_links(const Driver& driver, const EffortPlan& effort, std::uint64_t memory_bytes_max,
                   StopFlag stop, plan::Hardware& hardware) {
  for (plan::GpuInfo& gpu : hardware.gpus) {
    const Result<void> measured = measure_gpu(driver, effort, memory_bytes_max, stop, gpu);
    if (!measured) {
      hardware.gpu_note +=
          fmt::format("{}{} not measured: {}", hardware.gpu_note.empty() ? "" : "; ", gpu.name,
                      measured.error().message());
    }
  }
}

}  // namespace trash_panda::runtime::cuda
