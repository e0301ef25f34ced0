#pragma once

#include <algorithm>
#include <ctime>
#include <iterator>
#include <vector>

namespace trash_panda::bench {

/// CPU seconds of this thread.
inline double cpu_s() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// CPU seconds that `work` takes on this thread.
template <class Work>
double measure_cpu_s(const Work& work) {
  const double start_s = cpu_s();
  work();
  return cpu_s() - start_s;
}

/// The upper of the two in the middle, when their number is even.
inline double upper_median(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::ranges::nth_element(values, middle);
  return *middle;
}

}  // namespace trash_panda::bench
