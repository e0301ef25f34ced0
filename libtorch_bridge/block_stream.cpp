#include "trash_panda/torch/block_stream.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include <ATen/ops/from_blob.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include "trash_panda/base/nearest_name.h"
#include "trash_panda/base/printable.h"
#include "trash_panda/runtime/array_shape.h"
#include "trash_panda/runtime/device.h"

namespace trash_panda::torch {
namespace {

using format::Dtype;
using runtime::StreamHandle;
using runtime::TensorView;

at::ScalarType scalar_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::kBool:
      return at::kBool;
    case Dtype::kU8:
    case Dtype::kF6E2M3:
    case Dtype::kF6E3M2:
      return at::kByte;
    case Dtype::kI8:
      return at::kChar;
    case Dtype::kF8E5M2:
      return at::kFloat8_e5m2;
    case Dtype::kF8E4M3:
      return at::kFloat8_e4m3fn;
    case Dtype::kF8E8M0:
      return at::kFloat8_e8m0fnu;
    case Dtype::kF8E4M3Fnuz:
      return at::kFloat8_e4m3fnuz;
    case Dtype::kF8E5M2Fnuz:
      return at::kFloat8_e5m2fnuz;
    case Dtype::kI16:
      return at::kShort;
    case Dtype::kU16:
      return at::kUInt16;
    case Dtype::kF16:
      return at::kHalf;
    case Dtype::kBf16:
      return at::kBFloat16;
    case Dtype::kI32:
      return at::kInt;
    case Dtype::kU32:
      return at::kUInt32;
    case Dtype::kF32:
      return at::kFloat;
    case Dtype::kC64:
      return at::kComplexFloat;
    case Dtype::kF64:
      return at::kDouble;
    case Dtype::kI64:
      return at::kLong;
    case Dtype::kU64:
      return at::kUInt64;
    case Dtype::kF4:
      return at::kFloat4_e2m1fn_x2;
    case Dtype::kGgmlBlock:
      break;  // In no pack.
  }
  TP_ASSERT(false);
}

/// Finds tensors by their names, by aliases, and by either without the name of their block.
class TensorNames {
 public:
  TensorNames() = default;
  TensorNames(const std::vector<TensorView>& tensors,
              const std::map<std::string, std::string>& aliases, const std::string& prefix) {
    for (std::size_t at = 0; at < tensors.size(); ++at) {
      places_.emplace(tensors[at].name, at);
    }
    for (const auto& [alias, name] : aliases) {
      if (const auto found = places_.find(name); found != places_.end()) {
        places_.emplace(alias, found->second);
      }
    }
    // A short name that is the full one of another tensor stays with that.
    for (const auto& [name, at] : std::unordered_map(places_)) {
      if (!prefix.empty() && name.starts_with(prefix)) {
        places_.try_emplace(name.substr(prefix.size()), at);
      }
    }
  }

  [[nodiscard]] std::optional<std::size_t> find(std::string_view name) const {
    const auto found = places_.find(name);
    return found == places_.end() ? std::nullopt : std::optional(found->second);
  }
  /// ", did you mean …", or nothing.
  [[nodiscard]] std::string advice(std::string_view name) const {
    std::vector<std::string_view> known;
    known.reserve(places_.size());
    for (const auto& [key, at] : places_) {
      known.push_back(key);
    }
    std::ranges::sort(known);
    const std::string_view nearest = nearest_name(name, known);
    return nearest.empty() ? "" : ", did you mean \"" + printable(nearest) + "\"?";
  }

 private:
  std::unordered_map<std::string_view, std::size_t> places_;  ///< Keys are of the manifest.
};

at::Tensor wrap(const TensorView& view, c10::Device device, std::shared_ptr<const void> owner) {
  const Result<format::Shape> shape = runtime::array_shape(view);
  TORCH_CHECK(shape, shape.error().to_string());
  const std::vector<std::int64_t> sizes(shape->begin(), shape->end());
  return at::from_blob(
      view.data, sizes, [owner = std::move(owner)](void*) {},
      at::TensorOptions().dtype(scalar_type(view.dtype)).device(device), device);
}

std::vector<std::string_view> names_of(const std::vector<TensorView>& tensors) {
  std::vector<std::string_view> names;
  names.reserve(tensors.size());
  for (const TensorView& tensor : tensors) {
    names.push_back(tensor.name);
  }
  return names;
}

/// Torch's current stream on the device.
Result<StreamHandle> current_stream(c10::Device device) {
  if (device.is_cpu()) {
    return StreamHandle{0};
  }
  try {
    const c10::Stream stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
    return std::bit_cast<StreamHandle>(stream.native_handle());
  } catch (const c10::Error& error) {
    return std::unexpected(Error(ErrorCode::kDevice, "torch has no stream of " + device.str() +
                                                         ": " +
                                                         printable(error.what_without_backtrace()))
                               .with_hint("link a torch with CUDA, or hand acquire() the stream"));
  }
}

