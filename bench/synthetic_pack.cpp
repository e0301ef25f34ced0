#include "synthetic_pack.h"

#include <algorithm>
#include <bit>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "trash_panda/base/file_system.h"
#include "trash_panda/base/units.h"
#include "trash_panda/format/checkpoint.h"
#include "trash_panda/format/pack_writer.h"
#include "trash_panda/format/weights.h"
#include "trash_panda/plan/plan_toml.h"

namespace trash_panda::bench {

namespace {

constexpr std::uint64_t kColumns = 4096;
constexpr std::uint64_t kElementBytes = 2;  // Of bf16.
constexpr std::uint64_t kWeightsPerBlock = 4;

/// Normally distributed weights of 64 MiB, as 64-bit words.
std::vector<std::uint64_t> make_weights() {
  constexpr std::size_t kWords = (std::size_t{64} << 20U) / sizeof(std::uint64_t);
  std::mt19937_64 random(1);
  std::normal_distribution<float> normal(0, 0.02F);
  std::vector<std::uint64_t> words(kWords);
  for (std::uint64_t& word : words) {
    for (int at = 0; at < 4; ++at) {
      word = word << 16U | std::bit_cast<std::uint32_t>(normal(random)) >> 16U;
    }
  }
  return words;
}

/// The same weights with other signs and mantissas each time.
void write_weights(std::ofstream& file, std::uint64_t size_bytes) {
  constexpr std::uint64_t kSignsAndMantissas = 0x807f807f807f807fU;
  const std::vector<std::uint64_t> weights = make_weights();
  std::vector<std::uint64_t> piece(weights.size());
  std::mt19937_64 random(2);
  for (std::uint64_t left_bytes = size_bytes; left_bytes > 0;) {
    for (std::size_t at = 0; at < weights.size(); ++at) {
      piece[at] = weights[at] ^ (random() & kSignsAndMantissas);
    }
    const std::uint64_t piece_bytes = std::min(left_bytes, piece.size() * sizeof(std::uint64_t));
    file.write(reinterpret_cast<const char*>(piece.data()),
               static_cast<std::streamsize>(piece_bytes));
    left_bytes -= piece_bytes;
  }
}

/// A safetensors file: the length of the header, the header, the tensors.
Result<void> write_checkpoint(const SyntheticModel& model, SyntheticPack& written) {
  const std::uint64_t block_count = model.tiers.size();
  const std::uint64_t rows =
      model.size_bytes / block_count / kWeightsPerBlock / kColumns / kElementBytes;
  const std::uint64_t weight_bytes = rows * kColumns * kElementBytes;
  std::string header;
  for (std::uint64_t at = 0; at < block_count * kWeightsPerBlock; ++at) {
    header += fmt::format(
        R"({}"layers.{}.{}.weight":{{"dtype":"BF16","shape":[{},{}],"data_offsets":[{},{}]}})",
        at == 0 ? '{' : ',', at / kWeightsPerBlock, at % kWeightsPerBlock, rows, kColumns,
        at * weight_bytes, (at + 1) * weight_bytes);
  }
  header += '}';
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::ofstream file(written.source, std::ios::binary);
  const std::uint64_t header_bytes = header.size();  // Little-endian, as the machine.
  file.write(reinterpret_cast<const char*>(&header_bytes), sizeof header_bytes);
  file.write(header.data(), static_cast<std::streamsize>(header.size()));
  written.source_data_offset_bytes = sizeof header_bytes + header_bytes;
  written.block_bytes = kWeightsPerBlock * weight_bytes;
  write_weights(file, block_count * written.block_bytes);
  file.close();
  if (!file) {
    return std::unexpected(
        Error(ErrorCode::kOutput, fmt::format("can't write {}", printable(written.source))));
  }
  return {};
}

format::PackLayout lay_out(const format::WeightTable& weights, const SyntheticModel& model) {
  format::PackLayout layout;
  for (std::size_t block = 0; block < model.tiers.size(); ++block) {
    layout.extents.push_back(
        {.name = fmt::format("layers.{}", block),
         .tier = model.tiers[block],
         .weights = {},
         .coded = model.is_coded ? format::CodedFloats::kBf16 : format::CodedFloats::kNone});
  }
  for (std::size_t at = 0; at < weights.weights.size(); ++at) {
    const std::size_t block =
        std::stoul(std::string(weights.weights[at].name.substr(7)));  // "layers.N."
    layout.extents[block].weights.push_back(at);
  }
  layout.plan_toml = plan::write_plan_toml(plan::Plan());
  return layout;
}

}  // namespace

Result<SyntheticPack> write_synthetic_pack(const std::filesystem::path& folder,
                                           const SyntheticModel& model) {
  SyntheticPack written = {.pack = folder / "model.panda",
                           .source = folder / "model.safetensors",
                           .source_data_offset_bytes = 0,
                           .block_bytes = 0};
  TP_RETURN_IF_ERROR(write_checkpoint(model, written));
  TP_ASSIGN_OR_RETURN(const format::Checkpoint checkpoint,
                      format::Checkpoint::open(written.source));
  TP_ASSIGN_OR_RETURN(const format::WeightTable weights, format::find_weights(checkpoint));
  format::PackOptions options;
  options.generator = "trash-panda bench";
  TP_RETURN_IF_ERROR(format::write_pack(FileSystem::posix(), checkpoint, weights,
                                        lay_out(weights, model), written.pack, options));
  return written;
}

}  // namespace trash_panda::bench
