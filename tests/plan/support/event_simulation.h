#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <functional>
#include <queue>
#include <vector>

#include "trash_panda/plan/simulator.h"

namespace trash_panda::plan {

/// The runtime's rules of a pass, played event by event and chunk by chunk: slow, with no formula
/// to get wrong, and with the limit of what may be in flight to the GPU.
///
/// A copy is in flight from when it is handed to the GPU's queue to when it is done. A chunk is
/// handed over, in order, as soon as it lies in host memory, its block has a device slot, and the
/// limit is kept; a chunk that is larger than the limit goes alone.
class EventSimulation {
 public:
  /// @param in_flight_s_max  Limit of what is in flight, as the time that the link takes for it.
  EventSimulation(const PassModel& model, std::size_t pass_count, double in_flight_s_max)
      : model_(model),
        step_count_(pass_count * model.blocks.size()),
        in_flight_s_max_(in_flight_s_max),
        host_slots_free_(model.host_slot_count),
        device_slots_free_(model.device_slot_count),
        steps_(step_count_) {}

  /// When each computation ends, pass after pass, from a cold start.
  [[nodiscard]] std::vector<double> compute_ends_s() {
    start_all();
    while (!events_.empty()) {
      now_s_ = events_.top().at_s;
      // Everything that happens now, before anything is started by it.
      while (!events_.empty() && events_.top().at_s <= now_s_) {
        const Happening happening = events_.top();
        events_.pop();
        finish(happening);
      }
      start_all();
    }
    return ends_s_;
  }

  /// Most that was in flight at once, in the time that the link takes for it.
  [[nodiscard]] double in_flight_s_peak() const { return in_flight_s_peak_; }

 private:
  /// One chunk, or one computation, that a channel has finished with.
  struct Happening {
    double at_s;
    Channel channel;

    bool operator>(const Happening& other) const { return at_s > other.at_s; }
  };
  /// Chunks of one use of a block that each channel is done with.
  struct Progress {
    std::size_t read_count = 0;
    std::size_t decoded_count = 0;
    std::size_t copied_count = 0;
  };
  /// Where a channel is: the step that it serves next or now, and the chunk of it.
  struct Server {
    std::size_t step = 0;
    std::size_t chunk = 0;
    bool is_busy = false;
  };

  [[nodiscard]] const BlockCost& cost(std::size_t step) const {
    return model_.blocks[step % model_.blocks.size()];
  }
  [[nodiscard]] std::size_t chunk_count(std::size_t step) const {
    return static_cast<std::size_t>(cost(step).chunk_count);
  }
  [[nodiscard]] bool is_read(std::size_t step) const { return cost(step).read_s > 0; }
  [[nodiscard]] bool is_copied(std::size_t step) const {
    return model_.has_link && cost(step).copy_s > 0;
  }
  /// Chunks that lie in host memory as the link or the computation needs them.
  [[nodiscard]] std::size_t there_count(std::size_t step) const {
    if (!is_read(step)) {
      return chunk_count(step);
    }
    return cost(step).decode_s > 0 ? steps_[step].decoded_count : steps_[step].read_count;
  }

  void begin(Server& server, Channel channel, double lasts_s) {
    server.is_busy = true;
    events_.push({now_s_ + lasts_s, channel});
  }
  /// Leaves out the steps that a channel has nothing to do for.
  template <class Uses>
  void skip(Server& server, const Uses& uses) const {
    while (server.step < step_count_ && !uses(server.step)) {
      ++server.step;
    }
  }
  /// The channel is done with a chunk. @return Whether it was the step's last one.
  bool advance(Server& server) const {
    server.is_busy = false;
    if (++server.chunk < chunk_count(server.step)) {
      return false;
    }
    server.chunk = 0;
    ++server.step;
    return true;
  }

  void start_all() {
    start_disk();
    start_decoder();
    submit();
    start_link();
    start_compute();
  }

