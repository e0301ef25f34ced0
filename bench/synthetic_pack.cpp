#include "synthetic_pack.h"

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

/// A safetensors file: the length of the header, the header, the tensors.
Result<void> write_checkpoint(const std::filesystem::path& path, const SyntheticModel& model) {
  const std::uint64_t rows =
      model.size_bytes / model.block_count / kWeightsPerBlock / kColumns / kElementBytes;
  const std::uint64_t weight_bytes = rows * kColumns * kElementBytes;
  std::string header;
  for (std::uint64_t at = 0; at < model.block_count * kWeightsPerBlock; ++at) {
    header += fmt::format(
        R"({}"layers.{}.{}.weight":{{"dtype":"BF16","shape":[{},{}],"data_offsets":[{},{}]}})",
        at == 0 ? '{' : ',', at / kWeightsPerBlock, at % kWeightsPerBlock, rows, kColumns,
        at * weight_bytes, (at + 1) * weight_bytes);
  }
  header += '}';
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::ofstream file(path, std::ios::binary);
  const std::uint64_t header_bytes = header.size();  // Little-endian, as the machine.
  file.write(reinterpret_cast<const char*>(&header_bytes), sizeof header_bytes);
  file.write(header.data(), static_cast<std::streamsize>(header.size()));
  std::mt19937_64 random(1);
  std::vector<std::uint64_t> noise(kColumns * kElementBytes * 64 / sizeof(std::uint64_t));
  for (std::uint64_t left = model.block_count * kWeightsPerBlock * weight_bytes; left > 0;) {
    for (std::uint64_t& word : noise) {
      word = random();
    }
    const std::uint64_t size_bytes = std::min(left, noise.size() * sizeof(std::uint64_t));
    file.write(reinterpret_cast<const char*>(noise.data()),
               static_cast<std::streamsize>(size_bytes));
    left -= size_bytes;
  }
  file.close();
  if (!file) {
    return std::unexpected(
        Error(ErrorCode::kOutput, fmt::format("can't write {}", printable(path))));
  }
  return {};
}

format::PackLayout all_on_disk(const format::WeightTable& weights, std::uint64_t block_count) {
  format::PackLayout layout;
  for (std::uint64_t block = 0; block < block_count; ++block) {
    layout.extents.push_back(
        {.name = fmt::format("layers.{}", block), .tier = format::Tier::kDisk, .weights = {}});
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

Result<std::filesystem::path> write_synthetic_pack(const std::filesystem::path& folder,
                                                   const SyntheticModel& model) {
  const std::filesystem::path source = folder / "model.safetensors";
  const std::filesystem::path pack = folder / "model.panda";
  TP_RETURN_IF_ERROR(write_checkpoint(source, model));
  TP_ASSIGN_OR_RETURN(const format::Checkpoint checkpoint, format::Checkpoint::open(source));
  TP_ASSIGN_OR_RETURN(const format::WeightTable weights, format::find_weights(checkpoint));
  format::PackOptions options;
  options.generator = "trash-panda bench";
  TP_RETURN_IF_ERROR(format::write_pack(FileSystem::posix(), checkpoint, weights,
                                        all_on_disk(weights, model.block_count), pack, options));
  std::filesystem::remove(source);
  return pack;
}

}  // namespace trash_panda::bench
