#include "topology.h"

#include <array>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include <hwloc.h>

namespace trash_panda::runtime {

namespace {

struct TopologyDeleter {
  void operator()(hwloc_topology* topology) const { ::hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<hwloc_topology, TopologyDeleter>;

/// PCI devices are wanted, but not what GPU libraries know of them: those would be started, which
/// takes seconds and memory of the GPU. They come from sysfs: libpciaccess, the "pci" component,
/// tells nothing more that is used here, and never gives its memory back.
Topology load_topology() {
  hwloc_topology* raw = nullptr;
  if (::hwloc_topology_init(&raw) != 0) {
    return nullptr;
  }
  Topology topology(raw);
  for (const char* component : {"cuda", "nvml", "opencl", "rsmi", "levelzero", "gl", "pci"}) {
    static_cast<void>(
        ::hwloc_topology_set_components(raw, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, component));
  }
  ::hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  if (::hwloc_topology_load(raw) != 0) {
    return nullptr;
  }
  return topology;
}

std::string cpu_list(hwloc_const_cpuset_t cpus) {
  std::array<char, 512> text = {};
  if (cpus == nullptr || ::hwloc_bitmap_list_snprintf(text.data(), text.size(), cpus) < 0) {
    return {};
  }
  return text.data();
}

/// The node that an I/O object is attached to; nothing on machines where all are equally near.
std::optional<std::uint64_t> node_of(hwloc_topology* topology, hwloc_obj_t device) {
  if (device == nullptr || ::hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE) < 2) {
    return std::nullopt;
  }
  hwloc_obj_t place = ::hwloc_get_non_io_ancestor_obj(topology, device);
  if (place == nullptr || place->nodeset == nullptr || ::hwloc_bitmap_weight(place->nodeset) != 1) {
    return std::nullopt;
  }
  return static_cast<std::uint64_t>(::hwloc_bitmap_first(place->nodeset));
}

hwloc_obj_t find_os_device(hwloc_topology* topology, std::string_view name) {
  for (hwloc_obj_t device = ::hwloc_get_next_osdev(topology, nullptr); device != nullptr;
       device = ::hwloc_get_next_osdev(topology, device)) {
    if (device->name != nullptr && name == device->name) {
      return device;
    }
  }
  return nullptr;
}

std::string pci_line(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// "16.0 GT/s PCIe" is generation 4: each doubles the 2.5 GT/s of the first, the second apart.
std::uint64_t link_generation(std::string_view speed) {
  struct Generation {
    std::string_view speed;
    std::uint64_t number;
  };
  constexpr std::array kGenerations = {Generation{"2.5 ", 1}, Generation{"5", 2},
                                       Generation{"8", 3},    Generation{"16", 4},
                                       Generation{"32", 5},   Generation{"64", 6}};
  for (const Generation& generation : kGenerations) {
    if (speed.starts_with(generation.speed)) {
      return generation.number;
    }
  }
  return 0;
}

std::uint64_t link_width(std::string_view text) {
  std::uint64_t width = 0;
  std::from_chars(text.data(), text.data() + text.size(), width);
  return width;
}

}  // namespace

void read_topology(plan::Hardware& hardware) {
  const Topology topology = load_topology();
  if (!topology) {
    return;
  }
  hwloc_topology* raw = topology.get();
  hardware.cpu.core_count =
      static_cast<std::uint64_t>(std::max(::hwloc_get_nbobjs_by_type(raw, HWLOC_OBJ_CORE), 0));
  const int node_count = std::max(::hwloc_get_nbobjs_by_type(raw, HWLOC_OBJ_NUMANODE), 0);
  hardware.numa_nodes.clear();
  for (unsigned index = 0; index < static_cast<unsigned>(node_count); ++index) {
    const hwloc_obj* node = ::hwloc_get_obj_by_type(raw, HWLOC_OBJ_NUMANODE, index);
    hardware.numa_nodes.push_back({.index = node->os_index,
                                   .ram_bytes = node->attr->numanode.local_memory,
                                   .cpus = cpu_list(node->cpuset)});
  }
  for (plan::GpuInfo& gpu : hardware.gpus) {
    gpu.numa_node = node_of(raw, ::hwloc_get_pcidev_by_busidstring(raw, gpu.pci_address.c_str()));
  }
  for (plan::DiskInfo& disk : hardware.disks) {
    disk.numa_node = node_of(raw, find_os_device(raw, disk.device));
  }
}

void read_drive_link(plan::DiskInfo& disk) {
  if (disk.bus != "nvme") {
    return;
  }
  // nvme0n1 belongs to controller nvme0, whose device is the PCI function.
  const std::string controller = disk.device.substr(0, disk.device.find('n', 1));
  const std::filesystem::path device =
      std::filesystem::path("/sys/class/nvme") / controller / "device";
  disk.link = {.generation = link_generation(pci_line(device / "current_link_speed")),
               .width = link_width(pci_line(device / "current_link_width"))};
  disk.link_max = {.generation = link_generation(pci_line(device / "max_link_speed")),
                   .width = link_width(pci_line(device / "max_link_width"))};
}

}  // namespace trash_panda::runtime
