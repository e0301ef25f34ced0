#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "trash_panda/runtime/streamer.h"

#include "device.h"
#include "device_blocks.h"
#include "extent_reader.h"
#include "pin_ledger.h"
#include "run_recorder.h"
#include "shard_files.h"
#include "stream_memory.h"
#include "tensor_layout.h"
#include "tensor_maker.h"
#include "tensor_workers.h"

namespace trash_panda::runtime {

/// What is behind Streamer and its leases, which share it: memory stays while anyone uses it.
///
/// Threads: one acquires; leases may end on any thread; reads come in on the engine's threads and
/// touch only ExtentRead and the counters. `mutex_` guards everything that changes after open().
///
/// Blocks with tensors to be made (`workers_`) are made ahead: while one is computed with, threads
/// make the tensors of the next in a second buffer, as soon as it has come in.
///
/// With a GPU (`on_device_`) a block goes through more hands: a read brings it into host memory, a
/// copy from there into a place of the device. `copy_ahead()` starts both for the blocks that come
/// next, whenever a lease begins or ends, and on a thread of its own when a read or a copy is done.
/// A slot of host memory belongs to the block until its copy is queued, then to the copy.
class StreamCore {
 public:
  static Result<std::shared_ptr<StreamCore>> open(const std::filesystem::path& pack,
                                                  const StreamOptions& options);
  /// @see Streamer::open_checkpoint
  static Result<std::shared_ptr<StreamCore>> open_checkpoint(
      const std::filesystem::path& checkpoint, const plan::Plan& plan,
      const StreamOptions& options);
  StreamCore() = default;
  StreamCore(const StreamCore&) = delete;
  StreamCore& operator=(const StreamCore&) = delete;
  ~StreamCore();

  [[nodiscard]] const format::Manifest& manifest() const { return manifest_; }
  [[nodiscard]] const std::vector<TensorView>& base() const { return base_tensors_; }
  [[nodiscard]] std::size_t block_count() const { return blocks_.size(); }
  [[nodiscard]] const format::PackedExtent& extent(std::size_t block_index) const;
  [[nodiscard]] bool is_resident(std::size_t block_index) const;
  [[nodiscard]] format::Tier tier(std::size_t block_index) const;

  /// Brings a block into memory and holds it there until release().
  Result<void> acquire(std::size_t block_index, StreamHandle stream);
  /// Tensors of a held block.
  [[nodiscard]] const std::vector<TensorView>& tensors(std::size_t block_index) const;
  void release(std::size_t block_index, StreamHandle stream);
  Result<void> preload(std::size_t block_index);
  std::uint64_t drop(std::size_t block_index);
  Result<void> check_decoded();
  Result<void> release_device();
  Result<void> restore_device();
  std::uint64_t promote(std::uint64_t size_bytes_max);
  /// @see Streamer::end_log
  void end_log();
  /// Ends all reading; what is held stays valid.
  void close();
  [[nodiscard]] StreamStats stats() const;

