#pragma once

#include "trash_panda/plan/hardware.h"

namespace trash_panda::plan {

// The members of the hardware document, listed once for writer and reader: `visit(name, field)` is
// called for each, in the document's order. `Fields` is the struct, const or not.

template <class Visit>
void visit_fields(Visit& visit, auto& rates)
  requires requires { rates.fp8_bytes_per_s; }
{
  visit("fp8_bytes_per_s", rates.fp8_bytes_per_s);
  visit("exponent_bytes_per_s", rates.exponent_bytes_per_s);
  visit("zstd_bytes_per_s", rates.zstd_bytes_per_s);
}

template <class Visit>
void visit_fields(Visit& visit, auto& system)
  requires requires { system.virtual_machine; }
{
  visit("os", system.os);
  visit("kernel", system.kernel);
  visit("container", system.container);
  visit("virtual_machine", system.virtual_machine);
}

template <class Visit>
void visit_fields(Visit& visit, auto& cpu)
  requires requires { cpu.expand_one_thread; }
{
  visit("model", cpu.model);
  visit("core_count", cpu.core_count);
  visit("thread_count", cpu.thread_count);
  visit("features", cpu.features);
  visit("expand_one_thread", cpu.expand_one_thread);
  visit("expand", cpu.expand);
}

template <class Visit>
void visit_fields(Visit& visit, auto& node)
  requires requires { node.cpus; }
{
  visit("index", node.index);
  visit("ram_bytes", node.ram_bytes);
  visit("cpus", node.cpus);
}

template <class Visit>
void visit_fields(Visit& visit, auto& rate)
  requires requires { rate.queue_depth; }
{
  visit("request_bytes", rate.request_bytes);
  visit("queue_depth", rate.queue_depth);
  visit("read_bytes_per_s", rate.read_bytes_per_s);
}

template <class Visit>
void visit_fields(Visit& visit, auto& disk)
  requires requires { disk.filesystem; }
{
  visit("path", disk.path);
  visit("filesystem", disk.filesystem);
  visit("device", disk.device);
  visit("model", disk.model);
  visit("bus", disk.bus);
  visit("link", disk.link);
  visit("link_max", disk.link_max);
  visit("numa_node", disk.numa_node);
  visit("is_rotational", disk.is_rotational);
  visit("is_network", disk.is_network);
  visit("is_read_only", disk.is_read_only);
  visit("reads_direct", disk.reads_direct);
  visit("direct_alignment_bytes", disk.direct_alignment_bytes);
  visit("total_bytes", disk.total_bytes);
  visit("free_bytes", disk.free_bytes);
  visit("measured_at", disk.measured_at);
  visit("sample", disk.sample);
  visit("direct", disk.direct);
  visit("read_bytes_per_s", disk.read_bytes_per_s);
  visit("read_request_bytes", disk.read_request_bytes);
  visit("read_queue_depth", disk.read_queue_depth);
  visit("buffered_bytes_per_s", disk.buffered_bytes_per_s);
  visit("latency_ns_p50", disk.latency_ns_p50);
  visit("latency_ns_p99", disk.latency_ns_p99);
  visit("note", disk.note);
}

template <class Visit>
void visit_fields(Visit& visit, auto& link)
  requires requires { link.generation; }
{
  visit("generation", link.generation);
  visit("width", link.width);
}

template <class Visit>
void visit_fields(Visit& visit, auto& gpu)
  requires requires { gpu.uuid; }
{
  visit("name", gpu.name);
  visit("uuid", gpu.uuid);
  visit("total_bytes", gpu.total_bytes);
  visit("free_bytes", gpu.free_bytes);
  visit("compute_capability", gpu.compute_capability);
  visit("driver", gpu.driver);
  visit("pci_address", gpu.pci_address);
  visit("numa_node", gpu.numa_node);
  visit("link", gpu.link);
  visit("link_max", gpu.link_max);
  visit("h2d_pinned_bytes_per_s", gpu.h2d_pinned_bytes_per_s);
  visit("h2d_pageable_bytes_per_s", gpu.h2d_pageable_bytes_per_s);
  visit("d2h_pinned_bytes_per_s", gpu.d2h_pinned_bytes_per_s);
  visit("d2h_pageable_bytes_per_s", gpu.d2h_pageable_bytes_per_s);
  visit("h2d_duplex_bytes_per_s", gpu.h2d_duplex_bytes_per_s);
  visit("memory_bytes_per_s", gpu.memory_bytes_per_s);
  visit("expand", gpu.expand);
}

template <class Visit>
void visit_fields(Visit& visit, auto& hardware)
  requires requires { hardware.gpus; }
{
  visit("note", hardware.note);
  visit("measured_at", hardware.measured_at);
  visit("fingerprint", hardware.fingerprint);
  visit("system", hardware.system);
  visit("cpu", hardware.cpu);
  visit("ram_total_bytes", hardware.ram_total_bytes);
  visit("ram_available_bytes", hardware.ram_available_bytes);
  visit("swap_total_bytes", hardware.swap_total_bytes);
  visit("swap_free_bytes", hardware.swap_free_bytes);
  visit("hugepage_total_bytes", hardware.hugepage_total_bytes);
  visit("transparent_hugepages", hardware.transparent_hugepages);
  visit("memlock_limit_bytes", hardware.memlock_limit_bytes);
  visit("ram_copy_one_thread_bytes_per_s", hardware.ram_copy_one_thread_bytes_per_s);
  visit("ram_copy_bytes_per_s", hardware.ram_copy_bytes_per_s);
  visit("cgroup_limit_bytes", hardware.cgroup_limit_bytes);
  visit("cgroup_used_bytes", hardware.cgroup_used_bytes);
  visit("cgroup_path", hardware.cgroup_path);
  visit("numa_nodes", hardware.numa_nodes);
  visit("disks", hardware.disks);
  visit("gpus", hardware.gpus);
  visit("gpu_note", hardware.gpu_note);
}

}  // namespace trash_panda::plan
