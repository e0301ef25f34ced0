#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trash_panda/format/tensor_record.h"
#include "trash_panda/format/text_arena.h"
#include "trash_panda/format/weights.h"
#include "trash_panda/plan/hardware.h"
#include "trash_panda/plan/planner.h"

namespace trash_panda::plan {

/// A list of tensors by name, as a checkpoint would hold them, without bytes.
class Names {
 public:
  Names& add(std::string_view name, format::Shape shape = {8, 8},
             format::Dtype dtype = format::Dtype::kBf16) {
    std::uint64_t elements = 1;
    for (const std::uint64_t dimension : shape) {
      elements *= dimension;
    }
    const std::uint64_t size_bytes = elements * format::dtype_bits(dtype) / 8;
    tensors_.push_back({texts_->keep(name), dtype, std::move(shape), 0, end_bytes_, size_bytes});
    end_bytes_ += size_bytes;
    return *this;
  }

  /// Adds `<prefix><i>.<suffix>` for i in [0, count) and every suffix.
  Names& add_list(std::string_view prefix, std::size_t count,
                  const std::vector<std::string_view>& suffixes) {
    for (std::size_t index = 0; index < count; ++index) {
      for (const std::string_view suffix : suffixes) {
        add(fmt::format("{}{}.{}", prefix, index, suffix));
      }
    }
    return *this;
  }

  [[nodiscard]] const std::vector<format::TensorRecord>& tensors() const { return tensors_; }

 private:
  /// Shared, so that copies of the list stay valid.
  std::shared_ptr<format::TextArena> texts_ = std::make_shared<format::TextArena>();
  std::vector<format::TensorRecord> tensors_;
  std::uint64_t end_bytes_ = 0;
};

/// A table in which every tensor is a weight of its own.
inline format::WeightTable plain_weights(const std::vector<format::TensorRecord>& tensors) {
  format::WeightTable table;
  for (std::size_t index = 0; index < tensors.size(); ++index) {
    table.weights.push_back({tensors[index].name, index, tensors[index].dtype, std::nullopt});
  }
  return table;
}

/// A model of blocks of given sizes (stored, packed and expanded alike) and base tensors.
inline ModelSummary model_of(const std::vector<std::uint64_t>& block_bytes,
                             std::uint64_t base_bytes) {
  ModelSummary model;
  model.path = "/models/m.safetensors";
  model.fingerprint = "0123456789abcdef0123456789abcdef";
  model.total_bytes = base_bytes;
  model.tensor_count = block_bytes.size() + 1;
  model.base_stored_bytes = base_bytes;
  model.base_expanded_bytes = base_bytes;
  for (std::size_t index = 0; index < block_bytes.size(); ++index) {
    PlannedBlock block;
    block.name = fmt::format("layers.{}", index);
    block.stored_bytes = block_bytes[index];
    block.extent_bytes = block_bytes[index];
    block.expanded_bytes = block_bytes[index];
    model.total_bytes += block_bytes[index];
    model.blocks.push_back(block);
  }
  return model;
}

/// `count` equal blocks.
inline ModelSummary equal_model(std::size_t count, std::uint64_t block_bytes,
                                std::uint64_t base_bytes) {
  return model_of(std::vector<std::uint64_t>(count, block_bytes), base_bytes);
}

inline Hardware machine(std::uint64_t ram_bytes) {
  Hardware hardware;
  hardware.ram_total_bytes = ram_bytes;
  hardware.ram_available_bytes = ram_bytes;
  hardware.gpu_note = "no NVIDIA driver (libcuda.so.1)";
  return hardware;
}

inline Hardware machine_with_gpu(std::uint64_t ram_bytes, std::uint64_t vram_bytes) {
  Hardware hardware = machine(ram_bytes);
  hardware.gpu_note.clear();
  hardware.gpus.push_back({"Test GPU", "GPU-0", vram_bytes, vram_bytes});
  return hardware;
}

/// "grrd": one letter a block.
inline std::string tiers_of(const Plan& plan) {
  std::string letters;
  for (const PlannedBlock& block : plan.blocks) {
    letters += format::tier_name(block.tier)[0];
  }
  return letters;
}

}  // namespace trash_panda::plan