 private:
  /// Of a copy to the device, for the run log, which says in which pass it was used.
  struct CopyTimes {
    RunClock::time_point queued;
    std::optional<RunClock::time_point> done = {};  ///< When the host saw it.
    std::uint64_t pass = 0;                         ///< 0: not used yet.
  };
  struct Block {
    const format::PackedExtent* extent = nullptr;
    format::Tier tier = format::Tier::kDisk;  ///< What it is treated as; kGpu only on a GPU.
    TensorLayout layout;
    std::span<std::byte> home;         ///< kRam: its memory, empty while it has none.
    BookedBuffer own_home;             ///< Promoted, or RamMemory::kAsNeeded: what `home` is of.
    bool is_promoted = false;          ///< From disk to RAM: at once, or when its slot is free.
    std::optional<std::size_t> slot;   ///< kDisk: while it is in memory or on its way.
    std::shared_ptr<ExtentRead> read;  ///< Null: neither in memory nor on its way.
    bool is_dropped = false;           ///< By drop(): not read until it is asked for.
    bool is_used = false;              ///< What this read brought was acquired before.
    std::size_t lease_count = 0;
    std::uint64_t pass = 0;                 ///< In which it was last acquired.
    RunClock::time_point acquired_at = {};  ///< When a held block was ready.
    /// Buffer of a held block's tensors that are made, or of one that is made ahead.
    std::optional<std::size_t> compute;
    std::vector<TensorView> tensors;  ///< Of a held block.
    // On a GPU.
    PinnedRegion pin;                             ///< kRam: of its home.
    std::size_t home_copy_count = 0;              ///< Copies from its home that are under way.
    std::optional<DeviceBlocks::Place> place;     ///< While it is on the device or on its way.
    std::optional<DeviceBlocks::Place> resident;  ///< Its place for good: kGpu, or back there.
    StreamHandle stream = 0;                      ///< Of the first lease of those that hold it.
    ExtentRead::Times read_times = {};            ///< Of the read that it was copied after.
    std::shared_ptr<CopyTimes> copy_times;        ///< Of a copy that no use was recorded of.
    std::optional<Error> copy_error;              ///< Why the last copy could not be queued.
  };

  void follow_plan(const Result<plan::Plan>& plan);
  static Result<std::shared_ptr<StreamCore>> start(std::shared_ptr<StreamCore> core,
                                                   const StreamOptions& options);
  [[nodiscard]] std::vector<ExtentPiece> pieces_of(const format::PackedExtent& extent) const;
  Result<void> open_base();
  Result<void> read_base(std::shared_ptr<ExtentRead>& read, std::shared_ptr<ExtentRead>& next);
  Result<std::shared_ptr<ExtentRead>> start_base(const format::PackedExtent& extent);
  Result<void> place_base(const format::PackedExtent& extent, BookedBuffer& stored);
  Result<void> open_blocks();
  Result<void> assign_tiers();
  Result<void> take_memory();
  Result<void> take_compute_memory(std::uint64_t buffer_bytes);
  void log_memory(std::uint64_t needed_bytes) const;
  Result<void> open_reader();
  void log_summary() const;
  [[nodiscard]] std::shared_ptr<ExtentRead> read_extent(const format::PackedExtent& extent,
                                                        std::span<std::byte> target,
                                                        std::atomic<std::uint64_t>& counter);
  void note_work();
  [[nodiscard]] Result<void> check_extent(const format::PackedExtent& extent,
                                          std::span<const std::byte> stored) const;

  /// Blocks from the one in use on, circularly; the one in use itself is the farthest.
  [[nodiscard]] std::size_t distance(std::size_t block_index) const;
  [[nodiscard]] std::span<std::byte> stored_bytes(const Block& block) const;
  void note_acquire(std::size_t block_index, RunClock::time_point asked);
  void end_pass();
  void start_read(Block& block);
  void give_up_reading();
  void forget(Block& block);
  /// For whom a block of the RAM tier takes memory.
  enum class HomeFor {
    kUse,    ///< Who asks for it now: models that rest give memory back.
    kAhead,  ///< Whoever will.
  };
  Result<void> take_home(Block& block, HomeFor reason);
  std::uint64_t give_up_home(Block& block);
  std::uint64_t reclaim(std::uint64_t wanted_bytes, GiveBack what);
  Result<void> start_needed(Block& block);
  [[nodiscard]] std::optional<std::size_t> farthest_in_slot(bool only_done) const;
  void prefetch();
  /// When a block was asked for, had come in, and was made.
  struct ReadyTimes {
    RunClock::time_point asked;
    RunClock::time_point read;
    RunClock::time_point made;
    /// On a GPU: its copy was queued, where that was waited for.
    std::optional<RunClock::time_point> queued = {};
    bool is_ahead = false;  ///< Made before it was asked for, at least in part.
    TensorMaker::Times make = {};
  };
  [[nodiscard]] Result<void> make_ready(Block& block, ReadyTimes& times);
  void let_go(Block& block);

