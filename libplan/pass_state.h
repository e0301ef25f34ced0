#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

#include "trash_panda/plan/simulator.h"

namespace trash_panda::plan {

/// When slots become free, oldest use first, as each is used in turn.
class SlotRing {
 public:
  explicit SlotRing(std::size_t count) : free_s_(count, 0.0) {}

  /// When the slot that is next in turn becomes free.
  [[nodiscard]] double next_free_s() const { return free_s_[next_]; }
  /// Uses that slot until `free_s`.
  void use_until(double free_s) {
    free_s_[next_] = free_s;
    next_ = next_ + 1 == free_s_.size() ? 0 : next_ + 1;
  }
  void shift(double by_s) {
    for (double& time_s : free_s_) {
      time_s -= by_s;
    }
  }
  /// Appends the times to `values`, next in turn first.
  void append_to(std::vector<double>& values) const {
    for (std::size_t at = 0; at < free_s_.size(); ++at) {
      values.push_back(free_s_[(next_ + at) % free_s_.size()]);
    }
  }

 private:
  std::vector<double> free_s_;
  std::size_t next_ = 0;
};

/// The runtime between two blocks: when each channel and slot becomes free. The rules of a pass are
/// in step() and nowhere else.
class PassState {
 public:
  PassState(std::size_t host_slot_count, std::size_t device_slot_count, bool has_link)
      : host_slots_(host_slot_count), device_slots_(device_slot_count), has_link_(has_link) {}

  /// Serves the next block. Fills `times` when it is not null.
  void step(const BlockCost& cost, BlockTimes* times = nullptr) {
    Feed feed;
    if (cost.read_s > 0) {
      feed = read(cost, times);
    }
    double ready_s = feed.end_s;
    Channel cause = feed.cause;
    const bool is_copied = has_link_ && cost.copy_s > 0;
    if (is_copied) {
      ready_s = copy(cost, feed, times);
      cause = link_cause_;
      if (cost.read_s > 0) {
        host_slots_.use_until(ready_s);
      }
    }
    const double begin_s = std::max(compute_free_s_, ready_s);
    if (times != nullptr) {
      times->compute_begin_s = begin_s;
      times->compute_end_s = begin_s + cost.compute_s;
      times->stall_s = begin_s - compute_free_s_;
      times->stalled_by = times->stall_s > 0 ? cause : Channel::kCompute;
    }
    compute_free_s_ = begin_s + cost.compute_s;
    if (is_copied) {
      device_slots_.use_until(compute_free_s_);
    } else if (cost.read_s > 0) {
      host_slots_.use_until(compute_free_s_);
    }
  }

  [[nodiscard]] double compute_free_s() const { return compute_free_s_; }

  /// Lets everything begin at `start_s` at the earliest.
  void start_at(double start_s) {
    disk_free_s_ = decode_free_s_ = link_free_s_ = compute_free_s_ = start_s;
  }

  /// Sets the clock back, so that times stay small and exact over many passes.
  void shift(double by_s) {
    disk_free_s_ -= by_s;
    decode_free_s_ -= by_s;
    link_free_s_ -= by_s;
    compute_free_s_ -= by_s;
    host_slots_.shift(by_s);
    device_slots_.shift(by_s);
  }

  /// All that later events depend on, of what `used` keeps busy at all.
  void append_to(const ChannelTimes& used, std::vector<double>& values) const {
    values.push_back(compute_free_s_);
    if (used[Channel::kDisk] > 0) {
      values.push_back(disk_free_s_);
      host_slots_.append_to(values);
    }
    if (used[Channel::kDecode] > 0) {
      values.push_back(decode_free_s_);
    }
    if (used[Channel::kLink] > 0) {
      values.push_back(link_free_s_);
      device_slots_.append_to(values);
    }
  }

 private:
  /// Before any time: what lies in memory already.
  static constexpr double kAlways = -std::numeric_limits<double>::infinity();

  /// How a block's bytes come into host memory.
  struct Feed {
    double first_s = kAlways;  ///< Its first chunk.
    double end_s = kAlways;    ///< All of it.
    double chunk_s = 0;        ///< Between two chunks, at the end.
    Channel cause = Channel::kDisk;
  };

  Feed read(const BlockCost& cost, BlockTimes* times) {
    const double begin_s = std::max(disk_free_s_, host_slots_.next_free_s());
    disk_free_s_ = begin_s + cost.read_s;
    Feed feed{.first_s = begin_s + cost.read_s / cost.chunk_count, .end_s = disk_free_s_};
    if (cost.decode_s > 0) {
      // Chunk j is decoded after chunk j - 1 and after its own read: the last one ends by one of
      // the two, whichever is slower from its first chunk or to its last.
      const double chunk_s = cost.decode_s / cost.chunk_count;
      const double decode_begin_s = std::max(decode_free_s_, feed.first_s);
      const double by_decoding_s = decode_begin_s + cost.decode_s;
      const double by_reading_s = feed.end_s + chunk_s;
      feed.cause = by_decoding_s > by_reading_s ? Channel::kDecode : Channel::kDisk;
      feed.first_s = decode_begin_s + chunk_s;
      feed.end_s = decode_free_s_ = std::max(by_decoding_s, by_reading_s);
    }
    if (times != nullptr) {
      times->read_begin_s = begin_s;
      times->read_end_s = disk_free_s_;
      times->decode_end_s = feed.end_s;
    }
    return feed;
  }

  /// Copies a block chunk by chunk, behind its feed. @return When the copy ends.
  double copy(const BlockCost& cost, const Feed& feed, BlockTimes* times) {
    const double from_channel_s = std::max(link_free_s_, device_slots_.next_free_s());
    const double begin_s = std::max(from_channel_s, feed.first_s);
    const double by_copying_s = begin_s + cost.copy_s;
    const double by_feed_s =
        cost.read_s > 0 ? feed.end_s + cost.copy_s / cost.chunk_count : by_copying_s;
    if (by_feed_s > by_copying_s || begin_s > from_channel_s) {
      link_cause_ = feed.cause;
    } else if (device_slots_.next_free_s() >= link_free_s_) {
      link_cause_ = Channel::kLink;
    }  // Else it waits for the copy before it, and for what that one waited.
    link_free_s_ = std::max(by_copying_s, by_feed_s);
    if (times != nullptr) {
      times->copy_begin_s = begin_s;
      times->copy_end_s = link_free_s_;
    }
    return link_free_s_;
  }

  double disk_free_s_ = 0;
  double decode_free_s_ = 0;
  double link_free_s_ = 0;
  double compute_free_s_ = 0;
  SlotRing host_slots_;
  SlotRing device_slots_;
  bool has_link_;
  Channel link_cause_ = Channel::kLink;
};

}  // namespace trash_panda::plan
