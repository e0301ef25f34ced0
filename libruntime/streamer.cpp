#include "trash_panda/runtime/streamer.h"

#include <utility>

#include "stream_core.h"

namespace trash_panda::runtime {

BlockLease::BlockLease(std::shared_ptr<StreamCore> core, std::size_t block_index,
                       StreamHandle stream)
    : core_(std::move(core)), block_index_(block_index), stream_(stream) {}

BlockLease::BlockLease(BlockLease&& other) noexcept
    : core_(std::exchange(other.core_, nullptr)),
      block_index_(other.block_index_),
      stream_(other.stream_) {}

BlockLease& BlockLease::operator=(BlockLease&& other) noexcept {
  if (this != &other) {
    release();
    core_ = std::exchange(other.core_, nullptr);
    block_index_ = other.block_index_;
    stream_ = other.stream_;
  }
  return *this;
}

BlockLease::~BlockLease() {
  release();
}

const std::vector<TensorView>& BlockLease::tensors() const {
  static const std::vector<TensorView> kNone;
  return core_ == nullptr ? kNone : core_->tensors(block_index_);
}

void BlockLease::release() {
  if (const std::shared_ptr<StreamCore> core = std::exchange(core_, nullptr)) {
    core->release(block_index_, stream_);
  }
}

Result<Streamer> Streamer::open(const std::filesystem::path& pack, const StreamOptions& options) {
  TP_ASSIGN_OR_RETURN(std::shared_ptr<StreamCore> core, StreamCore::open(pack, options));
  return Streamer(std::move(core));
}

Result<Streamer> Streamer::open_checkpoint(const std::filesystem::path& checkpoint,
                                           const plan::Plan& plan, const StreamOptions& options) {
  TP_ASSIGN_OR_RETURN(std::shared_ptr<StreamCore> core,
                      StreamCore::open_checkpoint(checkpoint, plan, options));
  return Streamer(std::move(core));
}

Streamer::Streamer(std::shared_ptr<StreamCore> core) : core_(std::move(core)) {}

Streamer::Streamer(Streamer&& other) noexcept = default;

Streamer& Streamer::operator=(Streamer&& other) noexcept {
  std::swap(core_, other.core_);
  return *this;
}

Streamer::~Streamer() {
  if (core_ != nullptr) {
    core_->close();
  }
}

const format::Manifest& Streamer::manifest() const {
  return core_->manifest();
}

const std::vector<TensorView>& Streamer::base() const {
  return core_->base();
}

std::size_t Streamer::block_count() const {
  return core_->block_count();
}

const format::PackedExtent& Streamer::block(std::size_t block_index) const {
  return core_->extent(block_index);
}

bool Streamer::is_resident(std::size_t block_index) const {
  return core_->is_resident(block_index);
}

format::Tier Streamer::tier(std::size_t block_index) const {
  return core_->tier(block_index);
}

Result<BlockLease> Streamer::acquire(std::size_t block_index, StreamHandle stream) {
  TP_RETURN_IF_ERROR(core_->acquire(block_index, stream));
  return BlockLease(core_, block_index, stream);
}

Result<void> Streamer::preload(std::size_t block_index) {
  return core_->preload(block_index);
}

std::uint64_t Streamer::promote(std::uint64_t size_bytes_max) {
  return core_->promote(size_bytes_max);
}

std::uint64_t Streamer::drop(std::size_t block_index) {
  return core_->drop(block_index);
}

Result<void> Streamer::check_decoded() {
  return core_->check_decoded();
}

Result<void> Streamer::release_device() {
  return core_->release_device();
}

Result<void> Streamer::restore_device() {
  return core_->restore_device();
}

void Streamer::end_log() {
  core_->end_log();
}

StreamStats Streamer::stats() const {
  return core_->stats();
}

}  // namespace trash_panda::runtime
