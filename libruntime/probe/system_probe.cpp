#include "system_probe.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <sys/resource.h>
#include <system_error>
#include <utility>

#include <sched.h>

namespace trash_panda::runtime {

namespace {

/// Instructions that expansion, decoding and matrix products gain from, as the kernel calls them.
constexpr std::array<std::string_view, 24> kNotableFeatures = {
    "amx_bf16", "amx_int8",    "amx_tile",    "asimd",        "asimdhp",     "avx",
    "avx2",     "avx512_bf16", "avx512_fp16", "avx512_vbmi2", "avx512_vnni", "avx512bw",
    "avx512dq", "avx512f",     "avx512vbmi",  "avx512vl",     "bf16",        "bmi1",
    "bmi2",     "f16c",        "fma",         "sse4_2",       "sve",         "sve2"};

std::string read_line(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// Value of `KEY=value` or `KEY="value"` in a file of such lines.
std::string assigned_value(const std::filesystem::path& path, std::string_view key) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    if (line.starts_with(key) && line.size() > key.size() && line[key.size()] == '=') {
      std::string value = line.substr(key.size() + 1);
      std::erase(value, '"');
      return value;
    }
  }
  return {};
}

std::string find_container(const std::filesystem::path& root) {
  std::error_code error;
  if (std::filesystem::exists(root / ".dockerenv", error)) {
    return "docker";
  }
  if (std::filesystem::exists(root / "run/.containerenv", error)) {
    return "podman";
  }
  // systemd's own containers say so here; so do LXC and others that start it.
  if (std::string named = read_line(root / "run/systemd/container"); !named.empty()) {
    return named;
  }
  std::ostringstream groups;
  groups << std::ifstream(root / "proc/self/cgroup").rdbuf();
  const std::string text = groups.str();
  for (const auto& [mark, name] :
       {std::pair("kubepods", "kubernetes"), std::pair("/docker", "docker"),
        std::pair("libpod", "podman"), std::pair("/lxc", "lxc")}) {
    if (text.find(mark) != std::string::npos) {
      return name;
    }
  }
  return {};
}

std::string find_virtual_machine(const std::filesystem::path& root, std::string_view kernel,
                                 bool has_hypervisor_flag) {
  // WSL 1 translates system calls and says "Microsoft"; WSL 2 is a virtual machine.
  if (kernel.find("microsoft") != std::string_view::npos) {
    return "wsl2";
  }
  if (kernel.find("Microsoft") != std::string_view::npos) {
    return "wsl1";
  }
  const std::string vendor = read_line(root / "sys/class/dmi/id/sys_vendor") + " " +
                             read_line(root / "sys/class/dmi/id/product_name");
  for (const auto& [mark, name] :
       {std::pair("QEMU", "qemu"), std::pair("KVM", "kvm"), std::pair("VMware", "vmware"),
        std::pair("VirtualBox", "virtualbox"), std::pair("Xen", "xen"),
        std::pair("Virtual Machine", "hyperv"), std::pair("Amazon EC2", "ec2"),
        std::pair("Google Compute", "gce"), std::pair("Parallels", "parallels")}) {
    if (vendor.find(mark) != std::string::npos) {
      return name;
    }
  }
  return has_hypervisor_flag ? "unknown hypervisor" : std::string();
}

/// Model and features from /proc/cpuinfo. @return Whether a hypervisor shows itself.
bool read_cpuinfo(const std::filesystem::path& path, plan::CpuInfo& cpu) {
  std::ifstream file(path);
  std::string line;
  bool has_hypervisor_flag = false;
  while (std::getline(file, line) && (cpu.model.empty() || cpu.features.empty())) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) {
      continue;
    }
    const std::string_view key =
        std::string_view(line).substr(0, line.find_last_not_of(" \t", colon - 1) + 1);
    const std::size_t start = line.find_first_not_of(' ', colon + 1);
    const std::string value = start == std::string::npos ? std::string() : line.substr(start);
    if (key == "model name") {
      cpu.model = value;
    } else if (key == "flags" || key == "Features") {
      std::istringstream words(value);
      std::string word;
      while (words >> word) {
        has_hypervisor_flag = has_hypervisor_flag || word == "hypervisor";
        if (std::ranges::find(kNotableFeatures, word) != kNotableFeatures.end()) {
          cpu.features.push_back(word);
        }
      }
      std::ranges::sort(cpu.features);
    }
  }
  return has_hypervisor_flag;
}