  void start_disk() {
    skip(disk_, [this](std::size_t step) { return is_read(step); });
    if (disk_.is_busy || disk_.step == step_count_) {
      return;
    }
    if (disk_.chunk == 0) {
      if (host_slots_free_ == 0) {
        return;
      }
      --host_slots_free_;
    }
    begin(disk_, Channel::kDisk, cost(disk_.step).read_s / cost(disk_.step).chunk_count);
  }

  void start_decoder() {
    skip(decoder_, [this](std::size_t step) { return cost(step).decode_s > 0; });
    if (!decoder_.is_busy && decoder_.step < step_count_ &&
        steps_[decoder_.step].read_count > decoder_.chunk) {
      begin(decoder_, Channel::kDecode,
            cost(decoder_.step).decode_s / cost(decoder_.step).chunk_count);
    }
  }

  /// Hands copies over as long as that is allowed.
  void submit() {
    while (true) {
      skip(submitter_, [this](std::size_t step) { return is_copied(step); });
      const std::size_t step = submitter_.step;
      if (step == step_count_ || there_count(step) <= submitter_.chunk) {
        return;
      }
      const double chunk_s = cost(step).copy_s / cost(step).chunk_count;
      if (in_flight_s_ > 0 && in_flight_s_ + chunk_s > in_flight_s_max_) {
        return;
      }
      if (submitter_.chunk == 0) {
        if (device_slots_free_ == 0) {
          return;
        }
        --device_slots_free_;
      }
      queue_.push_back(chunk_s);
      // Summed anew, so that nothing in flight is exactly 0.
      in_flight_s_ = queued_s();
      in_flight_s_peak_ = std::max(in_flight_s_peak_, in_flight_s_);
      advance(submitter_);
    }
  }
  [[nodiscard]] double queued_s() const {
    double sum_s = 0;
    for (const double chunk_s : queue_) {
      sum_s += chunk_s;
    }
    return sum_s;
  }

  void start_link() {
    skip(link_, [this](std::size_t step) { return is_copied(step); });
    if (!link_.is_busy && !queue_.empty()) {
      begin(link_, Channel::kLink, queue_.front());
    }
  }

  void start_compute() {
    const std::size_t step = compute_.step;
    if (compute_.is_busy || step == step_count_) {
      return;
    }
    const std::size_t ready_count = is_copied(step) ? steps_[step].copied_count : there_count(step);
    if (ready_count == chunk_count(step)) {
      begin(compute_, Channel::kCompute, cost(step).compute_s);
    }
  }

  void finish(const Happening& happening) {
    switch (happening.channel) {
      case Channel::kDisk:
        ++steps_[disk_.step].read_count;
        advance(disk_);
        return;
      case Channel::kDecode:
        ++steps_[decoder_.step].decoded_count;
        advance(decoder_);
        return;
      case Channel::kLink: {
        queue_.pop_front();
        in_flight_s_ = queued_s();
        const std::size_t step = link_.step;
        ++steps_[step].copied_count;
        if (advance(link_) && is_read(step)) {
          ++host_slots_free_;
        }
        return;
      }
      case Channel::kCompute:
        ends_s_.push_back(now_s_);
        device_slots_free_ += is_copied(compute_.step) ? 1U : 0U;
        host_slots_free_ += is_read(compute_.step) && !is_copied(compute_.step) ? 1U : 0U;
        ++compute_.step;
        compute_.is_busy = false;
        return;
    }
  }

  const PassModel& model_;
  std::size_t step_count_;
  double in_flight_s_max_;
  std::size_t host_slots_free_;
  std::size_t device_slots_free_;
  std::vector<Progress> steps_;
  Server disk_;
  Server decoder_;
  Server submitter_;
  Server link_;
  Server compute_;
  std::deque<double> queue_;  ///< Chunks in flight, by the time that the link takes for each.
  double in_flight_s_ = 0;
  double in_flight_s_peak_ = 0;
  double now_s_ = 0;
  std::priority_queue<Happening, std::vector<Happening>, std::greater<>> events_;
  std::vector<double> ends_s_;
};

}  // namespace trash_panda::plan
