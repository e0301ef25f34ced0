#pragma once

#include <chrono>
#include <string>

#include "trash_panda/plan/hardware.h"

#include "console.h"

namespace trash_panda::cli {

/// The report as people read it: a few lines each for system, processor, memory, GPUs and disks.
[[nodiscard]] std::string hardware_text(const plan::Hardware& hardware,
                                        std::chrono::system_clock::time_point now,
                                        const Console& console);

/// The same as a block of Markdown, to paste into a bug report.
[[nodiscard]] std::string hardware_bug_report(const plan::Hardware& hardware,
                                              std::chrono::system_clock::time_point now);

/// Two descriptions side by side: what is the same is left out, measured rates are not.
[[nodiscard]] std::string hardware_comparison(const plan::Hardware& then,
                                              const plan::Hardware& now);

/// "3.10 GB/s"; "-" where it was not measured.
[[nodiscard]] std::string format_rate(std::optional<std::uint64_t> bytes_per_s);

}  // namespace trash_panda::cli
