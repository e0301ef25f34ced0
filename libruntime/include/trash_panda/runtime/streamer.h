#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trash_panda/base/error.h"
#include "trash_panda/base/log.h"
#include "trash_panda/base/progress.h"
#include "trash_panda/base/units.h"
#include "trash_panda/format/manifest.h"
#include "trash_panda/plan/plan.h"
#include "trash_panda/runtime/device.h"
#include "trash_panda/runtime/io_engine.h"
#include "trash_panda/runtime/memory_group.h"

namespace trash_panda::runtime {

/// How much of a pack is checked when it is loaded.
enum class VerifyMode {
  kHeaders,  ///< Manifest, shard sizes and shard headers.
  kFull,     ///< Also every extent's checksum, each time that it is read from disk.
};

/// When memory for blocks of the RAM tier is taken.
enum class RamMemory {
  kAtOnce,    ///< By open(), as far as it fits: other blocks are read from disk, see promote().
  kAsNeeded,  ///< Block by block as they are read, and until drop().
};

struct StreamOptions {
  /// What weights are expanded to; nothing: every tensor as it is stored (fp8 stays fp8).
  std::optional<format::Dtype> compute_dtype;
  /// Exceptions from compute_dtype by tensor name or alias, such as buffers that keep their own
  /// dtype. Every name must be in the pack.
  std::map<std::string, format::Dtype> dtype_overrides;
  VerifyMode verify = VerifyMode::kHeaders;
  /// How much of the disk tier is read ahead of the block in use, at least one block; nothing: as
  /// the plan says, else two blocks.
  std::optional<std::uint64_t> lookahead_bytes;
  /// What is followed instead of the plan in the pack: tiers, budgets, orders of demotion, slots,
  /// how to read. For the same checkpoint, with all blocks of the pack, found by their names.
  /// open_checkpoint() has an argument for it.
  std::optional<plan::Plan> plan;
  /// Tier of each block (gpu, ram or disk); nothing: as `plan` says, else the manifest. Same length
  /// and order as the blocks.
  std::optional<std::vector<format::Tier>> tiers;
  /// How shards are read; stats().io_description says what is in force.
  IoBackend io = IoBackend::kAuto;
  /// Reads in flight for each drive, 1 to kReadDepthMax; nothing: as the plan says, in which the
  /// drive was measured, else four.
  std::optional<std::uint32_t> read_depth;
  /// Bytes of one read, 64 KiB to 64 MiB in steps of 64 KiB: large enough that the drive's setup
  /// cost vanishes, small enough that several are in flight for one block. Nothing: as the plan
  /// says, else 2 MiB.
  std::optional<std::uint64_t> read_request_bytes;
  /// Most weight memory that this streamer takes. Without it, all streamers of the process share
  /// what the machine, or its control group, has.
  std::optional<std::uint64_t> memory_bytes_max;
  /// A limit that this streamer shares with others; null: none.
  std::shared_ptr<MemoryGroup> memory_group;
  RamMemory ram_memory = RamMemory::kAtOnce;
  /// What computes; null: the CPU.
  std::shared_ptr<Device> device;
  /// Slots of the device that blocks stream through, at least 1; nothing: as the plan says, else
  /// two, so that one block is copied while another is used.
  std::optional<std::size_t> device_slot_count;
  /// Bytes of copies to the device that are queued at one time, but always one copy.
  std::uint64_t copy_bytes_in_flight_max = 384 * kMiB;
  /// Memory of the device that blocks of tier gpu leave free, beside what was in use before;
  /// nothing: as the plan says, where it is for a GPU. If less is free once the pack is open, or at
  /// the begin of a pass less than what activations leave of it, one warning says so: drivers that
  /// then move memory of the device into RAM make everything slow.
  std::optional<std::uint64_t> device_headroom_bytes;
  /// Asks whoever else uses the device in this process to give up memory that is only cached
  /// (torch: `empty_cache()`): called once, before blocks of tier gpu are moved to RAM for want of
  /// memory.
  std::function<void()> free_device_cache;
  /// File for a log of what is done when (JSON lines, schemas/run_log.schema.json), replaced if it
  /// exists; empty: none.
  std::filesystem::path run_log;
  /// Once set, open() and acquire() wait for no read any more, but end with kInterrupted, and
  /// nothing is read. On the CPU; with a GPU acquire() does not look at it.
  StopFlag stop = nullptr;
  Logger log = silent_logger();
};

/// A tensor in memory of the streamer, or of its device: then `data` is an address of the device.
/// `data` is valid as long as what it came from.
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
  std::uint64_t read_bytes_ram = 0;       ///< RAM and gpu tiers, first use only.
  std::uint64_t read_bytes_disk = 0;      ///< Disk tier, every pass.
  std::uint64_t pass_read_bytes_ram = 0;  ///< Of the last complete pass.
  std::uint64_t pass_read_bytes_disk = 0;
  /// Blocks that open() left on disk, and that stay in RAM now; and their memory.
  std::uint64_t promoted_block_count = 0;
  std::uint64_t promoted_bytes = 0;
  std::uint64_t demoted_block_count = 0;  ///< Of the RAM tier, but for want of memory on disk.
  /// Of tier gpu, but for want of the device's memory in RAM.
  std::uint64_t device_demoted_block_count = 0;
  std::uint64_t mispredict_count = 0;         ///< Blocks acquired out of the expected order.
  std::uint64_t wait_ns = 0;                  ///< Time that acquire() waited for reads.
  std::uint64_t weight_memory_bytes = 0;      ///< Booked now: base, RAM tier, slots.
  std::uint64_t weight_memory_bytes_max = 0;  ///< The most that was ever booked.
  std::uint64_t device_memory_bytes = 0;      ///< Taken on the device; 0 on the CPU.
  std::string device_description;             ///< "NVIDIA H200, asynchronous copies".
  std::string io_description;  ///< Engine and mode in force: "io_uring x4, direct (ext4)".
};

