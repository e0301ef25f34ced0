// What a streamer on a GPU does once: taking memory of the device, pinning, and giving both back.

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "trash_panda/base/printable.h"
#include "trash_panda/base/units.h"

#include "chunk_table.h"
#include "stream_core.h"

namespace trash_panda::runtime {

namespace {

/// One is copied to while another is used.
constexpr std::size_t kDeviceSlots = 2;

}  // namespace

StreamCore::~StreamCore() {
  copier_ = std::jthread();
  if (workers_ != nullptr) {
    workers_->stop();
  }
  reader_.reset();
  // Waits for all copies and uses, so that host memory can go.
  on_device_.reset();
  rest_pins();
  bool is_ram_pinned = false;
  for (Block& block : blocks_) {
    if (block.pin.close()) {
      continue;
    }
    if (block.is_promoted) {
      keep_for_good(std::move(block.own_home));
    } else {
      is_ram_pinned = true;
    }
  }
  if (is_ram_pinned) {
    keep_for_good(std::move(ram_memory_));
  }
  if (!slots_pin_.close()) {
    keep_for_good(slots_.take_memory());
  }
}

DeviceBlocks::Needs StreamCore::device_needs() const {
  DeviceBlocks::Needs needs;
  std::size_t streamed_count = 0;
  std::uint64_t streamed_bytes = 0;
  for (const Block& block : blocks_) {
    needs.compute_bytes = std::max(needs.compute_bytes, block.layout.compute_bytes);
    if (block.tier != format::Tier::kGpu) {
      ++streamed_count;
      streamed_bytes += block.extent->stored_bytes;
      needs.slot_bytes = std::max(needs.slot_bytes, device_bytes(*block.extent, block.layout));
    }
  }
  needs.slot_count = std::min(
      std::max<std::size_t>(options_.device_slot_count.value_or(kDeviceSlots), 1), streamed_count);
  needs.compute_count_max = std::max<std::size_t>(needs.slot_count, 2);
  needs.in_flight_bytes_max = std::min(options_.copy_bytes_in_flight_max, streamed_bytes);
  return needs;
}

/// What the tensors of the base will take, and its largest extent as it is stored, for the time
/// that it is expanded.
Result<std::uint64_t> StreamCore::base_device_bytes() const {
  std::uint64_t kept_bytes = 0;
  std::uint64_t stored_bytes = 0;
  for (const format::PackedExtent& extent : manifest_.extents) {
    if (extent.tier == format::Tier::kBase) {
      TP_ASSIGN_OR_RETURN(TensorLayout layout,
                          lay_out_tensors(extent, options_, Unchanged::kInPlace));
      if (layout.compute_bytes == 0) {
        kept_bytes += extent.stored_bytes;
        continue;
      }
      TP_ASSIGN_OR_RETURN(layout, lay_out_tensors(extent, options_, Unchanged::kCopied));
      kept_bytes += layout.compute_bytes;
      stored_bytes = std::max(stored_bytes, device_bytes(extent, layout));
    }
  }
  return kept_bytes + stored_bytes;
}

/// The block of tier gpu that is the next to wait in RAM instead.
std::optional<std::size_t> StreamCore::next_demotion() const {
  for (const std::uint64_t at : demote_gpu_) {
    if (at < blocks_.size() && blocks_[at].tier == format::Tier::kGpu) {
      return at;
    }
  }
  for (std::size_t at = blocks_.size(); at-- > 0;) {
    if (blocks_[at].tier == format::Tier::kGpu) {
      return at;
    }
  }
  return std::nullopt;
}

/// Takes all memory of the device for the tiers as they are.
Result<void> StreamCore::try_device_memory(std::uint64_t headroom_bytes) {
  on_device_.reset();
  base_reserve_ = DeviceMemory();
  for (Block& block : blocks_) {
    block.resident.reset();
  }
  // First what must be there: the base is read later, but must not find its memory taken.
  TP_ASSIGN_OR_RETURN(const std::uint64_t base_bytes, base_device_bytes());
  TP_ASSIGN_OR_RETURN(base_reserve_, device_->allocate(base_bytes + headroom_bytes));
  TP_ASSIGN_OR_RETURN(on_device_, DeviceBlocks::create(device_, device_needs()));
  for (Block& block : blocks_) {
    if (block.tier == format::Tier::kGpu) {
      TP_ASSIGN_OR_RETURN(block.resident,
                          on_device_->add_resident(device_bytes(*block.extent, block.layout)));
    }
  }
  return {};
}

/// Takes the memory of the device, with fewer blocks of tier gpu if need be.
Result<void> StreamCore::take_device_memory() {
  const std::uint64_t headroom_bytes = options_.device_headroom_bytes.value_or(0);
  Result<void> taken = try_device_memory(headroom_bytes);
  if (!taken && taken.error().code() == ErrorCode::kDoesNotFit && options_.free_device_cache) {
    on_device_.reset();
    options_.free_device_cache();
    taken = try_device_memory(headroom_bytes);
  }
  while (!taken && taken.error().code() == ErrorCode::kDoesNotFit) {
    const std::optional<std::size_t> next = next_demotion();
    if (!next) {
      taken = try_device_memory(0);  // What must be there may take it, with a warning.
      break;
    }
    blocks_[*next].tier = format::Tier::kRam;
    left_device_.push_back(*next);
    taken = try_device_memory(headroom_bytes);
  }
  if (taken && !left_device_.empty()) {
    options_.log(LogLevel::kWarning,
                 fmt::format("{} blocks of tier gpu wait in RAM: {} has no memory left for them",
                             left_device_.size(), device_->description()));
  }
  return taken;
}

/// Copies an extent of the base to the device for good.
///
/// @param bytes  As it was read; not needed any more when this returns.
Result<void> StreamCore::place_base_on_device(const format::PackedExtent& extent,
                                              std::span<const std::byte> bytes) {
  base_reserve_ = DeviceMemory();
  TP_ASSIGN_OR_RETURN(TensorLayout layout, lay_out_tensors(extent, options_, Unchanged::kInPlace));
  const bool is_made = layout.compute_bytes > 0;
  if (is_made) {
    TP_ASSIGN_OR_RETURN(layout, lay_out_tensors(extent, options_, Unchanged::kCopied));
  }
  TP_ASSIGN_OR_RETURN(DeviceMemory made, device_->allocate(layout.compute_bytes));
  TP_ASSIGN_OR_RETURN(const std::vector<std::uint32_t> chunks, make_chunk_table(layout, bytes));
  TP_ASSIGN_OR_RETURN(DeviceMemory stored, device_->allocate(device_bytes(extent, layout)));
  Result<std::vector<TensorView>> tensors;
  Result<void> copied = copy_extent(*device_, stored.bytes, bytes, layout, chunks);
  if (copied) {
    tensors = device_->place(layout, stored.bytes, made.bytes, device_->copy_stream());
  }
  // Memory must not go while the device uses it, whatever was refused.
  const Result<void> done = device_->synchronize(device_->copy_stream());
  if (!done) {
    // Once more: the error may be of earlier work.
    static_cast<void>(device_->synchronize(device_->copy_stream()));
  }
  TP_RETURN_IF_ERROR(std::move(copied));
  TP_RETURN_IF_ERROR(tensors);
  TP_RETURN_IF_ERROR(done);
  const std::lock_guard lock(mutex_);
  std::ranges::move(*tensors, std::back_inserter(base_tensors_));
  base_device_memory_.push_back(is_made ? std::move(made) : std::move(stored));
  return {};
}

/// Pins the slots, which everything else comes through, and as much of the RAM tier as may be.
void StreamCore::pin_memory() {
  PinLedger* const pins = device_->pins();
  if (pins == nullptr) {
    return;
  }
  bool are_slots_pinned = true;
  if (!slots_.span().empty()) {
    slots_pin_ = pins->add(*device_, slots_.span());
    are_slots_pinned = slots_pin_.begin_use();
  }
  std::uint64_t waiting_bytes = 0;
  std::uint64_t pinned_bytes = 0;
  for (Block& block : blocks_) {
    if (block.tier == format::Tier::kRam) {
      block.pin = pins->add(*device_, block.home);
      waiting_bytes += block.home.size();
      pinned_bytes += block.pin.begin_use() ? block.home.size() : 0;
    }
  }
  for (Block& block : blocks_) {
    block.pin.end_use();
  }
  if (!are_slots_pinned || pinned_bytes < waiting_bytes) {
    options_.log(
        LogLevel::kWarning,
        fmt::format(
            "{} of {} of the RAM tier {} pinned (cap {}): copies of the rest are waited for",
            format_bytes(pinned_bytes), format_bytes(waiting_bytes),
            are_slots_pinned ? "are" : "and no slots are", format_bytes(pins->size_bytes_max())));
  }
}

void StreamCore::start_copying() {
  copier_ = std::jthread([this](const std::stop_token& stop) { copy_in_background(stop); });
}

Result<void> StreamCore::check_on_device() const {
  if (device_->is_host() || on_device_) {
    return {};
  }
  return std::unexpected(
      Error(ErrorCode::kUsage, fmt::format("{} has given back its memory of {}", printable(pack_),
                                           device_->description()))
          .with_hint("restore it first"));
}

/// Gives back all memory of the device. No block is held, and nobody copies.
void StreamCore::forget_device() {
  on_device_.reset();
  for (Block& block : blocks_) {
    block.place.reset();
    block.resident.reset();
  }
  base_tensors_.clear();
  base_memory_.clear();
  base_device_memory_.clear();
  base_reserve_ = DeviceMemory();
}

Result<void> StreamCore::check_decoded() {
  const std::lock_guard lock(mutex_);
  if (on_device_) {
    TP_RETURN_IF_ERROR(on_device_->wait_for_uses());
  }
  return device_->check_decoded();
}

Result<void> StreamCore::release_device() {
  if (device_->is_host()) {
    return {};
  }
  const auto refuse_held = [this]() -> Result<void> {
    const auto held = std::ranges::find_if(blocks_, &Block::lease_count);
    if (held == blocks_.end()) {
      return {};
    }
    return std::unexpected(
        Error(ErrorCode::kUsage, fmt::format("block \"{}\" is in use on {}",
                                             printable(held->extent->name), device_->description()))
            .with_hint("release its lease first"));
  };
  {
    const std::lock_guard lock(mutex_);
    TP_RETURN_IF_ERROR(refuse_held());
  }
  // Without the lock, which that thread needs to come to its end.
  copier_ = std::jthread();
  const std::lock_guard lock(mutex_);
  if (Result<void> held = refuse_held(); !held) {
    start_copying();
    return held;
  }
  forget_device();
  rest_pins();
  return {};
}

Result<void> StreamCore::restore_device() {
  {
    const std::lock_guard lock(mutex_);
    if (device_->is_host() || on_device_) {
      return {};
    }
    Result<void> taken = try_device_memory(options_.device_headroom_bytes.value_or(0));
    if (!taken && taken.error().code() == ErrorCode::kDoesNotFit && !next_demotion()) {
      taken = try_device_memory(0);  // As when it was opened.
    }
    if (!taken) {
      forget_device();
      return taken;
    }
  }
  if (Result<void> read = open_base(); !read) {
    const std::lock_guard lock(mutex_);
    forget_device();
    return read;
  }
  start_copying();
  return {};
}

}  // namespace trash_panda::runtime