std::optional<double> first_number(std::string_view text) {
  double value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  return status == std::errc() ? std::optional(value) : std::nullopt;
}

/// Processors that the control group's quota is worth: "200000 100000" is two. Only the mount's
/// own root is looked at: that is where a container's limit is.
std::optional<double> quota_processors(const std::filesystem::path& cgroup) {
  const std::string v2 = read_line(cgroup / "cpu.max");
  const std::string quota_text =
      v2.empty() ? read_line(cgroup / "cpu/cpu.cfs_quota_us") : v2.substr(0, v2.find(' '));
  const std::string period_text = v2.empty() ? read_line(cgroup / "cpu/cpu.cfs_period_us")
                                             : v2.substr(std::min(v2.find(' ') + 1, v2.size()));
  const std::optional<double> quota = first_number(quota_text);
  const std::optional<double> period = first_number(period_text);
  if (!quota || !period || *quota <= 0 || *period <= 0) {
    return std::nullopt;
  }
  return *quota / *period;
}

/// "madvise" of "always [madvise] never".
std::string bracketed_word(std::string_view line) {
  const std::size_t open = line.find('[');
  const std::size_t close = line.find(']', open);
  return close == std::string_view::npos ? std::string()
                                         : std::string(line.substr(open + 1, close - open - 1));
}

/// Memory that this process may lock; nothing: as much as it wants.
std::optional<std::uint64_t> memlock_limit(const std::filesystem::path& proc) {
  std::ifstream status(proc / "self/status");
  std::string line;
  while (std::getline(status, line)) {
    constexpr std::string_view kKey = "CapEff:\t";
    constexpr int kCapIpcLock = 14;  // linux/capability.h
    if (line.starts_with(kKey)) {
      std::uint64_t capabilities = 0;
      std::from_chars(line.data() + kKey.size(), line.data() + line.size(), capabilities, 16);
      if ((capabilities >> kCapIpcLock & 1) != 0) {
        return std::nullopt;
      }
    }
  }
  struct rlimit limit = {};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return std::nullopt;
  }
  return limit.rlim_cur;
}

}  // namespace

std::uint64_t usable_thread_count(const std::filesystem::path& cgroup) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  std::uint64_t count = 1;
  if (::sched_getaffinity(0, sizeof(allowed), &allowed) == 0) {
    count = static_cast<std::uint64_t>(CPU_COUNT(&allowed));
  }
  if (const std::optional<double> quota = quota_processors(cgroup)) {
    const auto whole = static_cast<std::uint64_t>(*quota + 0.999);
    count = std::min(count, std::max<std::uint64_t>(whole, 1));
  }
  return count;
}

void read_system(const std::filesystem::path& root, plan::Hardware& hardware) {
  hardware.system.os = assigned_value(root / "etc/os-release", "PRETTY_NAME");
  hardware.system.kernel = read_line(root / "proc/sys/kernel/osrelease");
  hardware.system.container = find_container(root);
  const bool has_hypervisor = read_cpuinfo(root / "proc/cpuinfo", hardware.cpu);
  hardware.system.virtual_machine =
      find_virtual_machine(root, hardware.system.kernel, has_hypervisor);
  hardware.transparent_hugepages =
      bracketed_word(read_line(root / "sys/kernel/mm/transparent_hugepage/enabled"));
  hardware.memlock_limit_bytes = memlock_limit(root / "proc");
  hardware.cpu.thread_count = usable_thread_count(root / "sys/fs/cgroup");
}

}  // namespace trash_panda::runtime
