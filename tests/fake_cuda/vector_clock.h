#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace trash_panda::fake_cuda {

/// Who orders work: the host, as one, or a stream.
using Actor = std::size_t;
inline constexpr Actor kHost = 0;

/// How much of each actor's work is known to be done before something: what happens before what,
/// whatever the delays of one run.
class VectorClock {
 public:
  [[nodiscard]] std::uint64_t at(Actor actor) const {
    return actor < counts_.size() ? counts_[actor] : 0;
  }
  void tick(Actor actor) {
    grow(actor + 1);
    ++counts_[actor];
  }
  void join(const VectorClock& other) {
    grow(other.counts_.size());
    for (std::size_t actor = 0; actor < other.counts_.size(); ++actor) {
      counts_[actor] = std::max(counts_[actor], other.counts_[actor]);
    }
  }

 private:
  void grow(std::size_t size) { counts_.resize(std::max(counts_.size(), size)); }

  std::vector<std::uint64_t> counts_;
};

}  // namespace trash_panda::fake_cuda
