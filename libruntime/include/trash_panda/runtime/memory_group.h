#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

namespace trash_panda::runtime {

/// A limit of weight memory that several streamers share, beside that of the process.
///
/// Thread-safe. Streamers that are given one keep it.
class MemoryGroup {
 public:
  /// @param name  For messages: "the pipeline".
  MemoryGroup(std::uint64_t limit_bytes, std::string name)
      : limit_bytes_(limit_bytes), name_(std::move(name)) {}

  [[nodiscard]] std::uint64_t limit_bytes() const { return limit_bytes_; }
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] std::uint64_t now_bytes() const { return now_bytes_; }
  /// The most that was ever booked.
  [[nodiscard]] std::uint64_t max_bytes() const { return max_bytes_; }

 private:
  friend class MemoryAccount;

  const std::uint64_t limit_bytes_;
  const std::string name_;
  // Written under the mutex of the process's ledger.
  std::atomic<std::uint64_t> now_bytes_ = 0;
  std::atomic<std::uint64_t> max_bytes_ = 0;
};

}  // namespace trash_panda::runtime
