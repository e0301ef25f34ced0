#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trash_panda/base/error.h"
#include "trash_panda/base/log.h"
#include "trash_panda/format/manifest.h"
#include "trash_panda/plan/plan.h"

namespace trash_panda::runtime {

/// How much of a pack is checked when it is loaded.
enum class VerifyMode {
  kHeaders,  ///< Manifest, shard sizes and shard headers.
  kFull,     ///< Also every extent's checksum, each time that it is read from disk.
};

struct StreamOptions {
  /// What weights are expanded to; nothing: every tensor as it is stored (fp8 stays fp8).
  std::optional<format::Dtype> compute_dtype;
  /// Exceptions from compute_dtype by tensor name, such as buffers that keep their own dtype.
  std::map<std::string, format::Dtype> dtype_overrides;
  VerifyMode verify = VerifyMode::kHeaders;
  /// Disk blocks read ahead of the one in use; nothing: from the pack's plan, at least 1.
  std::optional<std::uint64_t> lookahead_bytes;
  /// Tier of each block; nothing: as the manifest says. Same length and order as the blocks.
  std::optional<std::vector<format::Tier>> tiers;
  unsigned read_threads = 4;
  Logger log = silent_logger();
};

/// A tensor in memory of the streamer. `data` is valid as long as what it came from.
struct TensorView {
  std::string_view name;
  format::Dtype dtype;
  const format::Shape* shape;
  std::byte* data;
  std::uint64_t size_bytes;
};

/// Counters since the streamer was opened. A pass begins when block 0 is acquired.
struct StreamStats {
  std::uint64_t pass_count = 0;
  std::uint64_t read_bytes_base = 0;
  std::uint64_t read_bytes_ram = 0;   ///< RAM tier, first use only.
  std::uint64_t read_bytes_disk = 0;  ///< Disk tier, every pass.
  std::uint64_t pass_read_bytes_ram = 0;   ///< Of the last complete pass.
  std::uint64_t pass_read_bytes_disk = 0;
  std::uint64_t mispredict_count = 0;  ///< Blocks acquired out of the expected order.
  std::uint64_t wait_ns = 0;           ///< Time that acquire() waited for reads.
  std::uint64_t weight_memory_bytes = 0;       ///< Booked now: base, RAM tier, slots.
  std::uint64_t weight_memory_bytes_max = 0;   ///< The most that was ever booked.
  std::string io_description;  ///< Engine and mode in force: "pread x4, direct (ext4)".
};

class Streamer;

/// A block's tensors, in memory until the lease ends. Move-only; ending it (release() or the
/// destructor) gives the slot back for the next block.
class BlockLease {
 public:
  BlockLease(BlockLease&&) noexcept;
  BlockLease& operator=(BlockLease&&) noexcept;
  BlockLease(const BlockLease&) = delete;
  BlockLease& operator=(const BlockLease&) = delete;
  ~BlockLease();

  /// The block's tensors in the dtype asked for, by offset. Scales that were applied are not
  /// listed. Valid until the lease ends.
  [[nodiscard]] const std::vector<TensorView>& tensors() const;
  void release();

 private:
  friend class Streamer;
  struct State;
  explicit BlockLease(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// Streams a pack's blocks through fixed memory: the disk tier through slots that are read ahead
/// in the manifest's order, circularly, the RAM tier kept as it streams by in the first pass.
///
/// One thread acquires and releases; reading happens on the engine's threads. The tensors are
/// bit-identical whatever the tiers and options.
class Streamer {
 public:
  /// Opens the pack, reads the base tensors and begins to read the first blocks.
  ///
  /// @retval kCorrupt   Manifest or shards are damaged.
  /// @retval kMismatch  A checksum differs (VerifyMode::kFull, base extents).
  static Result<Streamer> open(const std::filesystem::path& pack, const StreamOptions& options);

  Streamer(Streamer&&) noexcept;
  Streamer& operator=(Streamer&&) noexcept;
  ~Streamer();

  [[nodiscard]] const format::Manifest& manifest() const;
  /// Tensors outside blocks, expanded; valid as long as the streamer.
  [[nodiscard]] const std::vector<TensorView>& base() const;
  [[nodiscard]] std::size_t block_count() const;
  /// The extent of a block, in execution order.
  [[nodiscard]] const format::PackedExtent& block(std::size_t block_index) const;
  /// Waits until a block's tensors are in memory and lends them.
  ///
  /// Blocks are expected in order, circularly; another one is served all the same and counted.
  ///
  /// @retval kMismatch  Its checksum differs (VerifyMode::kFull); the message names extent, shard.
  /// @retval kFailed    A read failed.
  /// @retval kUsage     More leases are held at once than there are slots.
  Result<BlockLease> acquire(std::size_t block_index);
  [[nodiscard]] StreamStats stats() const;

 private:
  struct Impl;
  explicit Streamer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace trash_panda::runtime