  // What the run log is told: stream_record.cpp.
  Result<void> open_recorder();
  void note_ready(Block& block, const ReadyTimes& times, bool is_first_use);
  void note_copied(const Block& block, CopyTimes* times);
  void record_copy(const Block& block, const CopyTimes& times);
  void record_use(const Block& block);
  void record_home(const Block& block, bool stays);
  void record_pass(RunClock::time_point next_begin);
  void end_recording();
  [[nodiscard]] RunMemory memory_now() const;
  [[nodiscard]] std::uint64_t device_memory_bytes() const;
  [[nodiscard]] std::size_t index_of(const Block& block) const {
    return static_cast<std::size_t>(&block - blocks_.data());
  }

  // Blocks that go from RAM to disk for want of memory, and back: stream_promotion.cpp.
  /// What take_memory() takes for the tiers as they are.
  struct HostNeeds {
    std::uint64_t ram_bytes = 0;
    std::size_t slot_count = 0;
    std::uint64_t slot_bytes = 0;     ///< Of one.
    std::uint64_t compute_bytes = 0;  ///< Of one block's tensors that are made.
  };
  [[nodiscard]] std::uint64_t ahead_bytes() const;
  [[nodiscard]] HostNeeds host_needs() const;
  [[nodiscard]] Result<std::uint64_t> base_host_bytes() const;
  [[nodiscard]] std::vector<std::size_t> ram_demotion_order() const;
  Result<void> demote_to_fit();
  void list_disk_blocks();
  [[nodiscard]] std::uint64_t promotable_bytes() const;
  std::uint64_t promote_from(std::size_t first, std::uint64_t size_bytes_max);
  void settle(Block& block);
  std::uint64_t demote(Block& block);
  std::uint64_t demote_promoted(std::uint64_t wanted_bytes);
  [[nodiscard]] bool demote_for(const Error& error);

  // Tensors that are made in host memory: stream_make.cpp.
  void take_ahead_memory();
  Result<void> reserve_compute();
  void make_ahead();
  void unmake(Block& block);
  [[nodiscard]] Result<void> make_tensors(Block& block, std::span<std::byte> stored,
                                          ReadyTimes& times);

  // On a GPU: stream_device.cpp and, what happens once, device_open.cpp.
  Result<void> take_device_memory();
  Result<void> try_device_memory(std::uint64_t headroom_bytes);
  [[nodiscard]] Result<std::uint64_t> base_device_bytes() const;
  [[nodiscard]] std::optional<std::size_t> next_demotion() const;
  void adapt_to_device_memory();
  void promote_to_device(const DeviceMemoryLeft& left);
  void demote_from_device(std::uint64_t wanted_bytes);
  void warn_of_spilling(std::uint64_t headroom_bytes);
  [[nodiscard]] DeviceBlocks::Needs device_needs() const;
  Result<void> place_base_on_device(const format::PackedExtent& extent,
                                    std::span<const std::byte> bytes);
  void pin_memory();
  void start_copying();
  [[nodiscard]] Result<void> check_on_device() const;
  void forget_device();
  [[nodiscard]] bool waits_in_slot(const Block& block) const;
  Result<void> acquire_on_device(std::size_t block_index, StreamHandle stream,
                                 std::unique_lock<std::mutex>& lock, ReadyTimes& times);
  Result<void> bring_to_device(Block& block, std::unique_lock<std::mutex>& lock, ReadyTimes& times);
  Result<void> make_on_device(Block& block, StreamHandle stream);
  Result<void> share(Block& block, StreamHandle stream);
  void end_use_on_device(Block& block, StreamHandle stream);
  void leave_device(Block& block);
  Result<std::size_t> take_host_slot(const Block& block);
  Result<DeviceBlocks::Place> take_place(Block& block);
  void give_up_place(Block& block);
  bool copy_to_device(Block& block, DeviceBlocks::Place place);
  Result<void> copy_now(Block& block);
  [[nodiscard]] std::optional<std::size_t> farthest_on_device() const;
  void copy_ahead();
  bool start_read_ahead(Block& block, std::uint64_t& on_its_way_bytes);
  bool start_copy_ahead(Block& block);
  void use_pins();
  void rest_pins();
  void copy_in_background(const std::stop_token& stop);

