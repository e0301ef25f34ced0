#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trash_panda/runtime/streamer.h"

#include "extent_reader.h"
#include "run_recorder.h"
#include "shard_files.h"
#include "stream_memory.h"
#include "tensor_layout.h"

namespace trash_panda::runtime {

/// What is behind Streamer and its leases, which share it: memory stays while anyone uses it.
///
/// Threads: one acquires; leases may end on any thread; reads come in on the engine's threads and
/// touch only ExtentRead and the counters. `mutex_` guards everything that changes after open().
class StreamCore {
 public:
  static Result<std::shared_ptr<StreamCore>> open(const std::filesystem::path& pack,
                                                  const StreamOptions& options);
  StreamCore() = default;
  StreamCore(const StreamCore&) = delete;
  StreamCore& operator=(const StreamCore&) = delete;
  ~StreamCore() = default;

  [[nodiscard]] const format::Manifest& manifest() const { return manifest_; }
  [[nodiscard]] const std::vector<TensorView>& base() const { return base_tensors_; }
  [[nodiscard]] std::size_t block_count() const { return blocks_.size(); }
  [[nodiscard]] const format::PackedExtent& extent(std::size_t block_index) const;

  /// Brings a block into memory and holds it there until release().
  Result<void> acquire(std::size_t block_index);
  /// Tensors of a held block.
  [[nodiscard]] const std::vector<TensorView>& tensors(std::size_t block_index) const;
  void release(std::size_t block_index);
  /// Ends all reading; what is held stays valid.
  void close();
  [[nodiscard]] StreamStats stats() const;

 private:
  struct Block {
    const format::PackedExtent* extent = nullptr;
    format::Tier tier = format::Tier::kDisk;  ///< kRam or kDisk: what it is treated as.
    TensorLayout layout;
    std::span<std::byte> home;         ///< kRam: its own memory.
    std::optional<std::size_t> slot;   ///< kDisk: while it is in memory or on its way.
    std::shared_ptr<ExtentRead> read;  ///< Null: neither in memory nor on its way.
    bool is_used = false;              ///< What this read brought was acquired before.
    std::size_t lease_count = 0;
    std::uint64_t pass = 0;                 ///< In which it was last acquired.
    RunClock::time_point acquired_at = {};  ///< When a held block was ready.
    std::optional<std::size_t> compute;     ///< Buffer of a held block with expanded tensors.
    std::vector<TensorView> tensors;        ///< Of a held block.
  };

  Result<void> open_base();
  Result<std::shared_ptr<ExtentRead>> start_base(const format::PackedExtent& extent);
  Result<void> place_base(const format::PackedExtent& extent, BookedBuffer& stored);
  Result<void> open_blocks();
  Result<void> assign_tiers();
  Result<void> take_memory();
  void log_memory(std::uint64_t needed_bytes) const;
  Result<void> open_reader();
  Result<void> open_recorder();
  [[nodiscard]] std::uint64_t lookahead_bytes(std::uint64_t largest_extent_bytes) const;
  void log_summary() const;
  [[nodiscard]] std::shared_ptr<ExtentRead> read_extent(const format::PackedExtent& extent,
                                                        std::span<std::byte> target,
                                                        std::atomic<std::uint64_t>& counter);
  [[nodiscard]] Result<void> check_extent(const format::PackedExtent& extent,
                                          std::span<const std::byte> stored) const;

  /// Blocks from the one in use on, circularly; the one in use itself is the farthest.
  [[nodiscard]] std::size_t distance(std::size_t block_index) const;
  [[nodiscard]] std::span<std::byte> stored_bytes(const Block& block) const;
  void note_acquire(std::size_t block_index, RunClock::time_point asked);
  void end_pass();
  void record_pass(RunClock::time_point next_begin);
  void start_read(Block& block);
  void forget(Block& block);
  Result<void> start_needed(Block& block);
  [[nodiscard]] std::optional<std::size_t> farthest_in_slot(bool only_done) const;
  void prefetch();
  /// When a block was asked for, had come in, and was made.
  struct ReadyTimes {
    RunClock::time_point asked;
    RunClock::time_point read;
    RunClock::time_point made;
  };
  [[nodiscard]] Result<void> make_ready(Block& block, ReadyTimes& times) const;
  void note_ready(Block& block, const ReadyTimes& times, bool is_first_use);
  void let_go(Block& block);

  std::filesystem::path pack_;
  StreamOptions options_;
  format::Manifest manifest_;
  ShardFiles shards_;

  std::shared_ptr<MemoryAccount> account_;
  std::vector<BookedBuffer> base_memory_;
  std::vector<TensorView> base_tensors_;
  BookedBuffer ram_memory_;
  SlotPool slots_;
  std::optional<BufferPool> compute_;
  std::vector<Block> blocks_;

  mutable std::mutex mutex_;
  std::uint64_t window_bytes_ = 0;  ///< RAM-tier bytes on their way at once.
  std::size_t position_ = 0;        ///< Last block that was asked for.
  std::size_t expected_ = 0;
  StreamStats stats_;
  std::uint64_t pass_ram_bytes_ = 0;
  std::uint64_t pass_disk_bytes_ = 0;
  bool is_pass_open_ = false;
  std::optional<RunRecorder> recorder_;
  RunClock::time_point pass_begin_ = {};
  RunClock::time_point last_release_ = {};
  std::atomic<std::uint64_t> read_base_bytes_ = 0;
  std::atomic<std::uint64_t> read_ram_bytes_ = 0;
  std::atomic<std::uint64_t> read_disk_bytes_ = 0;

  /// Last member: destroyed first, so that no read is in flight when memory and files go.
  std::optional<ExtentReader> reader_;
};

}  // namespace trash_panda::runtime