void empty_device_cache() {
  try {
    c10::getDeviceAllocator(c10::kCUDA)->emptyCache();
  } catch (const c10::Error&) {  // NOLINT(bugprone-empty-catch)
    // A torch that can't use the GPU has cached nothing there.
  }
}

}  // namespace

/// What all handles of a stream share.
struct StreamState {
  StreamState(runtime::Streamer opened, c10::Device on)
      : streamer(std::move(opened)),
        device(on),
        base_names(streamer.base(), streamer.manifest().aliases, ""),
        block_names(streamer.block_count()) {}

  runtime::Streamer streamer;
  c10::Device device;
  TensorNames base_names;
  std::vector<std::optional<TensorNames>> block_names;  ///< Made when a block is first lent.
};

/// What a lease and the tensors that came from it share: the block's memory goes with the last.
struct LeaseState {
  std::shared_ptr<StreamState> stream;
  runtime::BlockLease lease;  ///< Ends before the stream does.
  std::size_t block_index;
};

BlockLease::BlockLease(std::shared_ptr<LeaseState> state) : state_(std::move(state)) {}
BlockLease::BlockLease(BlockLease&&) noexcept = default;
BlockLease& BlockLease::operator=(BlockLease&&) noexcept = default;
BlockLease::~BlockLease() = default;

at::Tensor BlockLease::tensor(std::string_view name) const {
  TORCH_CHECK(state_ != nullptr, "the lease of \"", printable(name), "\" has ended");
  const StreamState& stream = *state_->stream;
  const TensorNames& names = *stream.block_names[state_->block_index];
  const std::optional<std::size_t> at = names.find(name);
  TORCH_CHECK_INDEX(at, "block ", printable(stream.streamer.block(state_->block_index).name),
                    " has no tensor \"", printable(name), "\"", names.advice(name));
  return wrap(state_->lease.tensors()[*at], stream.device, state_);
}

bool BlockLease::contains(std::string_view name) const {
  return state_ != nullptr && state_->stream->block_names[state_->block_index]->find(name);
}

std::vector<std::string_view> BlockLease::names() const {
  return state_ == nullptr ? std::vector<std::string_view>() : names_of(state_->lease.tensors());
}

void BlockLease::release() {
  state_.reset();
}

Block::Block(std::shared_ptr<StreamState> state, std::size_t index)
    : state_(std::move(state)), index_(index) {}

std::string_view Block::name() const {
  return state_->streamer.block(index_).name;
}

Result<BlockLease> Block::acquire() {
  TP_ASSIGN_OR_RETURN(const StreamHandle stream, current_stream(state_->device));
  return acquire(stream);
}

Result<BlockLease> Block::acquire(StreamHandle stream) {
  TP_ASSIGN_OR_RETURN(runtime::BlockLease lease, state_->streamer.acquire(index_, stream));
  std::optional<TensorNames>& names = state_->block_names[index_];
  if (!names) {
    names.emplace(lease.tensors(), state_->streamer.manifest().aliases, std::string(name()) + ".");
  }
  return BlockLease(std::make_shared<LeaseState>(LeaseState{state_, std::move(lease), index_}));
}

BlockStream::BlockStream(std::shared_ptr<StreamState> state) : state_(std::move(state)) {
  for (std::size_t index = 0; index < state_->streamer.block_count(); ++index) {
    blocks_.push_back(Block(state_, index));
  }
}

Result<BlockStream> BlockStream::open(const std::filesystem::path& pack,
                                      runtime::StreamOptions options) {
  c10::Device device(c10::kCPU);
  if (options.device != nullptr) {
    if (const std::optional<int> ordinal = runtime::cuda_ordinal(*options.device)) {
      device = c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(*ordinal));
      if (!options.free_device_cache) {
        options.free_device_cache = empty_device_cache;
      }
    }
  }
  TP_ASSIGN_OR_RETURN(runtime::Streamer streamer, runtime::Streamer::open(pack, options));
  return BlockStream(std::make_shared<StreamState>(std::move(streamer), device));
}

at::Tensor BlockStream::tensor(std::string_view name) const {
  const std::optional<std::size_t> at = state_->base_names.find(name);
  TORCH_CHECK_INDEX(at, "there is no tensor \"", printable(name), "\" outside blocks",
                    state_->base_names.advice(name));
  const std::vector<TensorView>& base = state_->streamer.base();
  TORCH_CHECK(!base.empty(), "\"", printable(name), "\" went with the memory of the GPU that was ",
              "given back: restore_device() first");
  return wrap(base[*at], state_->device, state_);
}

bool BlockStream::contains(std::string_view name) const {
  return state_->base_names.find(name).has_value();
}

std::vector<std::string_view> BlockStream::names() const {
  return names_of(state_->streamer.base());
}

runtime::Streamer& BlockStream::streamer() const {
  return state_->streamer;
}

}  // namespace trash_panda::torch
