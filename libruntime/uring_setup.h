#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include <liburing.h>

#include "trash_panda/base/error.h"
#include "trash_panda/runtime/io_engine.h"

namespace trash_panda::runtime {

/// Memory in pieces that the kernel registers: 1 GiB each at most.
[[nodiscard]] std::vector<std::span<std::byte>> cut_for_registration(std::span<std::byte> memory);

/// An io_uring instance, with what of an engine's files and memory the kernel took on beforehand.
/// Not thread-safe.
class UringSetup {
 public:
  UringSetup() = default;
  UringSetup(const UringSetup&) = delete;
  UringSetup& operator=(const UringSetup&) = delete;
  /// No read is in flight.
  ~UringSetup();

  /// @param entry_count  Places in the submission queue.
  /// @retval kDevice  The system refuses; the message says why, the hint what helps.
  Result<void> open(unsigned entry_count);
  /// Registers files and memory, as far as the system allows: reads work without, too. What is
  /// refused is logged in one line.
  void enroll(const IoOptions& options);

  [[nodiscard]] io_uring& ring() { return ring_; }
  [[nodiscard]] std::optional<unsigned> file_index(const File* file) const;
  /// The registered piece of memory that `target` lies in wholly.
  [[nodiscard]] std::optional<unsigned> buffer_index(std::span<const std::byte> target) const;
  /// For a description.
  [[nodiscard]] bool has_buffers() const { return !buffers_.empty(); }

 private:
  void enroll_files(const IoOptions& options);
  void enroll_memory(const IoOptions& options);

  io_uring ring_ = {};
  bool is_open_ = false;
  std::unordered_map<const File*, unsigned> file_indexes_;
  std::vector<std::span<std::byte>> buffers_;  ///< By their index in the kernel.
};

}  // namespace trash_panda::runtime
