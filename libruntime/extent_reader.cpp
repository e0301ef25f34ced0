#include "extent_reader.h"

#include <set>
#include <utility>

#include <fmt/format.h>

#include "trash_panda/base/units.h"

namespace trash_panda::runtime {

namespace {

constexpr std::uint64_t kRequestBytesMin = 64 * kKiB;
/// More in one request only makes the first bytes come later.
constexpr std::uint64_t kRequestBytesMax = 64 * kMiB;

Result<void> check_request_bytes(std::uint64_t request_bytes) {
  if (request_bytes >= kRequestBytesMin && request_bytes <= kRequestBytesMax &&
      request_bytes % kRequestBytesMin == 0) {
    return {};
  }
  return std::unexpected(
      Error(ErrorCode::kUsage, fmt::format("reads of {} bytes were asked for", request_bytes))
          .with_hint("64 KiB to 64 MiB are possible, in steps of 64 KiB"));
}

/// Passes each line on once: what one engine reports holds for the others, too.
Logger say_once(const Logger& log) {
  return [log, said = std::make_shared<std::set<std::string, std::less<>>>()](
             LogLevel level, std::string_view line) {
    if (said->emplace(line).second) {
      log(level, line);
    }
  };
}

}  // namespace

Result<ExtentReader> ExtentReader::create(const ShardFiles& shards,
                                          const ExtentReaderOptions& options) {
  TP_RETURN_IF_ERROR(check_request_bytes(options.request_bytes));
  ExtentReader reader;
  reader.shards_ = &shards;
  reader.request_bytes_ = options.request_bytes;
  TP_RETURN_IF_ERROR(reader.make_engines(options));
  return reader;
}

Result<void> ExtentReader::make_engines(const ExtentReaderOptions& options) {
  const Logger log = say_once(options.log);
  for (std::size_t drive = 0; drive < shards_->drive_count(); ++drive) {
    IoOptions io = {.backend = options.backend, .depth = options.depth, .log = log};
    bool is_hot = false;
    for (std::size_t shard = 0; shard < shards_->shard_count(); ++shard) {
      if (shards_->drive(shard) == drive) {
        io.files.push_back(&shards_->file(shard));
        is_hot = is_hot || options.is_hot[shard];
      }
    }
    if (is_hot) {
      io.memory.push_back(options.slots);
    }
    TP_ASSIGN_OR_RETURN(std::unique_ptr<IoEngine> engine, make_io_engine(io));
    // The one that reads pass after pass is the one to tell of.
    if (description_.empty() || is_hot) {
      description_ = engine->description();
    }
    engines_.push_back(std::move(engine));
  }
  if (engines_.size() > 1) {
    description_ += fmt::format(" for each of {} drives", engines_.size());
  }
  return {};
}

std::shared_ptr<ExtentRead> ExtentReader::start(std::span<const ExtentPiece> pieces,
                                                std::span<std::byte> target,
                                                const ExtentRead::ChunkCallback& on_chunk,
                                                const std::function<void()>& on_done) {
  std::vector<ReadPiece> reads;
  reads.reserve(pieces.size());
  for (const ExtentPiece& piece : pieces) {
    reads.push_back({.engine = engines_[shards_->drive(piece.file_index)].get(),
                     .file = &shards_->file(piece.file_index),
                     .offset_bytes = piece.offset_bytes,
                     .target = target.subspan(piece.target_offset_bytes, piece.size_bytes)});
  }
  return ExtentRead::start(reads, request_bytes_, on_chunk, on_done);
}

}  // namespace trash_panda::runtime
