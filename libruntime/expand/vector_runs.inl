// The loops of expand() over vectors. Included once for each instruction set, inside a namespace of
// its own, where TP_LANES_STRUCT names what has its instructions, and TP_LANES is the attribute that
// allows them.

using Lanes = TP_LANES_STRUCT;

/// What elements are multiplied by.
enum class Scaling : std::uint8_t { kNone, kOne, kEach };

template <class Source, class Target, Scaling kScaling, bool kPassesCaches>
TP_LANES_INLINE void run_vector(const std::byte* from, std::byte* to, Lanes::Floats one_scale,
                                const float* scales) {
  Lanes::Floats values = Source::decode(from);
  if constexpr (kScaling == Scaling::kOne) {
    values = Lanes::multiply(values, one_scale);
  } else if constexpr (kScaling == Scaling::kEach) {
    values = Lanes::multiply(values, Lanes::load(scales));
  }
  Target::template encode<kPassesCaches>(values, to);
}

/// Whole vectors.
///
/// @return How many elements that was.
template <class Source, class Target, Scaling kScaling, bool kPassesCaches>
TP_LANES_INLINE std::uint64_t run_vectors(const ElementRun& run, const float* scales) {
  const Lanes::Floats one_scale = Lanes::splat(kScaling == Scaling::kOne ? *scales : 1.0F);
  std::uint64_t at = 0;
  for (; at + Lanes::kCount <= run.count; at += Lanes::kCount) {
    run_vector<Source, Target, kScaling, kPassesCaches>(
        run.from + at * Source::kBytes, run.to + at * Target::kBytes, one_scale,
        kScaling == Scaling::kEach ? scales + at : nullptr);
  }
  return at;
}

/// Less than a vector, by way of buffers that hold one.
template <class Source, class Target, Scaling kScaling>
TP_LANES_INLINE void run_rest(const ElementRun& run, std::uint64_t first, const float* scales) {
  const std::uint64_t count = run.count - first;
  std::array<std::byte, Lanes::kCount * Source::kBytes> from = {};
  std::array<std::byte, Lanes::kCount * Target::kBytes> to;
  std::array<float, Lanes::kCount> own_scales = {};
  std::memcpy(from.data(), run.from + first * Source::kBytes, count * Source::kBytes);
  if constexpr (kScaling == Scaling::kEach) {
    std::memcpy(own_scales.data(), scales + first, count * sizeof(float));
  }
  const Lanes::Floats one_scale = Lanes::splat(kScaling == Scaling::kOne ? *scales : 1.0F);
  run_vector<Source, Target, kScaling, /*kPassesCaches=*/false>(from.data(), to.data(), one_scale,
                                                                own_scales.data());
  std::memcpy(run.to + first * Target::kBytes, to.data(), count * Target::kBytes);
}

template <class Source, class Target, Scaling kScaling>
TP_LANES void run_elements(const ElementRun& run, const float* scales) {
  // Stores past the caches need aligned addresses.
  const bool is_aligned =
      reinterpret_cast<std::uintptr_t>(run.to) % (Lanes::kCount * Target::kBytes) == 0;
  const std::uint64_t done = run.passes_caches && is_aligned
                                 ? run_vectors<Source, Target, kScaling, true>(run, scales)
                                 : run_vectors<Source, Target, kScaling, false>(run, scales);
  if (done < run.count) {
    run_rest<Source, Target, kScaling>(run, done, scales);
  }
}

/// Elements between two looks at what they were.
constexpr std::uint64_t kPieceElements = 1024;

/// Scales whole pieces of codes to BF16, in about half the instructions of run_elements(), where
/// codes are neither NaN nor infinite. Other pieces are made again.
template <class Source, bool kPassesCaches>
TP_LANES_INLINE std::uint64_t scale_pieces(const ElementRun& run, float scale) {
  constexpr std::uint64_t kStep = 2 * Lanes::kCount;
  const Lanes::Floats factor = Lanes::splat(scale * Source::kHalfFactor);
  std::uint64_t at = 0;
  while (at + kStep <= run.count) {
    const std::uint64_t end = std::min(at + kPieceElements, at + (run.count - at) / kStep * kStep);
    const std::uint64_t begin = at;
    Lanes::CodePairs largest = Lanes::no_codes();
    for (; at < end; at += kStep) {
      Lanes::scale_pairs<Source, kPassesCaches>(
          run.from + at, run.to + at * Lanes::Bf16Target::kBytes, factor, largest);
    }
    if (Lanes::has_special(largest, Source::kFirstSpecial)) {
      run_elements<Source, Lanes::Bf16Target, Scaling::kOne>(
          {.from = run.from + begin,
           .to = run.to + begin * Lanes::Bf16Target::kBytes,
           .count = end - begin,
           .passes_caches = kPassesCaches},
          &scale);
    }
  }
  return at;
}

