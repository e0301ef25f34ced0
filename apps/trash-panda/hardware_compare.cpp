#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trash_panda/base/printable.h"
#include "trash_panda/base/units.h"

#include "hardware_report.h"
#include "table.h"

namespace trash_panda::cli {

namespace {

/// Rows of the comparison: name, then, now, change.
class ComparisonRows {
 public:
  void add_text(const std::string& name, const std::string& then, const std::string& now) {
    if (then != now) {
      rows_.push_back(
          {name, then.empty() ? "-" : printable(then), now.empty() ? "-" : printable(now)});
    }
  }
  void add_bytes(const std::string& name, std::uint64_t then, std::uint64_t now) {
    if (then != now) {
      rows_.push_back({name, format_bytes(then), format_bytes(now), change(then, now)});
    }
  }
  void add_rate(const std::string& name, std::optional<std::uint64_t> then,
                std::optional<std::uint64_t> now) {
    if (then || now) {
      rows_.push_back({name, format_rate(then), format_rate(now),
                       then && now ? change(*then, *now) : std::string()});
    }
  }
  void add_latency(const std::string& name, std::optional<std::uint64_t> then,
                   std::optional<std::uint64_t> now) {
    const auto text = [](std::optional<std::uint64_t> ns) {
      return ns ? fmt::format("{} us", *ns / 1000) : std::string("-");
    };
    if (then || now) {
      rows_.push_back(
          {name, text(then), text(now), then && now ? change(*then, *now) : std::string()});
    }
  }

  [[nodiscard]] std::string text() const {
    return rows_.size() == 1 ? "nothing differs\n" : format_table("lrrr", rows_);
  }

 private:
  static std::string change(std::uint64_t then, std::uint64_t now) {
    return then == 0
               ? std::string()
               : fmt::format("{:+.0f} %",
                             100.0 * (static_cast<double>(now) / static_cast<double>(then) - 1.0));
  }

  std::vector<std::vector<std::string>> rows_ = {{"", "then", "now", "change"}};
};

template <class T>
T item_at(const std::vector<T>& items, std::size_t index) {
  return index < items.size() ? items[index] : T();
}

void compare_expansion(const std::string& name, const plan::ExpandRates& then,
                       const plan::ExpandRates& now, ComparisonRows& rows) {
  rows.add_rate(name + " fp8", then.fp8_bytes_per_s, now.fp8_bytes_per_s);
  rows.add_rate(name + " exponent", then.exponent_bytes_per_s, now.exponent_bytes_per_s);
  rows.add_rate(name + " zstd", then.zstd_bytes_per_s, now.zstd_bytes_per_s);
}

void compare_gpus(const std::string& name, const plan::GpuInfo& then, const plan::GpuInfo& now,
                  ComparisonRows& rows) {
  rows.add_text(name, then.name, now.name);
  rows.add_text(name + " driver", then.driver, now.driver);
  rows.add_bytes(name + " memory", then.total_bytes, now.total_bytes);
  rows.add_bytes(name + " free", then.free_bytes, now.free_bytes);
  const auto link = [](const plan::PcieLink& max) {
    return max.generation == 0 ? std::string()
                               : fmt::format("PCIe {}.0 x{}", max.generation, max.width);
  };
  rows.add_text(name + " link", link(then.link_max), link(now.link_max));
  rows.add_rate(name + " h2d pinned", then.h2d_pinned_bytes_per_s, now.h2d_pinned_bytes_per_s);
  rows.add_rate(name + " h2d pageable", then.h2d_pageable_bytes_per_s,
                now.h2d_pageable_bytes_per_s);
  rows.add_rate(name + " d2h pinned", then.d2h_pinned_bytes_per_s, now.d2h_pinned_bytes_per_s);
  rows.add_rate(name + " h2d duplex", then.h2d_duplex_bytes_per_s, now.h2d_duplex_bytes_per_s);
  compare_expansion(name + " expands", then.expand, now.expand, rows);
}

void compare_disks(const std::string& name, const plan::DiskInfo& then, const plan::DiskInfo& now,
                   ComparisonRows& rows) {
  rows.add_text(name, then.path, now.path);
  rows.add_text(name + " filesystem", then.filesystem, now.filesystem);
  rows.add_text(name + " drive", then.model.empty() ? then.device : then.model,
                now.model.empty() ? now.device : now.model);
  rows.add_bytes(name + " free", then.free_bytes, now.free_bytes);
  rows.add_rate(name + " reads", then.read_bytes_per_s, now.read_bytes_per_s);
  rows.add_rate(name + " buffered", then.buffered_bytes_per_s, now.buffered_bytes_per_s);
  rows.add_latency(name + " 4 KiB", then.latency_ns_p50, now.latency_ns_p50);
  rows.add_latency(name + " 4 KiB p99", then.latency_ns_p99, now.latency_ns_p99);
}

}  // namespace

std::string hardware_comparison(const plan::Hardware& then, const plan::Hardware& now) {
  ComparisonRows rows;
  rows.add_text("measured", then.measured_at, now.measured_at);
  rows.add_text("system", then.system.os, now.system.os);
  rows.add_text("kernel", then.system.kernel, now.system.kernel);
  rows.add_text("cpu", then.cpu.model, now.cpu.model);
  rows.add_text("threads", fmt::format("{}", then.cpu.thread_count),
                fmt::format("{}", now.cpu.thread_count));
  compare_expansion("cpu expands", then.cpu.expand, now.cpu.expand, rows);
  rows.add_bytes("RAM", then.ram_total_bytes, now.ram_total_bytes);
  rows.add_bytes("RAM available", then.ram_available_bytes, now.ram_available_bytes);
  rows.add_bytes("RAM limit", then.cgroup_limit_bytes.value_or(0),
                 now.cgroup_limit_bytes.value_or(0));
  rows.add_rate("RAM copy", then.ram_copy_bytes_per_s, now.ram_copy_bytes_per_s);
  rows.add_rate("RAM copy, one thread", then.ram_copy_one_thread_bytes_per_s,
                now.ram_copy_one_thread_bytes_per_s);
  for (std::size_t index = 0; index < std::max(then.gpus.size(), now.gpus.size()); ++index) {
    compare_gpus(fmt::format("gpu {}", index), item_at(then.gpus, index), item_at(now.gpus, index),
                 rows);
  }
  for (std::size_t index = 0; index < std::max(then.disks.size(), now.disks.size()); ++index) {
    compare_disks(fmt::format("disk {}", index), item_at(then.disks, index),
                  item_at(now.disks, index), rows);
  }
  return rows.text();
}

}  // namespace trash_panda::cli
