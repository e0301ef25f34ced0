#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "trash_panda/plan/plan.h"

namespace trash_panda::plan {

/// What a pass keeps busy. Each serves one block after the other, in execution order.
enum class Channel { kDisk, kDecode, kLink, kCompute };

inline constexpr std::array kChannels = {Channel::kDisk, Channel::kDecode, Channel::kLink,
                                         Channel::kCompute};

/// "disk", "decode", "link" or "compute".
[[nodiscard]] std::string_view channel_name(Channel channel);

/// How long one block keeps each channel busy in a pass, in seconds; 0: not at all.
struct BlockCost {
  double read_s = 0;
  double decode_s = 0;   ///< zstd, on the CPU.
  double copy_s = 0;     ///< To the GPU.
  double compute_s = 0;  ///< Expansion included: it runs where the block is computed.
  /// Equal pieces in which the block is read, decoded and copied: each stage starts on the first
  /// one as soon as the stage before has finished it. At least 1.
  double chunk_count = 1;

  bool operator==(const BlockCost&) const = default;
};

/// A pass to be simulated.
struct PassModel {
  std::vector<BlockCost> blocks;  ///< In execution order.
  /// Slots that disk blocks are read into: each is held from the start of the read to the end of
  /// the copy or, without a link, of the computation. At least 1.
  std::size_t host_slot_count = 1;
  /// Slots that copies arrive in: each is held from the start of the copy to the end of the
  /// computation. At least 1.
  std::size_t device_slot_count = 1;
  bool has_link = false;  ///< Blocks with a copy are copied; else blocks are used in host memory.
};

/// Seconds that a pass takes at least on each channel: the sums over its blocks.
struct ChannelTimes {
  std::array<double, kChannels.size()> busy_s = {};

  [[nodiscard]] double operator[](Channel channel) const {
    return busy_s[static_cast<std::size_t>(channel)];
  }
  /// Counts a block in, or out again.
  void add(const BlockCost& cost) { add_part(cost, 1); }
  void subtract(const BlockCost& cost) { add_part(cost, -1); }
  /// No schedule is faster than this.
  [[nodiscard]] double bound_s() const;
  /// The channel that the bound comes from; of equals the last.
  [[nodiscard]] Channel limiting() const;

 private:
  void add_part(const BlockCost& cost, double part) {
    busy_s[static_cast<std::size_t>(Channel::kDisk)] += part * cost.read_s;
    busy_s[static_cast<std::size_t>(Channel::kDecode)] += part * cost.decode_s;
    busy_s[static_cast<std::size_t>(Channel::kLink)] += part * cost.copy_s;
    busy_s[static_cast<std::size_t>(Channel::kCompute)] += part * cost.compute_s;
  }
};

[[nodiscard]] ChannelTimes channel_times(std::span<const BlockCost> blocks);

/// When one block passes through the channels, in seconds from the start of its pass's first
/// computation; negative: in the pass before, as passes are circular.
struct BlockTimes {
  double read_begin_s = 0;
  double read_end_s = 0;
  double decode_end_s = 0;
  double copy_begin_s = 0;
  double copy_end_s = 0;
  double compute_begin_s = 0;
  double compute_end_s = 0;
  double stall_s = 0;  ///< Time before its computation that nothing was computed.
  /// What the stall waited for: the channel that would have to be faster.
  Channel stalled_by = Channel::kCompute;
};

struct Simulation {
  double pass_s = 0;   ///< Of a pass in the steady state.
  double stall_s = 0;  ///< Of it, time without computation.
  ChannelTimes channels;
  std::vector<BlockTimes> blocks;  ///< Of one pass in the steady state.
};

/// Time of a pass once passes repeat: each channel serves the blocks in order, one at a time, and
/// the last block of a pass is followed by the first of the next.
///
/// How much may be in flight to the GPU is not asked: copies are served one chunk after the other,
/// and where the next is handed over when one is done, room for a single chunk keeps the link as
/// busy as room for all. The runtime's limit is far above a chunk.
///
/// The events of such a pass are maxima of sums of the costs: raising a cost never makes it
/// faster, and two runs give equal results. Takes O(blocks) a pass, a few passes.
[[nodiscard]] double simulate_pass_s(const PassModel& model);

/// The same with the timeline of one pass and what it waits for.
[[nodiscard]] Simulation simulate(const PassModel& model);

/// Time from a cold start to the end of the first pass: `costs` tells what each block takes that
/// one time, when all of them come from the disk, after `start_s` for what is read before.
[[nodiscard]] double simulate_first_pass_s(const PassModel& costs, double start_s);

}  // namespace trash_panda::plan