/// Up to here a scale makes no NaN of numbers.
constexpr float kPlainScaleMax = 0x1p118F;

/// Whether a scale stays exact when it is multiplied by kHalfFactor, and makes no NaN of numbers.
inline bool is_plain_scale(float scale) {
  const float magnitude = std::abs(scale);
  return magnitude >= std::numeric_limits<float>::min() && magnitude <= kPlainScaleMax;
}

template <class Source>
TP_LANES void scale_to_bf16(const ElementRun& run, float scale) {
  std::uint64_t done = 0;
  if (is_plain_scale(scale)) {
    const bool is_aligned =
        reinterpret_cast<std::uintptr_t>(run.to) % (2 * Lanes::kCount * sizeof(std::uint16_t)) == 0;
    done = run.passes_caches && is_aligned ? scale_pieces<Source, true>(run, scale)
                                           : scale_pieces<Source, false>(run, scale);
  }
  run_elements<Source, Lanes::Bf16Target, Scaling::kOne>(
      {.from = run.from + done,
       .to = run.to + done * Lanes::Bf16Target::kBytes,
       .count = run.count - done,
       .passes_caches = run.passes_caches},
      &scale);
}

/// @return Whether all codes are numbers.
template <class Source, bool kPassesCaches>
TP_LANES_INLINE bool scale_plain_tiles(const ElementRun& run, const float* scales,
                                       std::uint64_t tile_columns) {
  Lanes::CodePairs largest = Lanes::no_codes();
  std::uint64_t at = 0;
  for (std::size_t tile = 0; at < run.count; ++tile) {
    const Lanes::Floats factor = Lanes::splat(scales[tile] * Source::kHalfFactor);
    const std::uint64_t end = std::min(at + tile_columns, run.count);
    for (; at < end; at += 2 * Lanes::kCount) {
      Lanes::scale_pairs<Source, kPassesCaches>(
          run.from + at, run.to + at * Lanes::Bf16Target::kBytes, factor, largest);
    }
  }
  return !Lanes::has_special(largest, Source::kFirstSpecial);
}

/// RunKernels::scale_tiles, of tiles that are made of whole steps.
template <class Source>
TP_LANES bool scale_tiles_to_bf16(const ElementRun& run, const float* scales,
                                  std::uint64_t tile_columns) {
  constexpr std::uint64_t kStep = 2 * Lanes::kCount;
  const std::uint64_t tile_count = (run.count + tile_columns - 1) / tile_columns;
  if (run.count % kStep != 0 || tile_columns % kStep != 0 ||
      !std::all_of(scales, scales + tile_count, is_plain_scale)) {
    return false;
  }
  const bool is_aligned =
      reinterpret_cast<std::uintptr_t>(run.to) % (kStep * sizeof(std::uint16_t)) == 0;
  return run.passes_caches && is_aligned
             ? scale_plain_tiles<Source, true>(run, scales, tile_columns)
             : scale_plain_tiles<Source, false>(run, scales, tile_columns);
}

template <class Source, class Target>
RunKernels kernels_of() {
  return {
      .cast =
          [](const ElementRun& run) { run_elements<Source, Target, Scaling::kNone>(run, nullptr); },
      .scale = [](const ElementRun& run,
                  float scale) { run_elements<Source, Target, Scaling::kOne>(run, &scale); },
      .scale_each = run_elements<Source, Target, Scaling::kEach>};
}

template <class Source>
std::optional<RunKernels> kernels_from(format::Dtype to) {
  switch (to) {
    case format::Dtype::kBf16:
      return kernels_of<Source, Lanes::Bf16Target>();
    case format::Dtype::kF16:
      return kernels_of<Source, Lanes::F16Target>();
    case format::Dtype::kF32:
      return kernels_of<Source, Lanes::F32Target>();
    default:
      return std::nullopt;
  }
}

/// Those of an 8-bit source.
template <class Source>
std::optional<RunKernels> kernels_from_codes(format::Dtype to) {
  std::optional<RunKernels> kernels = kernels_from<Source>(to);
  if (kernels && to == format::Dtype::kBf16) {
    kernels->scale = scale_to_bf16<Source>;
    kernels->scale_tiles = scale_tiles_to_bf16<Source>;
  }
  return kernels;
}

inline std::optional<RunKernels> find_kernels(format::Dtype from, format::Dtype to) {
  switch (from) {
    case format::Dtype::kF8E4M3:
      return kernels_from_codes<Lanes::E4M3Source>(to);
    case format::Dtype::kF8E5M2:
      return kernels_from_codes<Lanes::E5M2Source>(to);
    case format::Dtype::kBf16:
      return kernels_from<Lanes::Bf16Source>(to);
    case format::Dtype::kF16:
      return kernels_from<Lanes::F16Source>(to);
    case format::Dtype::kF32:
      return kernels_from<Lanes::F32Source>(to);
    default:
      return std::nullopt;
  }
}
