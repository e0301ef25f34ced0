#include "kernels.h"

#include <array>

#include "cuda/decode_kernel.h"
#include "cuda/expand_kernel.h"

namespace trash_panda::fake_cuda {

namespace {

using namespace runtime::cuda;  // NOLINT(google-build-using-namespace): names in the list of
                                // kernels.

template <class Source, class Target>
void run_expansion(const void* arguments, std::uint64_t thread_count) {
  for (std::uint64_t thread = 0; thread < thread_count; ++thread) {
    expand_elements<Source, Target>(*static_cast<const ExpandArguments*>(arguments), thread,
                                    thread_count);
  }
}

DeviceRange range_of(const void* address, std::uint64_t size_bytes) {
  return {reinterpret_cast<DeviceAddress>(address), size_bytes};
}

template <class Source, class Target>
std::vector<Access> expansion_accesses(const void* arguments) {
  const auto& given = *static_cast<const ExpandArguments*>(arguments);
  std::vector<Access> accesses = {
      {range_of(given.payload, given.element_count * sizeof(typename Source::Stored)), false},
      {range_of(given.target, given.element_count * sizeof(typename Target::Stored)), true}};
  const std::uint64_t scale_count =
      given.grid.matrix_count * given.grid.grid_rows() * given.grid.grid_columns();
  if (given.scale.floats != nullptr) {
    accesses.push_back({range_of(given.scale.floats, scale_count * sizeof(float)), false});
  } else if (given.scale.codes != nullptr) {
    accesses.push_back({range_of(given.scale.codes, scale_count), false});
  }
  return accesses;
}

template <class Code, class Target>
void run_decoding(const void* arguments, std::uint64_t thread_count) {
  const std::uint64_t warp_count = thread_count / kWarpLanes;
  for (std::uint64_t warp = 0; warp < warp_count; ++warp) {
    decode_tiles<Code, Target>(*static_cast<const DecodeArguments*>(arguments), warp, warp_count);
  }
}

/// Where chunks begin and end is in the memory of the device, and known when the kernel runs: of
/// what it reads, the table stands for all, which is copied behind the code and used with it.
template <class Code, class Target>
std::vector<Access> decoding_accesses(const void* arguments) {
  const auto& given = *static_cast<const DecodeArguments*>(arguments);
  const std::uint64_t chunk_count = (given.element_count + kChunkElements - 1) / kChunkElements;
  return {
      {range_of(given.coded, kRawChunkOffset), false},
      {range_of(given.chunk_begins, chunk_count * sizeof *given.chunk_begins), false},
      {range_of(given.target, given.element_count * sizeof(typename Decoded<Code, Target>::Stored)),
       true}};
}

#define TP_KERNEL(kernel_name, Source, Target) \
  {.name = #kernel_name,                       \
   .arguments_bytes = sizeof(ExpandArguments), \
   .run = &run_expansion<Source, Target>,      \
   .accesses = &expansion_accesses<Source, Target>},

#define TP_DECODE_KERNEL(kernel_name, Code, Target) \
  {.name = #kernel_name,                            \
   .arguments_bytes = sizeof(DecodeArguments),      \
   .run = &run_decoding<Code, Target>,              \
   .accesses = &decoding_accesses<Code, Target>},

constexpr auto kKernels =
    std::to_array<Kernel>({TP_EXPAND_KERNELS(TP_KERNEL) TP_DECODE_KERNELS(TP_DECODE_KERNEL)});

}  // namespace

std::span<const Kernel> kernels() {
  return kKernels;
}

}  // namespace trash_panda::fake_cuda
