#include "uring_setup.h"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <string>
#include <sys/resource.h>
#include <sys/uio.h>
#include <system_error>

#include <fmt/format.h>

#include "trash_panda/base/units.h"

namespace trash_panda::runtime {

namespace {

/// The kernel refuses a longer one with EFAULT.
constexpr std::uint64_t kRegisteredBytesMax = 1 * kGiB;

std::string errno_text(int errno_value) {
  return std::generic_category().message(errno_value);
}

std::string locked_memory_limit() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return "unlimited";
  }
  return format_bytes(limit.rlim_cur);
}

/// Of the sysctl: 1 leaves io_uring to a group, 2 to nobody. Empty on kernels before 6.6.
std::string disabled_setting() {
  std::ifstream file("/proc/sys/kernel/io_uring_disabled");
  std::string text;
  file >> text;
  return text;
}

Error setup_refused(int errno_value, const std::string& cause, const std::string& hint) {
  return Error(ErrorCode::kDevice,
               fmt::format("io_uring refused ({}{})", errno_text(errno_value), cause))
      .with_hint(hint);
}

Error explain_refusal(int errno_value) {
  switch (errno_value) {
    case EPERM:
      if (const std::string setting = disabled_setting(); !setting.empty() && setting != "0") {
        return setup_refused(errno_value, fmt::format("; kernel.io_uring_disabled is {}", setting),
                             "\"sysctl kernel.io_uring_disabled=0\" allows it");
      }
      return setup_refused(errno_value, "; a seccomp filter forbids it",
                           "containers need a seccomp profile that allows io_uring");
    case ENOSYS:
      return setup_refused(errno_value, "", "it needs Linux 5.6, and no filter that hides it");
    case ENOMEM:
      return setup_refused(errno_value,
                           fmt::format("; locked memory is limited to {}", locked_memory_limit()),
                           "raise the limit with \"ulimit -l\"");
    case EMFILE:
    case ENFILE:
      return setup_refused(errno_value, "", "raise the limit with \"ulimit -n\"");
    default:
      return setup_refused(errno_value, "", "see io_uring_setup(2)");
  }
}

}  // namespace

std::vector<std::span<std::byte>> cut_for_registration(std::span<std::byte> memory) {
  std::vector<std::span<std::byte>> pieces;
  for (std::uint64_t at = 0; at < memory.size(); at += kRegisteredBytesMax) {
    pieces.push_back(memory.subspan(at, std::min(kRegisteredBytesMax, memory.size() - at)));
  }
  return pieces;
}

UringSetup::~UringSetup() {
  if (is_open_) {
    io_uring_queue_exit(&ring_);
  }
}

Result<void> UringSetup::open(unsigned entry_count) {
  const int status = io_uring_queue_init(entry_count, &ring_, 0);
  if (status < 0) {
    return std::unexpected(explain_refusal(-status));
  }
  is_open_ = true;
  // Linux 5.6 brought plain reads, which this flag came with.
  if ((ring_.features & IORING_FEAT_RW_CUR_POS) == 0) {
    return std::unexpected(explain_refusal(ENOSYS));
  }
  return {};
}

void UringSetup::enroll(const IoOptions& options) {
  enroll_files(options);
  enroll_memory(options);
}

void UringSetup::enroll_files(const IoOptions& options) {
  std::vector<int> descriptors;
  for (const File* file : options.files) {
    if (file_indexes_.emplace(file, static_cast<unsigned>(descriptors.size())).second) {
      descriptors.push_back(file->fd());
    }
  }
  if (descriptors.empty()) {
    return;
  }
  const int status = io_uring_register_files(&ring_, descriptors.data(),
                                             static_cast<unsigned>(descriptors.size()));
  if (status < 0) {
    file_indexes_.clear();
    options.log(LogLevel::kInfo, fmt::format("io_uring: {} files stay unregistered ({}), which "
                                             "costs little",
                                             descriptors.size(), errno_text(-status)));
  }
}

void UringSetup::enroll_memory(const IoOptions& options) {
  std::vector<iovec> pieces;
  std::uint64_t total_bytes = 0;
  for (const std::span<std::byte> memory : options.memory) {
    for (const std::span<std::byte> piece : cut_for_registration(memory)) {
      buffers_.push_back(piece);
      pieces.push_back({.iov_base = piece.data(), .iov_len = piece.size()});
      total_bytes += piece.size();
    }
  }
  if (pieces.empty()) {
    return;
  }
  const int status =
      io_uring_register_buffers(&ring_, pieces.data(), static_cast<unsigned>(pieces.size()));
  if (status < 0) {
    buffers_.clear();
    options.log(LogLevel::kInfo,
                fmt::format("io_uring: {} of buffers stay unregistered ({}; locked memory is "
                            "limited to {}), which costs a little CPU time; \"ulimit -l\" raises "
                            "the limit",
                            format_bytes(total_bytes), errno_text(-status), locked_memory_limit()));
  }
}

std::optional<unsigned> UringSetup::file_index(const File* file) const {
  const auto found = file_indexes_.find(file);
  return found == file_indexes_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<unsigned> UringSetup::buffer_index(std::span<const std::byte> target) const {
  for (std::size_t at = 0; at < buffers_.size(); ++at) {
    const std::span<std::byte> buffer = buffers_[at];
    // As numbers: pointers into different buffers have no order.
    const auto begin = reinterpret_cast<std::uintptr_t>(buffer.data());
    const auto wanted = reinterpret_cast<std::uintptr_t>(target.data());
    if (wanted >= begin && wanted - begin < buffer.size() &&
        target.size() <= buffer.size() - (wanted - begin)) {
      return static_cast<unsigned>(at);
    }
  }
  return std::nullopt;
}

}  // namespace trash_panda::runtime
