#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trash_panda::plan {

// Everything measured is optional: nothing means "not measured", which planning never replaces by
// an invented figure. Rates are what a single stream of the runtime reaches, in bytes per second.

/// How fast stored weights become computable ones, in bytes of their *raw* form per second: the
/// fp8 bytes that are read, the bf16 bytes that exponent codes become, the bytes that zstd unpacks.
struct ExpandRates {
  std::optional<std::uint64_t> fp8_bytes_per_s;  ///< fp8 × scale → bf16.
  std::optional<std::uint64_t> exponent_bytes_per_s;
  std::optional<std::uint64_t> zstd_bytes_per_s;  ///< CPU only.

  bool operator==(const ExpandRates&) const = default;
};

struct SystemInfo {
  std::string os;               ///< "Debian GNU/Linux 12 (bookworm)".
  std::string kernel;           ///< "6.1.0-18-amd64".
  std::string container;        ///< "docker", "podman", "lxc"…; empty outside one.
  std::string virtual_machine;  ///< "wsl2", "kvm"…; empty on bare metal or where unknown.

  bool operator==(const SystemInfo&) const = default;
};

struct CpuInfo {
  std::string model;
  std::uint64_t core_count = 0;       ///< Physical cores that this process may use.
  std::uint64_t thread_count = 0;     ///< Logical ones.
  std::vector<std::string> features;  ///< "avx2", "avx512f"…, sorted.
  ExpandRates expand_one_thread;
  ExpandRates expand;  ///< With the threads that make a block's tensors: at most four.

  bool operator==(const CpuInfo&) const = default;
};

struct NumaNode {
  std::uint64_t index = 0;
  std::uint64_t ram_bytes = 0;
  std::string cpus;  ///< As the kernel lists them: "0-7,16-23".

  bool operator==(const NumaNode&) const = default;
};

/// One measurement of direct reads.
struct DiskRate {
  std::uint64_t request_bytes = 0;
  std::uint64_t queue_depth = 0;
  std::uint64_t read_bytes_per_s = 0;

  bool operator==(const DiskRate&) const = default;
};

/// A PCIe link. 0: unknown.
struct PcieLink {
  std::uint64_t generation = 0;
  std::uint64_t width = 0;

  bool operator==(const PcieLink&) const = default;
};

/// What a path lies on and how fast it is read.
struct DiskInfo {
  std::string path;        ///< As it was asked for.
  std::string filesystem;  ///< "ext4", "9p"…
  std::string device;      ///< "nvme0n1"; empty where there is none.
  std::string model;       ///< Of the drive.
  std::string bus;         ///< "nvme", "sata", "usb", "virtio"…; empty where unknown.
  PcieLink link;           ///< Of an NVMe drive, as it runs now.
  PcieLink link_max;
  std::optional<std::uint64_t> numa_node;
  /// Nothing where the kernel only guesses: virtual disks call themselves rotational.
  std::optional<bool> is_rotational;
  bool is_network = false;
  bool is_read_only = false;
  bool reads_direct = false;                 ///< O_DIRECT is accepted.
  std::uint64_t direct_alignment_bytes = 0;  ///< That it asks for.
  std::uint64_t total_bytes = 0;
  std::uint64_t free_bytes = 0;
  std::string measured_at;       ///< "2026-03-01T12:00:00Z"; empty when it was not.
  std::string sample;            ///< What was read: "checkpoint" or "test file".
  std::vector<DiskRate> direct;  ///< In the order in which they were measured.
  /// What planning counts on: direct reads in the setting below, or cold buffered reads where
  /// direct ones are refused. Measured anew once the setting was chosen, so that it is no lucky
  /// maximum of `direct`.
  std::optional<std::uint64_t> read_bytes_per_s;
  /// The fastest setting of `direct`, or one about as fast with less memory in flight.
  std::uint64_t read_request_bytes = 0;
  std::uint64_t read_queue_depth = 0;
  std::optional<std::uint64_t> buffered_bytes_per_s;
  std::optional<std::uint64_t> latency_ns_p50;  ///< Of single direct reads of 4 KiB.
  std::optional<std::uint64_t> latency_ns_p99;
  std::string note;  ///< Advice: "9p is slow: keep packs inside the Linux file system".

  bool operator==(const DiskInfo&) const = default;
};

/// One GPU, as the driver describes it.
struct GpuInfo {
  std::string name;
  std::string uuid;
  std::uint64_t total_bytes = 0;
  std::uint64_t free_bytes = 0;
  std::string compute_capability = {};  ///< "8.6".
  std::string driver = {};              ///< "570.86.15".
  std::string pci_address = {};         ///< "0000:01:00.0".
  std::optional<std::uint64_t> numa_node = {};
  PcieLink link = {};  ///< As it runs now: power saving lowers it when idle.
  PcieLink link_max = {};
  std::optional<std::uint64_t> h2d_pinned_bytes_per_s = {};
  std::optional<std::uint64_t> h2d_pageable_bytes_per_s = {};
  std::optional<std::uint64_t> d2h_pinned_bytes_per_s = {};
  std::optional<std::uint64_t> d2h_pageable_bytes_per_s = {};
  /// Host to device, pinned, while the other direction is busy too.
  std::optional<std::uint64_t> h2d_duplex_bytes_per_s = {};
  /// How fast the GPU reads its own memory, measured or by its clock and width: computation with
  /// small batches takes as long as reading its weights.
  std::optional<std::uint64_t> memory_bytes_per_s = {};
  ExpandRates expand = {};

  bool operator==(const GpuInfo&) const = default;
};

/// What planning knows about a machine. Plain data, filled by the runtime's probe or read from a
/// file. @see hardware_json.h
struct Hardware {
  std::string note;         ///< Of a machine described by hand: where its figures come from.
  std::string measured_at;  ///< "2026-03-01T12:00:00Z"; empty when nothing was measured.
  std::string fingerprint;  ///< Of the machine's parts: a cached measurement is for no other.
  SystemInfo system;
  CpuInfo cpu;
  std::uint64_t ram_total_bytes = 0;
  std::uint64_t ram_available_bytes = 0;
  std::uint64_t swap_total_bytes = 0;
  std::uint64_t swap_free_bytes = 0;
  std::uint64_t hugepage_total_bytes = 0;            ///< Of the reserved pool.
  std::string transparent_hugepages;                 ///< "always", "madvise" or "never".
  std::optional<std::uint64_t> memlock_limit_bytes;  ///< Nothing: unlimited, or unknown.
  std::optional<std::uint64_t> ram_copy_one_thread_bytes_per_s;
  std::optional<std::uint64_t> ram_copy_bytes_per_s;  ///< With all threads.
  /// Memory limit of the control group that this process is in, and what it uses of it.
  std::optional<std::uint64_t> cgroup_limit_bytes;
  std::uint64_t cgroup_used_bytes = 0;
  std::string cgroup_path;  ///< For messages; empty without a limit.
  std::vector<NumaNode> numa_nodes;
  /// By path, in the order asked for: planning reads the first.
  std::vector<DiskInfo> disks;
  std::vector<GpuInfo> gpus;
  std::string gpu_note;  ///< Why there is no GPU: "no NVIDIA driver (libcuda.so.1)".

  bool operator==(const Hardware&) const = default;
};

}  // namespace trash_panda::plan
