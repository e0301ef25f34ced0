#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "trash_panda/base/units.h"
#include "trash_panda/format/checksum.h"
#include "trash_panda/plan/plan_toml.h"

#include "host_device.h"
#include "stream_core.h"

namespace trash_panda::runtime {

namespace {

using format::PackedExtent;
using format::Tier;

/// Blocks of the largest size that are read ahead when neither caller nor plan say.
constexpr std::uint64_t kLookaheadBlocks = 2;

/// A plan is a few hundred bytes per block; what is longer is no plan.
constexpr std::uint64_t kPlanBytesMax = 64 * kMiB;

Result<std::uint64_t> planned_lookahead_bytes(const std::filesystem::path& pack) {
  const std::filesystem::path path = pack / format::kPackPlanName;
  TP_ASSIGN_OR_RETURN(const File file, File::open(path));
  if (file.size_bytes() > kPlanBytesMax) {
    return std::unexpected(
        Error(ErrorCode::kCorrupt,
              fmt::format("{} has {}", printable(path), format_bytes(file.size_bytes()))));
  }
  std::string text(file.size_bytes(), '\0');
  TP_RETURN_IF_ERROR(file.read_exact_at(0, std::as_writable_bytes(std::span(text))));
  TP_ASSIGN_OR_RETURN(const plan::Plan plan, plan::parse_plan_toml(text, printable(path)));
  return plan.lookahead_bytes;
}

}  // namespace

Result<std::shared_ptr<StreamCore>> StreamCore::open(const std::filesystem::path& pack,
                                                     const StreamOptions& options) {
  auto core = std::make_shared<StreamCore>();
  core->pack_ = pack;
  TP_ASSIGN_OR_RETURN(core->manifest_, format::read_manifest(pack));
  TP_ASSIGN_OR_RETURN(core->options_, resolve_options(core->manifest_, options));
  TP_ASSIGN_OR_RETURN(core->shards_, ShardFiles::open(pack, core->manifest_, options.log));
  core->account_ = std::make_shared<MemoryAccount>(MemoryLedger::of_process(), pack.string(),
                                                   options.memory_bytes_max);
  TP_RETURN_IF_ERROR(core->open_blocks());
  TP_RETURN_IF_ERROR(core->open_reader());
  core->stats_.io_description =
      fmt::format("{}, {}", core->reader_->description(), core->shards_.description());
  core->log_summary();
  TP_RETURN_IF_ERROR(core->open_recorder());
  if (!core->blocks_.empty()) {
    core->position_ = core->blocks_.size() - 1;  // Block 0 is the next one.
  }
  TP_RETURN_IF_ERROR(core->open_base());
  core->prefetch();
  return core;
}

/// Reads the extents of the base. Each is queued before the one before it has come in, and the
/// first blocks behind the last, so that the drive is never without work.
Result<void> StreamCore::open_base() {
  std::vector<const PackedExtent*> extents;
  for (const PackedExtent& extent : manifest_.extents) {
    if (extent.tier == Tier::kBase) {
      extents.push_back(&extent);
    }
  }
  std::shared_ptr<ExtentRead> next;
  if (!extents.empty()) {
    TP_ASSIGN_OR_RETURN(next, start_base(*extents.front()));
  }
  for (std::size_t at = 0; at < extents.size(); ++at) {
    const std::shared_ptr<ExtentRead> read = std::move(next);
    if (at + 1 < extents.size()) {
      TP_ASSIGN_OR_RETURN(next, start_base(*extents[at + 1]));
    } else {
      prefetch();
    }
    if (Result<void> done = read->wait(); !done) {
      return std::unexpected(std::move(done).error().with_context(
          fmt::format("loading extent \"{}\"", printable(extents[at]->name))));
    }
    TP_RETURN_IF_ERROR(place_base(*extents[at], base_memory_[at]));
  }
  return {};
}

/// Takes memory for an extent of the base, and begins to read it.
Result<std::shared_ptr<ExtentRead>> StreamCore::start_base(const PackedExtent& extent) {
  TP_ASSIGN_OR_RETURN(BookedBuffer stored, account_->take(MemoryUse::kBase, extent.stored_bytes));
  base_memory_.push_back(std::move(stored));
  return read_extent(extent, base_memory_.back().span().first(extent.stored_bytes),
                     read_base_bytes_);
}

/// Makes the tensors of an extent that has come in.
///
/// @param stored  Its memory, replaced where tensors are expanded.
Result<void> StreamCore::place_base(const PackedExtent& extent, BookedBuffer& stored) {
  const std::span<std::byte> bytes = stored.span().first(extent.stored_bytes);
  if (options_.verify == VerifyMode::kFull) {
    TP_RETURN_IF_ERROR(check_extent(extent, bytes));
  }
  TP_ASSIGN_OR_RETURN(TensorLayout layout, lay_out_tensors(extent, options_, Unchanged::kInPlace));
  BookedBuffer compute;
  if (layout.compute_bytes > 0) {
    // Resident for good: what stays as it is moves along, and the stored form is given back.
    TP_ASSIGN_OR_RETURN(layout, lay_out_tensors(extent, options_, Unchanged::kCopied));
    TP_ASSIGN_OR_RETURN(compute, account_->take(MemoryUse::kBase, layout.compute_bytes));
  }
  TP_ASSIGN_OR_RETURN(std::vector<TensorView> tensors,
                      HostDevice::place(layout, bytes, compute.span()));
  std::ranges::move(tensors, std::back_inserter(base_tensors_));
  if (layout.compute_bytes > 0) {
    stored = std::move(compute);
  }
  return {};
}

Result<void> StreamCore::open_blocks() {
  for (const PackedExtent& extent : manifest_.extents) {
    if (extent.tier != Tier::kBase) {
      Block block;
      block.extent = &extent;
      block.tier = extent.tier;
      TP_ASSIGN_OR_RETURN(block.layout, lay_out_tensors(extent, options_, Unchanged::kInPlace));
      blocks_.push_back(std::move(block));
    }
  }
  TP_RETURN_IF_ERROR(assign_tiers());
  return take_memory();
}

Result<void> StreamCore::assign_tiers() {
  if (options_.tiers && options_.tiers->size() != blocks_.size()) {
    return std::unexpected(
        Error(ErrorCode::kUsage, fmt::format("tiers are given for {} blocks, but the pack has {}",
                                             options_.tiers->size(), blocks_.size())));
  }
  std::size_t gpu_count = 0;
  for (std::size_t at = 0; at < blocks_.size(); ++at) {
    Block& block = blocks_[at];
    block.tier = options_.tiers ? (*options_.tiers)[at] : block.tier;
    if (block.tier == Tier::kBase) {
      return std::unexpected(
          Error(ErrorCode::kUsage, fmt::format("block \"{}\" can't be given the tier base",
                                               printable(block.extent->name)))
              .with_hint("tiers of blocks are gpu, ram and disk"));
    }
    if (block.tier == Tier::kGpu) {
      block.tier = Tier::kRam;
      ++gpu_count;
    }
  }
  if (gpu_count > 0) {
    options_.log(LogLevel::kInfo,
                 fmt::format("{} blocks of tier gpu wait in RAM: streaming on the CPU", gpu_count));
  }
  return {};
}

Result<void> StreamCore::take_memory() {
  std::uint64_t ram_bytes = 0;
  std::uint64_t largest_disk_bytes = 0;
  std::uint64_t largest_bytes = 0;
  std::uint64_t compute_bytes = 0;
  std::size_t disk_count = 0;
  for (const Block& block : blocks_) {
    const std::uint64_t stored_bytes = block.extent->stored_bytes;
    largest_bytes = std::max(largest_bytes, stored_bytes);
    compute_bytes = std::max(compute_bytes, block.layout.compute_bytes);
    if (block.tier == Tier::kRam) {
      ram_bytes += stored_bytes;  // Within the shards' sizes: can't overflow.
    } else {
      largest_disk_bytes = std::max(largest_disk_bytes, stored_bytes);
      ++disk_count;
    }
  }
  const std::uint64_t ahead_bytes = lookahead_bytes(largest_bytes);
  window_bytes_ = ahead_bytes;
  const std::size_t slot_count = slot_count_of(ahead_bytes, largest_disk_bytes, disk_count);
  log_memory(ram_bytes + slot_count * largest_disk_bytes);
  TP_ASSIGN_OR_RETURN(ram_memory_, account_->take(MemoryUse::kRamTier, ram_bytes));
  TP_ASSIGN_OR_RETURN(slots_, SlotPool::create(*account_, slot_count, largest_disk_bytes));
  std::uint64_t at_bytes = 0;
  for (Block& block : blocks_) {
    if (block.tier == Tier::kRam) {
      block.home = ram_memory_.span().subspan(at_bytes, block.extent->stored_bytes);
      at_bytes += block.extent->stored_bytes;
    }
  }
  // As many expanded blocks may be held as stored ones; two at least, so that a block can be
  // acquired before the one before it is released, whatever the tiers.
  compute_.emplace(*account_, compute_bytes, std::max<std::size_t>(slots_.slot_count(), 2));
  return compute_bytes == 0 ? Result<void>() : compute_->reserve();
}

Result<void> StreamCore::open_reader() {
  ExtentReaderOptions reading = {.backend = options_.io,
                                 .depth = options_.read_depth,
                                 .request_bytes = options_.read_request_bytes,
                                 .slots = slots_.span(),
                                 .is_hot = std::vector<bool>(shards_.shard_count()),
                                 .log = options_.log};
  for (const Block& block : blocks_) {
    if (block.tier == Tier::kDisk) {
      reading.is_hot[block.extent->shard_index] = true;
    }
  }
  TP_ASSIGN_OR_RETURN(reader_, ExtentReader::create(shards_, reading));
  return {};
}

std::uint64_t StreamCore::lookahead_bytes(std::uint64_t largest_extent_bytes) const {
  if (options_.lookahead_bytes) {
    return *options_.lookahead_bytes;
  }
  const Result<std::uint64_t> planned = planned_lookahead_bytes(pack_);
  if (!planned) {
    // Only speed depends on it: a pack without its plan still streams.
    options_.log(LogLevel::kWarning, fmt::format("{}: reading {} blocks ahead",
                                                 planned.error().message(), kLookaheadBlocks));
    return kLookaheadBlocks * largest_extent_bytes;
  }
  return *planned > 0 ? *planned : kLookaheadBlocks * largest_extent_bytes;
}

Result<void> StreamCore::open_recorder() {
  if (options_.run_log.empty()) {
    return {};
  }
  TP_ASSIGN_OR_RETURN(recorder_, RunRecorder::create(options_.run_log, options_.log));
  recorder_->add_run(pack_, stats_.io_description);
  std::vector<RunBlock> blocks;
  for (const Block& block : blocks_) {
    blocks.push_back({.name = block.extent->name,
                      .tier = block.tier,
                      .stored_bytes = block.extent->stored_bytes});
  }
  recorder_->add_blocks(blocks);
  recorder_->add_memory(account_->now_bytes(), MemoryLedger::of_process()->snapshot());
  return {};
}

/// What a process that is killed for its memory leaves as its last word.
///
/// @param needed_bytes  Of the RAM tier and the slots.
void StreamCore::log_memory(std::uint64_t needed_bytes) const {
  std::uint64_t base_bytes = 0;
  for (const PackedExtent& extent : manifest_.extents) {
    base_bytes += extent.tier == Tier::kBase ? extent.stored_bytes : 0;
  }
  options_.log(LogLevel::kDebug, fmt::format("{} is about to take {}; {}", printable(pack_),
                                             format_bytes(base_bytes + needed_bytes),
                                             MemoryLedger::of_process()->snapshot()));
}

void StreamCore::log_summary() const {
  const auto in_ram = std::ranges::count(blocks_, Tier::kRam, &Block::tier);
  options_.log(
      LogLevel::kInfo,
      fmt::format("{} blocks: {} kept in RAM ({}), {} read every pass through {} slots ({}); {}",
                  blocks_.size(), in_ram, format_bytes(ram_memory_.size_bytes()),
                  blocks_.size() - static_cast<std::size_t>(in_ram), slots_.slot_count(),
                  format_bytes(slots_.size_bytes()), stats_.io_description));
}

std::shared_ptr<ExtentRead> StreamCore::read_extent(const PackedExtent& extent,
                                                    std::span<std::byte> target,
                                                    std::atomic<std::uint64_t>& counter) {
  return reader_->start(extent, target,
                        [&counter](std::uint64_t chunk_bytes) { counter += chunk_bytes; });
}

Result<void> StreamCore::check_extent(const PackedExtent& extent,
                                      std::span<const std::byte> stored) const {
  if (format::checksum_hex(stored) == extent.checksum) {
    return {};
  }
  return std::unexpected(
      Error(ErrorCode::kMismatch,
            fmt::format("extent \"{}\" of {} differs from its checksum", printable(extent.name),
                        printable(pack_ / manifest_.shards[extent.shard_index].name)))
          .with_hint("copy or repack the pack again"));
}

}  // namespace trash_panda::runtime
