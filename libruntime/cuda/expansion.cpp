#include "cuda/expansion.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "trash_panda/format/exponent_code.h"

#include "chunk_table.h"
#include "cuda/decode_kernel.h"
#include "cuda/kernel_image.h"
#include "expand/scale_grid.h"

namespace trash_panda::runtime::cuda {

namespace {

using format::Dtype;
using DtypeName = std::pair<Dtype, const char*>;

constexpr auto kSourceNames = std::to_array<DtypeName>({{Dtype::kF8E4M3, "e4m3"},
                                                        {Dtype::kF8E5M2, "e5m2"},
                                                        {Dtype::kF8E4M3Fnuz, "e4m3fnuz"},
                                                        {Dtype::kF8E5M2Fnuz, "e5m2fnuz"},
                                                        {Dtype::kBf16, "bf16"},
                                                        {Dtype::kF16, "f16"},
                                                        {Dtype::kF32, "f32"},
                                                        {Dtype::kF64, "f64"}});
constexpr auto kTargetNames =
    std::to_array<DtypeName>({{Dtype::kBf16, "bf16"}, {Dtype::kF16, "f16"}, {Dtype::kF32, "f32"}});

/// Threads of a block: a multiple of a warp that every GPU runs several of at once.
constexpr unsigned kThreadsPerBlock = 256;
/// Blocks of a launch at most: some for each multiprocessor of the largest GPU; threads then take
/// several runs each.
constexpr std::uint64_t kBlockCountMax = 4096;

static_assert(kThreadsPerBlock % kWarpLanes == 0);
static_assert(kChunkElements == format::kExponentChunkElements &&
              kTileElements == format::kExponentTileElements &&
              kChunkUnitBytes == format::kExponentChunkAlignBytes &&
              kRawChunkOffset == format::kExponentChunkHeadBytes);

DeviceAddress device_address(std::span<const std::byte> memory) {
  return std::bit_cast<std::uintptr_t>(memory.data());
}

/// The scale of a weight, as lay_out_tensors() has checked it.
ScaleForm scale_form(const TensorStep& step) {
  if (step.scale == nullptr) {
    return {.count = 0,
            .granularity = format::Granularity::kTensor,
            .block_rows = 0,
            .block_columns = 0};
  }
  const format::PackedScale& how = *step.stored->scale;
  const bool has_block = how.block_shape.size() == 2;
  return {.count = step.scale->size_bytes / (format::dtype_bits(step.scale->dtype) / 8),
          .granularity = how.granularity,
          .block_rows = has_block ? how.block_shape[0] : 0,
          .block_columns = has_block ? how.block_shape[1] : 0};
}

}  // namespace

Result<std::unique_ptr<Expansion>> Expansion::load(std::shared_ptr<PrimaryContext> context) {
  if (kernel_image().empty()) {
    return std::unexpected(Error(ErrorCode::kDevice, "this program was built without CUDA kernels")
                               .with_hint("build it where nvcc is found"));
  }
  auto expansion = std::make_unique<Expansion>(std::move(context));
  const PrimaryContext& cuda = *expansion->context_;
  TP_RETURN_IF_ERROR(cuda.check("loading kernels", &Functions::ModuleLoadData, &expansion->module_,
                                static_cast<const void*>(kernel_image().data())));
  const auto find = [&](const std::string& name, Function& kernel) {
    return cuda.check("finding a kernel", &Functions::ModuleGetFunction, &kernel,
                      expansion->module_, name.c_str());
  };
  for (const auto& [from, from_name] : kSourceNames) {
    for (const auto& [to, to_name] : kTargetNames) {
      TP_RETURN_IF_ERROR(find(fmt::format("tp_expand_{}_{}", from_name, to_name),
                              expansion->expanders_[{from, to}]));
      if (format::has_exponent_code(from)) {
        TP_RETURN_IF_ERROR(find(fmt::format("tp_decode_{}_{}", from_name, to_name),
                                expansion->decoders_[{from, to}]));
      }
    }
  }
  void* memory = nullptr;
  TP_RETURN_IF_ERROR(cuda.check("allocating pinned memory", &Functions::MemHostAlloc, &memory,
                                sizeof *expansion->damaged_,
                                kHostAllocPortable | kHostAllocDeviceMapped));
  expansion->damaged_ = std::construct_at(static_cast<std::uint32_t*>(memory), 0U);
  return expansion;
}

Expansion::~Expansion() {
  if (damaged_ != nullptr) {
    static_cast<void>(context_->call(&Functions::MemFreeHost, static_cast<void*>(damaged_)));
  }
  if (module_ != nullptr) {
    static_cast<void>(context_->call(&Functions::ModuleUnload, module_));
  }
}

Result<void> Expansion::check_decoded() const {
  if (std::atomic_ref(*damaged_).load(std::memory_order_relaxed) == 0) {
    return {};
  }
  return std::unexpected(Error(ErrorCode::kCorrupt,
                               "a tensor's code was found damaged while it was decoded on the GPU")
                             .with_reason("exponent_chunk")
                             .with_hint("find it with: trash-panda verify"));
}

Result<std::vector<TensorView>> Expansion::place(const TensorLayout& layout,
                                                 std::span<std::byte> stored,
                                                 std::span<std::byte> compute,
                                                 Stream stream) const {
  TP_RETURN_IF_ERROR(check_decoded());
  std::vector<TensorView> views;
  views.reserve(layout.steps.size());
  for (const TensorStep& step : layout.steps) {
    const format::PackedTensor& tensor = *step.stored;
    std::span<std::byte> target = stored_bytes(tensor, stored);
    if (!step.is_in_place) {
      target = compute.subspan(step.compute_offset_bytes, step.size_bytes);
      TP_RETURN_IF_ERROR(make_tensor(step, layout, stored, compute, stream));
    }
    views.push_back({.name = tensor.name,
                     .dtype = step.dtype,
                     .shape = &tensor.shape,
                     .data = target.data(),
                     .size_bytes = step.size_bytes});
  }
  return views;
}

Result<void> Expansion::make_tensor(const TensorStep& step, const TensorLayout& layout,
                                    std::span<std::byte> stored, std::span<std::byte> compute,
                                    Stream stream) const {
  const format::PackedTensor& tensor = *step.stored;
  const std::span<std::byte> target = compute.subspan(step.compute_offset_bytes, step.size_bytes);
  if (target.empty()) {
    return {};
  }
  if (tensor.coding == format::TensorCoding::kRaw) {
    const std::span<const std::byte> payload = stored_bytes(tensor, stored);
    if (step.dtype == tensor.dtype) {
      return context_->check("copying within it", &Functions::MemcpyDtoDAsync_v2,
                             device_address(target), device_address(payload), target.size(),
                             stream);
    }
    return expand(step, payload, stored, target, stream);
  }
  if (step.scale == nullptr) {
    return decode(step, step.dtype, layout, stored, target, stream);
  }
  const std::span<std::byte> decoded =
      compute.subspan(step.decoded_offset_bytes, tensor.size_bytes);
  TP_RETURN_IF_ERROR(decode(step, tensor.dtype, layout, stored, decoded, stream));
  return expand(step, decoded, stored, target, stream);
}

Result<void> Expansion::expand(const TensorStep& step, std::span<const std::byte> payload,
                               std::span<std::byte> stored, std::span<std::byte> target,
                               Stream stream) const {
  const format::PackedTensor& tensor = *step.stored;
  const std::optional<ScaleGrid> grid = make_scale_grid(tensor.shape, scale_form(step));
  TP_ASSERT(grid);  // lay_out_tensors() has asked for it.
  ExpandArguments arguments = {.payload = payload.data(),
                               .scale = {.floats = nullptr, .codes = nullptr},
                               .target = target.data(),
                               .element_count = target.size() / (dtype_bits(step.dtype) / 8),
                               .grid = *grid};
  if (step.scale != nullptr) {
    const std::byte* const scale = stored_bytes(*step.scale, stored).data();
    if (step.scale->dtype == Dtype::kF8E8M0) {
      arguments.scale.codes = reinterpret_cast<const std::uint8_t*>(scale);
    } else {
      arguments.scale.floats = reinterpret_cast<const float*>(scale);
    }
  }
  const std::uint64_t runs = (arguments.element_count + kRunElements - 1) / kRunElements;
  return launch("expanding", expanders_.at({tensor.dtype, step.dtype}), runs, arguments, stream);
}

/// Decodes a tensor, to its own dtype or to another.
Result<void> Expansion::decode(const TensorStep& step, Dtype dtype, const TensorLayout& layout,
                               std::span<std::byte> stored, std::span<std::byte> target,
                               Stream stream) const {
  const format::PackedTensor& tensor = *step.stored;
  const std::span<const std::byte> coded = stored_bytes(tensor, stored);
  // make_chunk_table() has refused what has no kernel, and what lies elsewhere than in packs.
  const std::uint64_t begins =
      layout.chunk_table_offset_bytes + kChunkEntryBytes * step.chunk_index;
  const DecodeArguments arguments = {
      .coded = reinterpret_cast<const std::uint8_t*>(coded.data()),
      .chunk_begins = reinterpret_cast<const std::uint32_t*>(stored.data() + begins),
      .target = target.data(),
      .element_count = tensor.size_bytes / (dtype_bits(tensor.dtype) / 8),
      .damaged = damaged_};
  const std::uint64_t tiles = (arguments.element_count + kTileElements - 1) / kTileElements;
  return launch("decoding", decoders_.at({tensor.dtype, dtype}), tiles * kWarpLanes, arguments,
                stream);
}

template <class Arguments>
Result<void> Expansion::launch(const char* what, Function kernel, std::uint64_t thread_count,
                               Arguments arguments, Stream stream) const {
  const std::uint64_t blocks =
      std::min((thread_count + kThreadsPerBlock - 1) / kThreadsPerBlock, kBlockCountMax);
  std::array<void*, 1> parameters = {&arguments};
  return context_->check(what, &Functions::LaunchKernel, kernel, static_cast<unsigned>(blocks), 1U,
                         1U, kThreadsPerBlock, 1U, 1U, 0U, stream, parameters.data(),
                         static_cast<void**>(nullptr));
}

}  // namespace trash_panda::runtime::cuda
