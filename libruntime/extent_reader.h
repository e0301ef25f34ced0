#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trash_panda/base/error.h"
#include "trash_panda/base/log.h"
#include "trash_panda/format/manifest.h"
#include "trash_panda/runtime/io_engine.h"

#include "extent_piece.h"
#include "extent_read.h"
#include "shard_files.h"

namespace trash_panda::runtime {

struct ExtentReaderOptions {
  IoBackend backend = IoBackend::kAuto;
  std::uint32_t depth = 0;          ///< Reads in flight, for each drive.
  std::uint64_t request_bytes = 0;  ///< Of one read, a multiple of the pack's page.
  /// Where extents of the disk tier go, pass after pass: worth being registered.
  std::span<std::byte> slots = {};
  /// By shard: whether it has extents that are read pass after pass.
  std::vector<bool> is_hot = {};
  Logger log = silent_logger();
};

/// Reads extents of a pack. Each drive has an engine of its own, so that all work at once, and a
/// slow one does not take the places of a fast one.
///
/// Thread-safe. Destroying it ends all reading, as destroying an engine does.
class ExtentReader {
 public:
  /// @param shards  Outlive the reader.
  /// @retval kUsage   Depth or request size are out of range.
  /// @retval kDevice  The backend that was asked for is refused.
  /// @retval kFailed  The system refused threads.
  static Result<ExtentReader> create(const ShardFiles& shards, const ExtentReaderOptions& options);

  /// Queues the reads of an extent and returns at once.
  ///
  /// @param pieces    Where its bytes are.
  /// @param target    As long as the extent; left alone until the read is done.
  /// @param on_chunk  May be empty, as may `on_done`. @see ExtentRead::start()
  std::shared_ptr<ExtentRead> start(std::span<const ExtentPiece> pieces,
                                    std::span<std::byte> target,
                                    const ExtentRead::ChunkCallback& on_chunk,
                                    const std::function<void()>& on_done);
  /// Engines in force: "io_uring x4", or "io_uring x4 for each of 2 drives".
  [[nodiscard]] const std::string& description() const { return description_; }

 private:
  Result<void> make_engines(const ExtentReaderOptions& options);

  const ShardFiles* shards_ = nullptr;
  std::uint64_t request_bytes_ = 0;
  std::vector<std::unique_ptr<IoEngine>> engines_;  ///< By drive.
  std::string description_;
};

}  // namespace trash_panda::runtime