class StreamCore;
class Streamer;

/// A block's tensors, in memory until the lease ends. Move-only; ending it (release() or the
/// destructor) gives the slot back for the next block.
///
/// On a GPU, what the stream of acquire() was given before the lease ends may use the tensors, and
/// nothing after: the CPU need not wait for it.
///
/// May end on any thread, and in any order with others. One that outlives its streamer keeps the
/// streamer's memory.
class BlockLease {
 public:
  /// An ended lease.
  BlockLease() = default;
  BlockLease(BlockLease&&) noexcept;
  BlockLease& operator=(BlockLease&&) noexcept;
  BlockLease(const BlockLease&) = delete;
  BlockLease& operator=(const BlockLease&) = delete;
  ~BlockLease();

  /// The block's tensors in the dtype asked for, by offset. Scales that were applied are not
  /// listed. Valid until the lease ends; none of an ended lease.
  [[nodiscard]] const std::vector<TensorView>& tensors() const;
  /// Ends the lease. Ending it again does nothing.
  void release();

 private:
  friend class Streamer;
  BlockLease(std::shared_ptr<StreamCore> core, std::size_t block_index, StreamHandle stream);
  std::shared_ptr<StreamCore> core_;  ///< Null when ended.
  std::size_t block_index_ = 0;
  StreamHandle stream_ = 0;
};

/// Streams a pack's blocks through fixed memory: the disk tier through slots that are read ahead
/// in the manifest's order, circularly, the RAM tier kept as it streams by in the first pass.
///
/// A disk block is read anew for every use: its slot goes to the next block when its last lease
/// ends. A block in use may be acquired again; the leases share its memory.
///
/// With a GPU, blocks of tier gpu stay in its memory, and all others are copied to it ahead of
/// their use, beside the computation: from RAM that is pinned where the cap of pinned memory
/// allows, and from pinned slots. Where the driver does not do what that needs, every copy is
/// waited for; tensors are the same. Blocks keep their addresses from pass to pass if the device's
/// slots divide the blocks that stream.
///
/// Where memory is short, open() leaves blocks of the RAM tier on disk, and of tier gpu in RAM, in
/// the order of the plan, and says so. They go to their tier when memory frees, at the begin
/// of a pass; all blocks of the disk tier may go to RAM, by promote(). What others need of that
/// memory they get: then those blocks are read, or copied, every pass again.
///
/// One thread at a time acquires; reading happens on the engine's threads. Destroying a streamer
/// gives up the reads in flight. The tensors are bit-identical whatever tiers and lookahead.
class Streamer {
 public:
  /// Opens the pack, reads the base tensors and begins to read the first blocks.
  ///
  /// All memory is taken here, except buffers for holding more than one expanded block at a time.
  ///
  /// @retval kMissing   `pack` is no pack.
  /// @retval kCorrupt   Manifest or shards are damaged.
  /// @retval kMismatch  A shard's header differs from its checksum, or a base extent (kFull).
  /// @retval kStale     The plan that is given is for another checkpoint.
  /// @retval kUsage     An option is wrong: plan, tiers, dtypes, how to read.
  /// @retval kDevice    The I/O backend that was asked for is refused, or the GPU's driver refuses.
  /// @retval kDoesNotFit  A limit of memory would be passed.
  /// @retval kOutput    The run log can't be written.
  /// @retval kFailed    The system refused memory or threads, or a read failed.
  /// @retval kInterrupted  StreamOptions::stop was set.
  static Result<Streamer> open(const std::filesystem::path& pack, const StreamOptions& options);

  /// The same for a checkpoint of safetensors files that was not packed: what packs have in one
  /// piece is read from where it lies. Weights are those that the pack would give.
  ///
  /// @param plan  Of the checkpoint.
  /// @retval kUnsupported  Only a pack can hold it, such as scales that need another form.
  /// @retval kStale        The plan is for another checkpoint.
  /// @retval kUsage        Also VerifyMode::kFull: there are no checksums.
  static Result<Streamer> open_checkpoint(const std::filesystem::path& checkpoint,
                                          const plan::Plan& plan, const StreamOptions& options);

  Streamer(Streamer&&) noexcept;
  Streamer& operator=(Streamer&&) noexcept;
  ~Streamer();

