#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "trash_panda/base/error.h"

#include "tensor_layout.h"

namespace trash_panda::runtime {

/// Making a tensor costs about as much as copying it: a few threads take all of the memory's
/// bandwidth.
inline constexpr std::size_t kTensorThreadCountMax = 4;

/// Threads that making tensors is worth on this machine, the caller's included: at least 1.
[[nodiscard]] std::size_t tensor_thread_count();

/// Makes the tensors of an extent that are not used where they were read: copies, decodes, expands.
/// One after the other for many extents; its memory is used again, so that none is allocated once
/// it has seen the largest.
///
/// Thread-safe: any number of threads may work() while one finishes. Only who began may finish or
/// give up, and begins again after that.
class TensorMaker {
 public:
  /// Where a worker puts a chunk that is expanded on, in its core's cache. One for each thread.
  using Scratch = std::vector<std::byte>;
  struct Times {
    std::chrono::steady_clock::time_point began;
    std::chrono::steady_clock::time_point ended;
  };

  /// Lists what is to be made. Nothing of it is done before somebody works.
  ///
  /// @param layout   Outlives the making, as its extent does.
  /// @param stored   The bytes of the extent.
  /// @param compute  The buffer that the layout's offsets are in.
  /// @retval kCorrupt  The code of a tensor is damaged; the message names it. Nothing is listed.
  Result<void> begin(const TensorLayout& layout, std::span<std::byte> stored,
                     std::span<std::byte> compute);
  /// Works until all is made, or something failed.
  void work(Scratch& scratch);
  /// Works, and says how it went when no thread does anything any more.
  ///
  /// @retval kCorrupt  The code of a tensor is damaged; the message names it.
  Result<void> finish(Scratch& scratch);
  /// Leaves undone what nobody has begun, and waits for the rest.
  void give_up();
  /// Bytes to be made.
  [[nodiscard]] std::uint64_t target_bytes() const { return target_bytes_; }
  /// From begin() to the end of the last piece. After finish().
  [[nodiscard]] Times times() const;

 private:
  /// What one thread does at a time: some chunks of a coded tensor, else a tensor.
  struct Job {
    const TensorStep* step;
    format::Dtype dtype;                ///< Of what is made.
    std::size_t chunk_count;            ///< 0: the tensor is not coded.
    std::size_t first_chunk;            ///< Into `offsets_`.
    std::span<const std::byte> source;  ///< The whole tensor.
    std::span<std::byte> target;        ///< Of these chunks.
  };

  Result<void> add(const TensorStep& step, std::span<std::byte> target,
                   std::span<std::byte> compute);
  Result<void> add_chunks(const TensorStep& step, format::Dtype dtype,
                          std::span<const std::byte> coded, std::span<std::byte> target);
  [[nodiscard]] Result<void> make(const Job& job, Scratch& scratch) const;
  [[nodiscard]] bool can_take() const;
  [[nodiscard]] bool is_over() const;
  void clear();

  std::span<std::byte> stored_;
  std::vector<std::uint64_t> offsets_;  ///< Of chunks in their tensors, tensor after tensor.
  std::vector<Job> scaled_;             ///< Of what others decode: a scale is of the whole tensor.
  std::uint64_t target_bytes_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Job> jobs_;         ///< Changed by begin() only.
  std::size_t first_scaled_ = 0;  ///< Jobs from here on wait for those before.
  std::size_t next_ = 0;
  std::size_t running_count_ = 0;
  std::optional<Error> failure_;
  Times times_ = {};
};

/// Lists the tensors of a layout, in its order.
///
/// @param stored, compute  As TensorMaker::begin() had them.
/// @param views            Replaced; its memory is used again.
void view_tensors(const TensorLayout& layout, std::span<std::byte> stored,
                  std::span<std::byte> compute, std::vector<TensorView>& views);

}  // namespace trash_panda::runtime
