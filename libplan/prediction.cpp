#include "trash_panda/plan/prediction.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "coded_size.h"

namespace trash_panda::plan {

double transfer_s(std::uint64_t bytes, const std::optional<std::uint64_t>& bytes_per_s) {
  return bytes_per_s && *bytes_per_s > 0
             ? static_cast<double>(bytes) / static_cast<double>(*bytes_per_s)
             : 0;
}

std::optional<std::uint64_t> expansion_bytes_per_s(std::span<const PlannedBlock> blocks,
                                                   const ExpandRates& rates) {
  bool decodes = false;
  bool converts = false;
  for (const PlannedBlock& block : blocks) {
    decodes |= block.form == StorageForm::kExponent;
    converts |= block.expand_bytes > decoded_bytes(block);
  }
  std::optional<std::uint64_t> slowest;
  const auto consider = [&slowest](const std::optional<std::uint64_t>& rate) {
    if (rate && *rate > 0) {
      slowest = std::min(slowest.value_or(*rate), *rate);
    }
  };
  if (decodes) {
    consider(rates.exponent_bytes_per_s);
  }
  if (converts || !decodes) {
    consider(rates.fp8_bytes_per_s);
  }
  return slowest;
}

BlockCost block_cost(const PlannedBlock& block, const Rates& rates, bool has_link) {
  const bool is_decoded = block.form == StorageForm::kZstd && block.tier == Tier::kDisk;
  BlockCost cost;
  cost.compute_s = block.compute_s + transfer_s(block.expand_bytes, rates.expand_bytes_per_s);
  cost.chunk_count = std::max(
      1.0, std::ceil(static_cast<double>(block.moved_bytes()) / static_cast<double>(kChunkBytes)));
  if (block.tier == Tier::kDisk) {
    cost.read_s = transfer_s(block.moved_bytes(), rates.disk_bytes_per_s);
    cost.decode_s = is_decoded ? transfer_s(block.stored_bytes, rates.decode_bytes_per_s) : 0;
  }
  if (has_link && block.tier != Tier::kGpu) {
    cost.copy_s =
        transfer_s(is_decoded ? block.stored_bytes : block.moved_bytes(), rates.link_bytes_per_s);
  }
  return cost;
}

PassModel pass_model(const Plan& plan) {
  PassModel model;
  model.has_link = plan.uses_vram();
  // More than there are blocks are never used; a file may say anything.
  const std::size_t slot_count_max = plan.blocks.size() + 1;
  model.host_slot_count = std::clamp<std::size_t>(plan.host_slot_count, 1, slot_count_max);
  model.device_slot_count = std::clamp<std::size_t>(plan.device_slot_count, 1, slot_count_max);
  for (const PlannedBlock& block : plan.blocks) {
    model.blocks.push_back(block_cost(block, plan.rates, model.has_link));
  }
  return model;
}

PassModel first_pass_model(const Plan& plan, const LoadedAhead& loaded) {
  PassModel model = pass_model(plan);
  for (std::size_t index = 0; index < model.blocks.size(); ++index) {
    PlannedBlock on_disk = plan.blocks[index];
    on_disk.tier = Tier::kDisk;
    BlockCost& cost = model.blocks[index];
    cost = block_cost(on_disk, plan.rates, plan.uses_vram());
    if (index < loaded.blocks.size()) {
      cost.read_s = cost.decode_s = 0;
      cost.copy_s = loaded.blocks[index] == Tier::kGpu ? 0 : cost.copy_s;
    }
  }
  // What is kept needs no slot: reading is as far ahead as the lookahead allows.
  constexpr std::size_t kReadAheadMin = 3;
  model.host_slot_count = std::max(model.host_slot_count, kReadAheadMin);
  model.device_slot_count = std::max<std::size_t>(model.device_slot_count, 2);
  return model;
}

std::optional<double> predict_first_pass_s(const Plan& plan, const LoadedAhead& loaded) {
  if (!missing_rates(plan).empty() || !plan.rates.disk_bytes_per_s) {
    return std::nullopt;
  }
  // Base tensors are read, and copied to a GPU, before anything else.
  const std::uint64_t base_stored_bytes = plan.stored_bytes(Tier::kBase);
  double start_s = 0;
  if (!loaded.base) {
    start_s += transfer_s(base_stored_bytes, plan.rates.disk_bytes_per_s);
  }
  if (plan.uses_vram() && loaded.base != Tier::kGpu) {
    start_s += transfer_s(base_stored_bytes, plan.rates.link_bytes_per_s);
  }
  return simulate_first_pass_s(first_pass_model(plan, loaded), start_s);
}

std::vector<Channel> missing_rates(const Plan& plan) {
  const bool reads = plan.block_count(Tier::kDisk) > 0;
  const bool decodes = std::ranges::any_of(plan.blocks, [](const PlannedBlock& block) {
    return block.tier == Tier::kDisk && block.form == StorageForm::kZstd;
  });
  const bool copies = plan.uses_vram() && plan.block_count(Tier::kGpu) < plan.blocks.size();
  std::vector<Channel> missing;
  if (reads && !plan.rates.disk_bytes_per_s) {
    missing.push_back(Channel::kDisk);
  }
  if (decodes && !plan.rates.decode_bytes_per_s) {
    missing.push_back(Channel::kDecode);
  }
  if (copies && !plan.rates.link_bytes_per_s) {
    missing.push_back(Channel::kLink);
  }
  return missing;
}

std::optional<Prediction> predict(const Plan& plan) {
  if (!missing_rates(plan).empty()) {
    return std::nullopt;
  }
  const Simulation simulation = simulate(pass_model(plan));
  if (simulation.pass_s <= 0) {
    return std::nullopt;
  }
  Prediction prediction;
  prediction.pass_s = simulation.pass_s;
  prediction.bound_s = simulation.channels.bound_s();
  prediction.limiting = channel_name(simulation.channels.limiting());
  prediction.stall_s = simulation.pass_s - simulation.channels[Channel::kCompute];
  prediction.first_pass_s = predict_first_pass_s(plan).value_or(0);
  return prediction;
}

}  // namespace trash_panda::plan