  [[nodiscard]] const format::Manifest& manifest() const;
  /// Tensors outside blocks, expanded; valid as long as the streamer, or until release_device().
  [[nodiscard]] const std::vector<TensorView>& base() const;
  [[nodiscard]] std::size_t block_count() const;
  /// The extent of a block, in execution order.
  [[nodiscard]] const format::PackedExtent& block(std::size_t block_index) const;
  /// Whether a block's tensors lie in memory of its own as they were read, so that holding its
  /// lease from use to use takes nothing from other blocks. False on a GPU, and of what is expanded
  /// for each use; it may change for blocks that promote() is about.
  [[nodiscard]] bool is_resident(std::size_t block_index) const;
  /// What a block is treated as now, whatever its extent says: gpu is ram on the CPU, and ram is
  /// disk where memory was short.
  [[nodiscard]] format::Tier tier(std::size_t block_index) const;
  /// Waits until a block's tensors are in memory and lends them. On a GPU: until the block is on
  /// its way to the device; what is queued on `stream` from now on waits for the rest by itself.
  ///
  /// Blocks are expected in order, circularly; another one is served all the same and counted.
  /// After a failure the streamer goes on working, and the next acquire() reads the block anew.
  ///
  /// @retval kMismatch  Its checksum differs (VerifyMode::kFull); the message names extent, shard.
  /// @retval kCorrupt   The shard has become shorter, reason "truncated"; or a tensor's code is
  ///                    damaged. On a GPU, damage inside a code is known once the block has been
  ///                    decoded: every acquire() on that device from then on says so, and
  ///                    check_decoded() does of what was acquired last.
  /// @retval kFailed    A read failed.
  /// @retval kUsage     More leases are held at once than there are slots, no such block, or its
  ///                    memory of the GPU was given back.
  /// @retval kDoesNotFit  A limit of memory would be passed by one more expanded block.
  /// @retval kDevice    The GPU's driver reports an error.
  /// @retval kInterrupted  StreamOptions::stop was set; so says every acquire() from then on.
  ///
  /// @param stream  On which the tensors will be used.
  Result<BlockLease> acquire(std::size_t block_index, StreamHandle stream = 0);
  /// Reads a block of the RAM tier that is not there yet, and waits for it: one at a time, so that
  /// others keep most of the drive. Any thread may call it, and others go on meanwhile.
  ///
  /// @retval kDoesNotFit  There is no memory for it (RamMemory::kAsNeeded); nothing was read.
  /// @retval kFailed      The read failed; the next acquire() tries again.
  /// @retval kUsage       There is no such block.
  Result<void> preload(std::size_t block_index);
  /// Lets blocks that are read every pass stay in RAM, as many as there is memory for: within the
  /// limits of the options, of the plan, and of what the system has left. Those that open()
  /// moved to disk come first, the last moved before the others; of the rest, any number of them
  /// leaves what streams spread over the model.
  ///
  /// Memory is booked and taken at once. It is filled by the next read of the block, which is made
  /// anyway; from then on the block is not read any more, until its memory is needed elsewhere: by
  /// this streamer for what it must have, or by another one that opens or has less than its plan.
  /// Any thread may call it. Others wait while memory is taken and, for a GPU, pinned.
  ///
  /// @param size_bytes_max  Most memory that is taken now.
  /// @return Bytes taken; 0 where there was no memory, or nothing streams.
  std::uint64_t promote(std::uint64_t size_bytes_max = UINT64_MAX);
  /// Gives back the memory of a block that nobody holds: of the RAM tier with
  /// RamMemory::kAsNeeded, which is read again when it is acquired, or of one that promote() keeps,
  /// which streams again.
  ///
  /// @return Bytes given back; 0 where there was nothing to give.
  std::uint64_t drop(std::size_t block_index);
  /// Waits until a GPU has done what the leases that ended were used for, and tells whether a code
  /// that it decoded was damaged. On the CPU acquire() has said so.
  ///
  /// @retval kCorrupt  Results since are wrong; verify_pack() finds the tensor.
  /// @retval kDevice   The GPU's driver reports an error.
  Result<void> check_decoded();
  /// Gives back what is taken of a GPU, weights and all; what waits in host memory stays. Until
  /// restore_device() nothing can be acquired, and base() is empty. On the CPU nothing happens.
  ///
  /// @retval kUsage  A lease is held.
  Result<void> release_device();
  /// Undoes release_device(): takes the memory again and reads the base. After a failure, all is as
  /// it was before.
  ///
  /// @retval kDoesNotFit  The device has not as much memory left; no tier is changed.
  /// @retval kDevice      The GPU's driver reports an error.
  /// @retval kFailed      A read failed.
  /// @retval kMismatch    An extent of the base differs from its checksum (VerifyMode::kFull).
  Result<void> restore_device();
  /// Writes what is left of the run log, the pass that is under way as if it ended here. What comes
  /// after is not logged. Without a log it does nothing; destroying the streamer does the same.
  void end_log();
  [[nodiscard]] StreamStats stats() const;

 private:
  explicit Streamer(std::shared_ptr<StreamCore> core);
  std::shared_ptr<StreamCore> core_;
};

}  // namespace trash_panda::runtime
