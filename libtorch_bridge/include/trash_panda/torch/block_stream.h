#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trash_panda/base/error.h"
#include "trash_panda/runtime/streamer.h"

namespace trash_panda::torch {

struct StreamState;
struct LeaseState;

/// A block's weights as tensors of LibTorch, in memory until the lease and all tensors that came
/// from it are gone. Move-only; release() or the destructor ends the lease's own part.
///
/// So a tensor that outlives its lease is as good as before, but keeps the block's slot: whoever
/// keeps tensors of more blocks than there are slots gets kUsage from the next acquire(). On a GPU,
/// the last of them goes when the work that uses it has been queued on the stream of acquire().
class BlockLease {
 public:
  BlockLease(BlockLease&&) noexcept;
  BlockLease& operator=(BlockLease&&) noexcept;
  BlockLease(const BlockLease&) = delete;
  BlockLease& operator=(const BlockLease&) = delete;
  ~BlockLease();

  /// Gives a weight, contiguous and without a copy: an alias of the streamer's memory, which
  /// belongs to others too, so don't write to it.
  ///
  /// Packed 4-bit floats come as Float4_e2m1fn_x2 with half as many columns, 6-bit floats, which
  /// torch has none of, as bytes.
  ///
  /// @param name  In the pack ("model.layers.0.mlp.up.weight"), an alias, or either without the
  ///              block's name ("mlp.up.weight").
  /// @throws c10::IndexError  The block has no such tensor; the message says what is near.
  /// @throws c10::Error       The lease has ended.
  [[nodiscard]] at::Tensor tensor(std::string_view name) const;
  /// Whether tensor() knows the name.
  [[nodiscard]] bool contains(std::string_view name) const;
  /// Full names, in the order in which the tensors lie in memory; valid as long as the stream.
  [[nodiscard]] std::vector<std::string_view> names() const;
  /// Ends the lease. Ending it again does nothing.
  void release();

 private:
  friend class Block;
  explicit BlockLease(std::shared_ptr<LeaseState> state);
  std::shared_ptr<LeaseState> state_;  ///< Null when ended.
};

/// One block of a pack, to be lent. A plain handle; keeps the stream's memory.
class Block {
 public:
  /// Place in execution order.
  [[nodiscard]] std::size_t index() const { return index_; }
  /// "model.layers.0"; valid as long as the stream.
  [[nodiscard]] std::string_view name() const;
  /// Waits until the block is in memory and lends it, for use on torch's current stream.
  ///
  /// @return What runtime::Streamer::acquire() returns, and kDevice where the pack streams to a GPU
  ///         and this torch can't use one.
  Result<BlockLease> acquire();
  /// The same for another stream than torch's current one.
  Result<BlockLease> acquire(runtime::StreamHandle stream);

 private:
  friend class BlockStream;
  Block(std::shared_ptr<StreamState> state, std::size_t index);
  std::shared_ptr<StreamState> state_;
  std::size_t index_;
};

/// Streams a pack's blocks as tensors of LibTorch, in C++:
///
///     auto stream = trash_panda::torch::BlockStream::open("model.panda");
///     for (auto& block : stream->pass()) {
///       auto lease = block.acquire();
///       hidden = layer(hidden, lease->tensor("mlp.up.weight"));
///     }
///
/// One thread at a time acquires; tensors may die on any thread. While a block is in use the next
/// ones are read, as runtime::Streamer does it.
class BlockStream {
 public:
  /// Opens a pack and begins to read its first blocks.
  ///
  /// @param options  Of the streamer. For a GPU, `device` is what runtime::open_cuda_device() gave
  ///                 for the ordinal by which torch knows it; torch's caching allocator then gives
  ///                 back what is only cached before blocks of tier gpu go to RAM for want of
  ///                 memory, unless `free_device_cache` says otherwise.
  /// @return What runtime::Streamer::open() returns.
  static Result<BlockStream> open(const std::filesystem::path& pack,
                                  runtime::StreamOptions options = {});

  /// All blocks in execution order, for one pass; the next pass begins with the first of them
  /// again. Valid as long as the stream. Blocks may be left out or repeated: those are served too.
  [[nodiscard]] std::span<Block> pass() { return blocks_; }
  /// Gives a tensor outside blocks (embeddings, heads), as BlockLease::tensor() does for a block's;
  /// it stays where it is as long as the stream or any tensor of it.
  ///
  /// @throws c10::IndexError  There is no such tensor outside blocks.
  [[nodiscard]] at::Tensor tensor(std::string_view name) const;
  [[nodiscard]] bool contains(std::string_view name) const;
  /// Names of the tensors outside blocks; valid as long as the stream.
  [[nodiscard]] std::vector<std::string_view> names() const;
  /// What streams: manifest and counters, preload() and drop(); valid as long as the stream.
  [[nodiscard]] runtime::Streamer& streamer() const;

 private:
  explicit BlockStream(std::shared_ptr<StreamState> state);
  std::shared_ptr<StreamState> state_;
  std::vector<Block> blocks_;
};

}  // namespace trash_panda::torch
