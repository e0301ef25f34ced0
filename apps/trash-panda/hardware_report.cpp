#include "hardware_report.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trash_panda/base/printable.h"
#include "trash_panda/base/units.h"

#include "hardware_cache.h"
#include "model_input.h"
#include "version_info.h"

namespace trash_panda::cli {

namespace {

constexpr std::size_t kLabelWidth = 9;

/// Parts of a line, those that say nothing left out.
class ReportLine {
 public:
  ReportLine& add(std::string part) {
    if (!part.empty()) {
      parts_.push_back(std::move(part));
    }
    return *this;
  }
  [[nodiscard]] bool empty() const { return parts_.empty(); }
  [[nodiscard]] std::string text() const { return fmt::format("{}", fmt::join(parts_, "  ")); }

 private:
  std::vector<std::string> parts_;
};

/// A label with its lines below each other.
std::string section(std::string_view label, const std::vector<ReportLine>& lines,
                    const Console* console) {
  std::string out;
  for (const ReportLine& line : lines) {
    if (line.empty()) {
      continue;
    }
    const std::string name = out.empty() ? std::string(label) : std::string();
    const std::string padding(kLabelWidth - std::min(kLabelWidth, name.size()), ' ');
    out += (console == nullptr ? name : console->styled(Style::kBold, name)) + padding +
           line.text() + "\n";
  }
  return out;
}

std::string when(bool condition, std::string text) {
  return condition ? std::move(text) : std::string();
}

/// "12.6 GB/s to the GPU" where it was measured.
std::string rate_part(std::optional<std::uint64_t> rate, std::string_view what) {
  return rate ? fmt::format("{} {}", format_rate(rate), what) : std::string();
}

std::string latency_text(std::uint64_t ns) {
  return ns < 10'000'000 ? fmt::format("{:.0f} us", static_cast<double>(ns) / 1e3)
                         : fmt::format("{:.0f} ms", static_cast<double>(ns) / 1e6);
}

std::string system_section(const plan::SystemInfo& system, const Console* console) {
  ReportLine line;
  line.add(printable(system.os))
      .add(when(!system.kernel.empty(), "kernel " + printable(system.kernel)))
      .add(when(!system.container.empty(), "in a container (" + printable(system.container) + ")"))
      .add(when(!system.virtual_machine.empty(),
                "virtual machine (" + printable(system.virtual_machine) + ")"));
  return section("system", {line}, console);
}

std::string cpu_section(const plan::Hardware& hardware, const Console* console) {
  const plan::CpuInfo& cpu = hardware.cpu;
  ReportLine first;
  first.add(printable(cpu.model))
      .add(when(cpu.core_count != 0, counted(cpu.core_count, "core")))
      .add(counted(cpu.thread_count, "thread"))
      .add(printable(fmt::format("{}", fmt::join(cpu.features, " "))));
  ReportLine rates;
  const auto expansion = [&](std::string_view name, std::optional<std::uint64_t> all,
                             std::optional<std::uint64_t> one) {
    rates.add(when(all.has_value(), fmt::format("{} {}, {} on one thread", name, format_rate(all),
                                                format_rate(one))));
  };
  expansion("fp8 expands at", cpu.expand.fp8_bytes_per_s, cpu.expand_one_thread.fp8_bytes_per_s);
  expansion("exponent at", cpu.expand.exponent_bytes_per_s,
            cpu.expand_one_thread.exponent_bytes_per_s);
  expansion("zstd at", cpu.expand.zstd_bytes_per_s, cpu.expand_one_thread.zstd_bytes_per_s);
  std::vector<ReportLine> lines = {first, rates};
  if (hardware.numa_nodes.size() > 1) {
    for (const plan::NumaNode& node : hardware.numa_nodes) {
      lines.push_back(
          ReportLine().add(fmt::format("NUMA node {}: {}, processors {}", node.index,
                                       format_bytes(node.ram_bytes), printable(node.cpus))));
    }
  }
  return section("cpu", lines, console);
}

std::string ram_section(const plan::Hardware& hardware, const Console* console) {
  ReportLine first;
  first.add(format_bytes(hardware.ram_total_bytes))
      .add(format_bytes(hardware.ram_available_bytes) + " available");
  if (hardware.ram_copy_bytes_per_s) {
    first.add(fmt::format("copied at {}, {} on one thread",
                          format_rate(hardware.ram_copy_bytes_per_s),
                          format_rate(hardware.ram_copy_one_thread_bytes_per_s)));
  }
  ReportLine group;
  if (hardware.cgroup_limit_bytes) {
    group.add(fmt::format("limited to {} by the control group {}, {} of it used",
                          format_bytes(*hardware.cgroup_limit_bytes),
                          printable(hardware.cgroup_path),
                          format_bytes(hardware.cgroup_used_bytes)));
  }
  ReportLine last;
  last.add(hardware.swap_total_bytes == 0
               ? "no swap"
               : fmt::format("swap {}, {} free", format_bytes(hardware.swap_total_bytes),
                             format_bytes(hardware.swap_free_bytes)))
      .add(when(!hardware.transparent_hugepages.empty(),
                "huge pages " + printable(hardware.transparent_hugepages)))
      .add(when(hardware.hugepage_total_bytes != 0,
                "pool of them " + format_bytes(hardware.hugepage_total_bytes)))
      .add(hardware.memlock_limit_bytes
               ? "locked memory up to " + format_bytes(*hardware.memlock_limit_bytes)
               : "locked memory without limit");
  return section("ram", {first, group, last}, console);
}

std::string link_text(const plan::PcieLink& link) {
  return link.generation == 0 || link.width == 0
             ? std::string()
             : fmt::format("PCIe {}.0 x{}", link.generation, link.width);
}

std::string links_text(const plan::PcieLink& now, const plan::PcieLink& most) {
  const std::string best = link_text(most);
  if (best.empty() || now == most || link_text(now).empty()) {
    return best.empty() ? link_text(now) : best;
  }
  return fmt::format("{} (now {}.0 x{})", best, now.generation, now.width);
}

std::string gpu_sections(const plan::Hardware& hardware, const Console* console) {
  std::string out;
  for (std::size_t index = 0; index < hardware.gpus.size(); ++index) {
    const plan::GpuInfo& gpu = hardware.gpus[index];
    ReportLine first;
    first.add(printable(gpu.name))
        .add(
            fmt::format("{}, {} free", format_bytes(gpu.total_bytes), format_bytes(gpu.free_bytes)))
        .add(links_text(gpu.link, gpu.link_max))
        .add(when(!gpu.compute_capability.empty(), "sm " + printable(gpu.compute_capability)))
        .add(when(!gpu.driver.empty(), "driver " + printable(gpu.driver)));
    ReportLine place;
    place.add(printable(gpu.uuid))
        .add(printable(gpu.pci_address))
        .add(gpu.numa_node ? fmt::format("NUMA node {}", *gpu.numa_node) : std::string());
    ReportLine to;
    to.add(rate_part(gpu.h2d_pinned_bytes_per_s, "to the GPU"))
        .add(rate_part(gpu.h2d_pageable_bytes_per_s, "pageable"))
        .add(rate_part(gpu.h2d_duplex_bytes_per_s, "while it also sends"));
    ReportLine from;
    from.add(rate_part(gpu.d2h_pinned_bytes_per_s, "from the GPU"))
        .add(rate_part(gpu.d2h_pageable_bytes_per_s, "pageable"));
    out += section(fmt::format("gpu {}", index), {first, place, to, from}, console);
  }
  if (!hardware.gpu_note.empty()) {
    out += section("gpu", {ReportLine().add(printable(hardware.gpu_note))}, console);
  }
  return out;
}

/// "1 MiB: 1.19 1.23 0.95" for each size of requests, at depth 1, 8, 32.
ReportLine grid_line(const std::vector<plan::DiskRate>& rates) {
  std::map<std::uint64_t, std::vector<plan::DiskRate>> by_size;
  for (const plan::DiskRate& rate : rates) {
    by_size[rate.request_bytes].push_back(rate);
  }
  ReportLine line;
  for (const auto& [request_bytes, settings] : by_size) {
    std::vector<std::string> figures;
    for (const plan::DiskRate& setting : settings) {
      figures.push_back(fmt::format(
          "{:.2f} x{}", static_cast<double>(setting.read_bytes_per_s) / 1e9, setting.queue_depth));
    }
    line.add(fmt::format("{} MiB: {}", request_bytes / kMiB, fmt::join(figures, ", ")));
  }
  return line;
}

std::string disk_section(const plan::DiskInfo& disk, std::chrono::system_clock::time_point now,
                         const Console* console) {
  ReportLine first;
  first.add(printable(disk.path))
      .add(printable(disk.filesystem) +
           when(!disk.device.empty(), " on " + printable(disk.device)) +
           when(!disk.model.empty(), " (" + printable(disk.model) + ")"))
      .add(printable(disk.bus))
      .add(links_text(disk.link, disk.link_max))
      .add(when(disk.is_network, "network"))
      .add(when(disk.is_rotational.value_or(false), "rotational"))
      .add(when(disk.is_read_only, "read-only"))
      .add(when(disk.total_bytes != 0, fmt::format("{} free of {}", format_bytes(disk.free_bytes),
                                                   format_bytes(disk.total_bytes))));
  ReportLine rates;
  if (disk.read_bytes_per_s) {
    rates
        .add(fmt::format("{} {} ({} x {} MiB)", format_rate(disk.read_bytes_per_s),
                         disk.reads_direct ? "direct" : "buffered", disk.read_queue_depth,
                         disk.read_request_bytes / kMiB))
        .add(when(disk.reads_direct, rate_part(disk.buffered_bytes_per_s, "buffered")))
        .add(disk.latency_ns_p50 && disk.latency_ns_p99
                 ? fmt::format("4 KiB in {}, p99 {}", latency_text(*disk.latency_ns_p50),
                               latency_text(*disk.latency_ns_p99))
                 : std::string())
        .add(fmt::format("from a {}", printable(disk.sample)))
        .add(measurement_age(disk.measured_at, now));
  }
  return section("disk",
                 {first, rates, grid_line(disk.direct), ReportLine().add(printable(disk.note))},
                 console);
}

std::string report_text(const plan::Hardware& hardware, std::chrono::system_clock::time_point now,
                        const Console* console) {
  std::string out = system_section(hardware.system, console) + cpu_section(hardware, console) +
                    ram_section(hardware, console) + gpu_sections(hardware, console);
  for (const plan::DiskInfo& disk : hardware.disks) {
    out += disk_section(disk, now, console);
  }
  return out;
}

}  // namespace

std::string format_rate(std::optional<std::uint64_t> bytes_per_s) {
  return bytes_per_s ? format_bytes(*bytes_per_s) + "/s" : "-";
}

std::string hardware_text(const plan::Hardware& hardware, std::chrono::system_clock::time_point now,
                          const Console& console) {
  return report_text(hardware, now, &console);
}

std::string hardware_bug_report(const plan::Hardware& hardware,
                                std::chrono::system_clock::time_point now) {
  // A name with backticks must not end the block.
  std::string text = report_text(hardware, now, nullptr);
  std::ranges::replace(text, '`', '\'');
  return fmt::format("```text\ntrash-panda {} ({}, {})\n{}```\n", kVersion, kCommit, kCompiler,
                     text);
}

}  // namespace trash_panda::cli