  std::filesystem::path pack_;
  StreamOptions options_;
  format::Manifest manifest_;
  ShardFiles shards_;
  std::vector<std::vector<ExtentPiece>> pieces_;  ///< By extent; empty: of a pack, all are whole.

  std::shared_ptr<Device> device_;
  std::vector<std::uint64_t> demote_gpu_;  ///< Of the plan: blocks, first to go first.
  std::vector<std::size_t> left_device_;   ///< Of tier gpu, but moved to RAM, in order.
  bool is_spilling_said_ = false;
  std::vector<std::uint64_t> demote_ram_;          ///< The same, from RAM to disk.
  std::optional<std::uint64_t> ram_budget_bytes_;  ///< Of the plan.
  /// Of the largest size, that are read ahead when neither caller nor plan give a number of bytes:
  /// a plan without blocks on disk gives none.
  std::uint64_t lookahead_blocks_ = 2;
  std::shared_ptr<MemoryAccount> account_;
  std::vector<BookedBuffer> base_memory_;
  std::vector<TensorView> base_tensors_;
  BookedBuffer ram_memory_;
  SlotPool slots_;
  std::optional<BufferPool> compute_;
  std::vector<Block> blocks_;
  /// Blocks that streamed from disk when the pack was opened, in the order in which they would go
  /// there: those of the disk tier, spread, then those that open() moved there.
  std::vector<std::size_t> disk_order_;
  std::size_t planned_disk_count_ = 0;  ///< Of those, the first.
  // Where tensors are made in host memory.
  std::vector<std::unique_ptr<TensorMaker>> makers_;  ///< By buffer of `compute_`.
  std::unique_ptr<TensorWorkers> workers_;            ///< Null: nothing is made.
  TensorMaker::Scratch scratch_;                      ///< Of the thread that acquires.
  // On a GPU.
  PinnedRegion slots_pin_;
  DeviceMemory base_reserve_;  ///< What the base will take, until it does.
  std::vector<DeviceMemory> base_device_memory_;
  std::unique_ptr<DeviceBlocks> on_device_;  ///< Null on the CPU, and after release_device().
  bool are_pins_used_ = false;               ///< While a pass is under way.
  std::mutex work_mutex_;                    ///< Of the two below; taken with or without `mutex_`.
  bool has_work_ = false;                    ///< For the thread that copies.
  std::condition_variable_any work_;
  std::jthread copier_;

  mutable std::mutex mutex_;
  std::uint64_t window_bytes_ = 0;  ///< RAM-tier bytes on their way at once.
  std::size_t position_ = 0;        ///< Last block that was asked for.
  std::size_t expected_ = 0;
  bool is_making_ = false;  ///< The block that was asked for comes before the next.
  StreamStats stats_;
  std::uint64_t pass_ram_bytes_ = 0;
  std::uint64_t pass_disk_bytes_ = 0;
  bool is_pass_open_ = false;
  std::unique_ptr<RunRecorder> recorder_;  ///< Null: nothing is recorded.
  std::optional<plan::Plan> plan_;         ///< That is followed; for the run log only.
  RunClock::time_point pass_begin_ = {};
  RunClock::time_point last_release_ = {};
  std::atomic<std::uint64_t> read_base_bytes_ = 0;
  std::atomic<std::uint64_t> read_ram_bytes_ = 0;
  std::atomic<std::uint64_t> read_disk_bytes_ = 0;

  /// Last member: destroyed first, so that no read is in flight when memory and files go.
  std::unique_ptr<ExtentReader> reader_;
};

}  // namespace trash_panda::runtime
