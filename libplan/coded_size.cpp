#include "coded_size.h"

namespace trash_panda::plan {
namespace {

/// bf16 with coded exponents is smaller by this part of its raw size: 1.47 times, as measured on
/// weights of trained models.
constexpr std::uint64_t kExponentSavedPerMille = 320;
/// fp8 compressed by zstd level 1 is smaller by this part: 1.2 times, as measured.
constexpr std::uint64_t kZstdSavedPerMille = 167;

/// A form that saves less than this part of the extent is not worth its decoding.
constexpr std::uint64_t kSavedPercentMin = 2;

/// Rounded up, without a product that could be too large.
std::uint64_t part_of(std::uint64_t bytes, std::uint64_t per_mille) {
  return bytes / 1000 * per_mille + (bytes % 1000 * per_mille + 999) / 1000;
}

}  // namespace

std::optional<std::uint64_t> coded_size_bytes(const PlannedBlock& block,
                                              const BlockContent& content, StorageForm form) {
  const std::uint64_t saved_bytes =
      form == StorageForm::kExponent ? part_of(content.bf16_bytes, kExponentSavedPerMille)
      : form == StorageForm::kZstd   ? part_of(content.fp8_bytes, kZstdSavedPerMille)
                                     : 0;
  if (saved_bytes == 0 || saved_bytes < part_of(block.extent_bytes, 10 * kSavedPercentMin)) {
    return std::nullopt;
  }
  return block.extent_bytes - saved_bytes;
}

std::uint64_t decoded_bytes(const PlannedBlock& block) {
  if (block.form != StorageForm::kExponent || block.coded_bytes >= block.extent_bytes) {
    return 0;
  }
  // What is planned to be saved tells: 1000 / 320 = 3.125 times that.
  const std::uint64_t saved_bytes = block.extent_bytes - block.coded_bytes;
  return saved_bytes / kExponentSavedPerMille * 1000 +
         saved_bytes % kExponentSavedPerMille * 1000 / kExponentSavedPerMille;
}

}  // namespace trash_panda::plan
