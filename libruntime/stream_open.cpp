#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "trash_panda/base/units.h"
#include "trash_panda/format/checksum.h"
#include "trash_panda/plan/plan_toml.h"

#include "checkpoint_view.h"
#include "host_device.h"
#include "stream_core.h"

namespace trash_panda::runtime {

namespace {

using format::PackedExtent;
using format::Tier;

/// Reads where neither caller nor plan say.
constexpr std::uint64_t kRequestBytes = 2 * kMiB;
constexpr std::uint32_t kReadDepth = 4;

/// A plan is a few hundred bytes per block; what is longer is no plan.
constexpr std::uint64_t kPlanBytesMax = 64 * kMiB;

Result<plan::Plan> read_plan(const std::filesystem::path& pack) {
  const std::filesystem::path path = pack / format::kPackPlanName;
  TP_ASSIGN_OR_RETURN(const File file, File::open(path));
  if (file.size_bytes() > kPlanBytesMax) {
    return std::unexpected(
        Error(ErrorCode::kCorrupt,
              fmt::format("{} has {}", printable(path), format_bytes(file.size_bytes()))));
  }
  std::string text(file.size_bytes(), '\0');
  TP_RETURN_IF_ERROR(file.read_exact_at(0, std::as_writable_bytes(std::span(text))));
  return plan::parse_plan_toml(text, printable(path));
}

/// A plan that was given for a pack, with the blocks that the pack has, in its order.
Result<plan::Plan> plan_for_pack(const plan::Plan& given, const format::Manifest& manifest) {
  if (given.model_fingerprint != manifest.source_fingerprint) {
    return std::unexpected(
        Error(ErrorCode::kStale, "the plan is for another checkpoint than the pack")
            .with_hint("make a new one with trash-panda plan"));
  }
  std::unordered_map<std::string_view, std::size_t> given_places;
  for (std::size_t at = 0; at < given.blocks.size(); ++at) {
    given_places.emplace(given.blocks[at].name, at);
  }
  plan::Plan plan = given;
  plan.blocks.clear();
  plan.placed.clear();
  std::unordered_map<std::uint64_t, std::uint64_t> places;  // In the pack, by those given.
  for (const PackedExtent& extent : manifest.extents) {
    if (extent.tier == Tier::kBase) {
      continue;
    }
    const auto found = given_places.find(extent.name);
    if (found == given_places.end()) {
      return std::unexpected(
          Error(ErrorCode::kUsage, fmt::format("the plan has no tier for block \"{}\" of the pack",
                                               printable(extent.name))));
    }
    places.emplace(found->second, plan.blocks.size());
    plan.blocks.push_back(given.blocks[found->second]);
  }
  for (std::vector<std::uint64_t>* const order : {&plan.demote_gpu, &plan.demote_ram}) {
    std::erase_if(*order, [&](std::uint64_t at) { return !places.contains(at); });
    std::ranges::transform(*order, order->begin(), [&](std::uint64_t at) { return places.at(at); });
  }
  return plan;
}

std::vector<Tier> tiers_of(const plan::Plan& plan) {
  std::vector<Tier> tiers;
  for (const plan::PlannedBlock& block : plan.blocks) {
    tiers.push_back(block.tier);
  }
  return tiers;
}

}  // namespace

Result<std::shared_ptr<StreamCore>> StreamCore::open(const std::filesystem::path& pack,
                                                     const StreamOptions& options) {
  auto core = std::make_shared<StreamCore>();
  core->pack_ = pack;
  TP_ASSIGN_OR_RETURN(core->manifest_, format::read_manifest(pack));
  TP_ASSIGN_OR_RETURN(core->options_, resolve_options(core->manifest_, options));
  if (options.plan) {
    TP_ASSIGN_OR_RETURN(const plan::Plan plan, plan_for_pack(*options.plan, core->manifest_));
    core->follow_plan(plan);
    if (!options.tiers) {
      core->options_.tiers = tiers_of(plan);
    }
  } else {
    core->follow_plan(read_plan(pack));
  }
  TP_ASSIGN_OR_RETURN(core->shards_, ShardFiles::open(pack, core->manifest_, options.log));
  return start(std::move(core), options);
}

Result<std::shared_ptr<StreamCore>> StreamCore::open_checkpoint(
    const std::filesystem::path& checkpoint, const plan::Plan& plan, const StreamOptions& options) {
  if (options.verify == VerifyMode::kFull) {
    return std::unexpected(
        Error(ErrorCode::kUsage,
              fmt::format("{} has no checksums to compare with", printable(checkpoint)))
            .with_hint("a pack has"));
  }
  auto core = std::make_shared<StreamCore>();
  core->pack_ = checkpoint;
  TP_ASSIGN_OR_RETURN(CheckpointView view, view_checkpoint(checkpoint, plan));
  core->manifest_ = std::move(view.manifest);
  core->pieces_ = std::move(view.pieces);
  TP_ASSIGN_OR_RETURN(core->options_, resolve_options(core->manifest_, options));
  core->follow_plan(plan);
  TP_ASSIGN_OR_RETURN(core->shards_, ShardFiles::open_checkpoint(
                                         view.files, core->manifest_.page_bytes, options.log));
  return start(std::move(core), options);
}

/// Opens what lies behind manifest, options and files.
Result<std::shared_ptr<StreamCore>> StreamCore::start(std::shared_ptr<StreamCore> core,
                                                      const StreamOptions& options) {
  core->account_ = std::make_shared<MemoryAccount>(MemoryLedger::of_process(), core->pack_.string(),
                                                   options.memory_bytes_max, options.memory_group);
  core->device_ = options.device != nullptr ? options.device : std::make_shared<HostDevice>();
  core->stats_.device_description = core->device_->description();
  if (!core->device_->is_host() && options.ram_memory == RamMemory::kAsNeeded) {
    return std::unexpected(
        Error(ErrorCode::kUsage, "memory of the RAM tier can't be taken as needed for a GPU")
            .with_hint("it is pinned at once, so that copies run beside computation"));
  }
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
  core->take_ahead_memory();
  core->account_->offer(
      [offering = std::weak_ptr(core)](std::uint64_t wanted_bytes, GiveBack what) {
        const std::shared_ptr<StreamCore> giving = offering.lock();
        return giving == nullptr ? 0 : giving->reclaim(wanted_bytes, what);
      });
  if (core->on_device_) {
    core->warn_of_spilling(core->options_.device_headroom_bytes.value_or(0));
    core->start_copying();
  } else {
    const std::lock_guard lock(core->mutex_);
    core->prefetch();
  }
  return core;
}

/// Fills in what the caller left to the plan. Only speed depends on it: a pack without its
/// plan still streams.
void StreamCore::follow_plan(const Result<plan::Plan>& plan) {
  if (!plan && !options_.lookahead_bytes) {
    options_.log(LogLevel::kWarning, fmt::format("{}: reading {} blocks ahead",
                                                 plan.error().message(), lookahead_blocks_));
  }
  if (plan) {
    if (!options_.run_log.empty()) {
      plan_ = *plan;
    }
    if (!options_.lookahead_bytes && plan->lookahead_bytes > 0) {
      options_.lookahead_bytes = plan->lookahead_bytes;
    }
    lookahead_blocks_ = plan->request.lookahead_blocks.value_or(lookahead_blocks_);
    if (!options_.device_slot_count && plan->device_slot_count > 0) {
      options_.device_slot_count = plan->device_slot_count;
    }
    demote_gpu_ = plan->demote_gpu;
    demote_ram_ = plan->demote_ram;
    if (!options_.device_headroom_bytes) {
      options_.device_headroom_bytes = plan->vram_headroom_bytes();
    }
    if (plan->ram_budget_bytes > 0) {
      ram_budget_bytes_ = plan->ram_budget_bytes;
    }
    const plan::Rates& rates = plan->rates;
    if (!options_.read_request_bytes) {
      options_.read_request_bytes = rates.disk_request_bytes;
    }
    if (!options_.read_depth && rates.disk_queue_depth) {
      options_.read_depth = std::min<std::uint64_t>(*rates.disk_queue_depth, kReadDepthMax);
    }
  }
  options_.read_request_bytes = options_.read_request_bytes.value_or(kRequestBytes);
  options_.read_depth = options_.read_depth.value_or(kReadDepth);
}

/// Reads the extents of the base. Each is queued before the one before it has come in, and the
/// first blocks behind the last, so that the drive is never without work.
Result<void> StreamCore::open_base() {
  std::shared_ptr<ExtentRead> read;
  std::shared_ptr<ExtentRead> next;
  Result<void> done = read_base(read, next);
  base_reserve_ = DeviceMemory();
  if (!done) {
    if (done.error().code() == ErrorCode::kInterrupted) {
      give_up_reading();
    }
    // What is still under way must not find its memory gone.
    for (const std::shared_ptr<ExtentRead>& under_way : {read, next}) {
      if (under_way != nullptr) {
        static_cast<void>(under_way->wait());
      }
    }
  }
  return done;
}

/// @param read, next  The reads that may be under way when this fails.
Result<void> StreamCore::read_base(std::shared_ptr<ExtentRead>& read,
                                   std::shared_ptr<ExtentRead>& next) {
  std::vector<const PackedExtent*> extents;
  for (const PackedExtent& extent : manifest_.extents) {
    if (extent.tier == Tier::kBase) {
      extents.push_back(&extent);
    }
  }
  if (!extents.empty()) {
    TP_ASSIGN_OR_RETURN(next, start_base(*extents.front()));
  }
  for (std::size_t at = 0; at < extents.size(); ++at) {
    read = std::exchange(next, nullptr);
    if (at + 1 < extents.size()) {
      TP_ASSIGN_OR_RETURN(next, start_base(*extents[at + 1]));
    } else {
      const std::lock_guard lock(mutex_);
      prefetch();
    }
    if (Result<void> done = read->wait(options_.stop); !done) {
      return std::unexpected(std::move(done).error().with_context(
          fmt::format("loading extent \"{}\"", printable(extents[at]->name))));
    }
    TP_RETURN_IF_ERROR(place_base(*extents[at], base_memory_[at]));
  }
  return {};
}

/// Takes memory for an extent of the base, and begins to read it.
Result<std::shared_ptr<ExtentRead>> StreamCore::start_base(const PackedExtent& extent) {
  Result<BookedBuffer> stored = account_->take(MemoryUse::kBase, extent.stored_bytes);
  while (!stored) {
    const std::lock_guard lock(mutex_);
    if (!demote_for(stored.error())) {
      return std::unexpected(std::move(stored).error());
    }
    stored = account_->take(MemoryUse::kBase, extent.stored_bytes);
  }
  base_memory_.push_back(*std::move(stored));
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
  if (!device_->is_host()) {
    TP_RETURN_IF_ERROR(place_base_on_device(extent, bytes));
    stored = BookedBuffer();
    return {};
  }
  TP_ASSIGN_OR_RETURN(TensorLayout layout, lay_out_tensors(extent, options_, Unchanged::kInPlace));
  BookedBuffer compute;
  if (layout.compute_bytes > 0) {
    // Resident for good: what stays as it is moves along, and the stored form is given back.
    TP_ASSIGN_OR_RETURN(layout, lay_out_tensors(extent, options_, Unchanged::kCopied));
    TP_ASSIGN_OR_RETURN(compute, account_->take(MemoryUse::kBase, layout.compute_bytes));
  }
  TP_ASSIGN_OR_RETURN(std::vector<TensorView> tensors,
                      device_->place(layout, bytes, compute.span(), /*stream=*/0));
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
  if (!device_->is_host()) {
    TP_RETURN_IF_ERROR(take_device_memory());
  }
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
    if (block.tier == Tier::kGpu && device_->is_host()) {
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

/// How far to read ahead.
std::uint64_t StreamCore::ahead_bytes() const {
  std::uint64_t largest_bytes = 0;
  for (const Block& block : blocks_) {
    largest_bytes = std::max(largest_bytes, block.extent->stored_bytes);
  }
  return options_.lookahead_bytes.value_or(lookahead_blocks_ * largest_bytes);
}

StreamCore::HostNeeds StreamCore::host_needs() const {
  HostNeeds needs;
  std::size_t disk_count = 0;
  for (const Block& block : blocks_) {
    const std::uint64_t stored_bytes = block.extent->stored_bytes;
    if (device_->is_host()) {
      needs.compute_bytes = std::max(needs.compute_bytes, block.layout.compute_bytes);
    }
    if (block.tier == Tier::kRam) {
      needs.ram_bytes += stored_bytes;  // Within the shards' sizes: can't overflow.
    } else {
      needs.slot_bytes = std::max(needs.slot_bytes, stored_bytes);
      ++disk_count;
    }
  }
  needs.slot_count = slot_count_of(ahead_bytes(), needs.slot_bytes, disk_count);
  return needs;
}

Result<void> StreamCore::take_memory() {
  const bool is_at_once = options_.ram_memory == RamMemory::kAtOnce;
  if (is_at_once) {
    TP_RETURN_IF_ERROR(demote_to_fit());
  }
  list_disk_blocks();
  window_bytes_ = ahead_bytes();
  const HostNeeds needs = host_needs();
  const std::uint64_t ram_bytes = is_at_once ? needs.ram_bytes : 0;
  log_memory(ram_bytes + needs.slot_count * needs.slot_bytes);
  TP_ASSIGN_OR_RETURN(ram_memory_, account_->take(MemoryUse::kRamTier, ram_bytes));
  TP_ASSIGN_OR_RETURN(slots_, SlotPool::create(*account_, needs.slot_count, needs.slot_bytes));
  std::uint64_t at_bytes = 0;
  for (Block& block : blocks_) {
    if (block.tier == Tier::kRam && is_at_once) {
      block.home = ram_memory_.span().subspan(at_bytes, block.extent->stored_bytes);
      at_bytes += block.extent->stored_bytes;
    }
  }
  pin_memory();
  return take_compute_memory(needs.compute_bytes);
}

/// Memory that tensors are made in. As many blocks may be held with such tensors as without; two at
/// least, so that a block can be acquired before the one before it is released, whatever the tiers.
///
/// @param buffer_bytes  Of the tensors of one block; 0: none are made.
Result<void> StreamCore::take_compute_memory(std::uint64_t buffer_bytes) {
  const std::size_t buffer_count_max = std::max<std::size_t>(slots_.slot_count(), 2);
  compute_.emplace(*account_, buffer_bytes, buffer_count_max);
  if (buffer_bytes == 0) {
    return {};
  }
  TP_RETURN_IF_ERROR(compute_->reserve(1));
  for (std::size_t buffer = 0; buffer < buffer_count_max; ++buffer) {
    makers_.push_back(std::make_unique<TensorMaker>());
  }
  // On one CPU, too: there is time while something is read.
  const std::size_t thread_count = std::max<std::size_t>(tensor_thread_count() - 1, 1);
  workers_ = std::make_unique<TensorWorkers>(thread_count, [this] {
    const std::lock_guard lock(mutex_);
    make_ahead();
  });
  return {};
}

Result<void> StreamCore::open_reader() {
  ExtentReaderOptions reading = {.backend = options_.io,
                                 .depth = *options_.read_depth,
                                 .request_bytes = *options_.read_request_bytes,
                                 .slots = slots_.span(),
                                 .is_hot = std::vector<bool>(shards_.shard_count()),
                                 .log = options_.log};
  for (const Block& block : blocks_) {
    for (const ExtentPiece& piece : pieces_of(*block.extent)) {
      reading.is_hot[piece.file_index] =
          reading.is_hot[piece.file_index] || block.tier == Tier::kDisk;
    }
  }
  TP_ASSIGN_OR_RETURN(ExtentReader reader, ExtentReader::create(shards_, reading));
  reader_ = std::make_unique<ExtentReader>(std::move(reader));
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
  const auto count = [this](Tier tier) { return std::ranges::count(blocks_, tier, &Block::tier); };
  std::string on_device;
  if (on_device_) {
    on_device = fmt::format("{} kept on the device ({} taken there), ", count(Tier::kGpu),
                            format_bytes(on_device_->size_bytes()));
  }
  options_.log(
      LogLevel::kInfo,
      fmt::format(
          "{} blocks: {}{} kept in RAM ({}), {} read every pass through {} slots ({}); {}{}",
          blocks_.size(), on_device, count(Tier::kRam), format_bytes(ram_memory_.size_bytes()),
          count(Tier::kDisk), slots_.slot_count(), format_bytes(slots_.size_bytes()),
          stats_.io_description, on_device_ ? "; " + stats_.device_description : ""));
}

std::vector<ExtentPiece> StreamCore::pieces_of(const PackedExtent& extent) const {
  if (pieces_.empty()) {
    return {{.file_index = extent.shard_index,
             .offset_bytes = extent.offset_bytes,
             .size_bytes = extent.stored_bytes,
             .target_offset_bytes = 0}};
  }
  return pieces_[static_cast<std::size_t>(&extent - manifest_.extents.data())];
}

std::shared_ptr<ExtentRead> StreamCore::read_extent(const PackedExtent& extent,
                                                    std::span<std::byte> target,
                                                    std::atomic<std::uint64_t>& counter) {
  std::function<void()> on_done;
  if (!device_->is_host()) {
    on_done = [this] { note_work(); };
  } else if (workers_ != nullptr) {
    on_done = [this] { workers_->call(); };
  }
  return reader_->start(
      pieces_of(extent), target, [&counter](std::uint64_t chunk_bytes) { counter += chunk_bytes; },
      on_done);
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
