#include "plan_binding.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "trash_panda/format/checkpoint.h"
#include "trash_panda/format/weights.h"
#include "trash_panda/plan/block_groups.h"
#include "trash_panda/plan/explanation.h"
#include "trash_panda/plan/hardware_json.h"
#include "trash_panda/plan/pack_layout.h"
#include "trash_panda/plan/plan_toml.h"
#include "trash_panda/plan/prediction.h"
#include "trash_panda/runtime/probe.h"

#include "arguments.h"
#include "errors.h"
#include "text.h"

namespace nb = nanobind;

namespace trash_panda::python {
namespace {

nb::dict block_dict(const plan::PlannedBlock& block) {
  nb::dict result;
  result["name"] = to_str(block.name);
  result["tier"] = to_str(format::tier_name(block.tier));
  result["stored_bytes"] = block.stored_bytes;
  result["extent_bytes"] = block.extent_bytes;
  result["expanded_bytes"] = block.expanded_bytes;
  result["form"] = to_str(plan::storage_form_name(block.form));
  return result;
}

nb::object prediction_dict(const plan::Plan& plan) {
  if (!plan.predicted) {
    return nb::none();
  }
  nb::dict result;
  result["pass_s"] = plan.predicted->pass_s;
  result["bound_s"] = plan.predicted->bound_s;
  result["limiting"] = to_str(plan.predicted->limiting);
  result["stall_s"] = plan.predicted->stall_s;
  result["first_pass_s"] = plan.predicted->first_pass_s;
  return result;
}

nb::dict parse_plan(const std::string& text, const std::string& where) {
  const plan::Plan plan = unwrap(plan::parse_plan_toml(text, where));
  nb::list blocks;
  for (const plan::PlannedBlock& block : plan.blocks) {
    blocks.append(block_dict(block));
  }
  nb::dict result;
  result["model_path"] = to_str(plan.model_path);
  result["model_fingerprint"] = to_str(plan.model_fingerprint);
  result["compute_dtype"] = to_str(plan.compute_dtype);
  result["lookahead_bytes"] = plan.lookahead_bytes;
  result["base_bytes"] = plan.base_bytes;
  result["slot_bytes"] = plan.slot_bytes;
  result["compute_slot_bytes"] = plan.compute_slot_bytes;
  result["ram_budget_bytes"] = plan.ram_budget_bytes;
  result["ram_used_bytes"] = plan.ram_used_bytes();
  result["vram_budget_bytes"] = plan.vram_budget_bytes;
  result["vram_used_bytes"] = plan.vram_used_bytes();
  result["fits"] = plan.fits();
  result["predicted"] = prediction_dict(plan);
  result["blocks"] = blocks;
  return result;
}

std::string retier_plan(const std::string& text, const std::string& where,
                        const std::vector<std::string>& tiers) {
  plan::Plan plan = unwrap(plan::parse_plan_toml(text, where));
  if (tiers.size() != plan.blocks.size()) {
    throw NativeError(Error(ErrorCode::kUsage, std::to_string(tiers.size()) + " tiers for the " +
                                                   std::to_string(plan.blocks.size()) +
                                                   " blocks of plan " + where));
  }
  for (std::size_t index = 0; index < tiers.size(); ++index) {
    plan.blocks[index].tier = tier_argument(tiers[index]);
  }
  // Nothing is demoted from a tier that it is not in.
  const auto keep = [&](std::vector<std::uint64_t>& order, plan::Tier tier) {
    std::erase_if(order, [&](std::uint64_t index) { return plan.blocks[index].tier != tier; });
  };
  keep(plan.demote_gpu, plan::Tier::kGpu);
  keep(plan.demote_ram, plan::Tier::kRam);
  plan.predicted = plan::predict(plan);
  return plan::rewrite_plan_toml(plan, text);
}

nb::dict move_dict(const plan::TierMove& move) {
  nb::dict result;
  result["tier"] = to_str(format::tier_name(move.tier));
  result["pass_s"] = move.pass_s ? nb::object(nb::float_(*move.pass_s)) : nb::none();
  result["ram_used_bytes"] = move.ram_used_bytes;
  result["vram_used_bytes"] = move.vram_used_bytes;
  result["fits"] = move.fits;
  return result;
}

nb::dict explain_block(const std::string& text, const std::string& where, std::size_t index) {
  const plan::Plan plan = unwrap(plan::parse_plan_toml(text, where));
  if (index >= plan.blocks.size()) {
    throw NativeError(Error(ErrorCode::kUsage, "no block " + std::to_string(index) + ": plan " +
                                                   where + " has " +
                                                   std::to_string(plan.blocks.size())));
  }
  const plan::BlockExplanation explanation = plan::explain_blocks(plan, {&index, 1}).front();
  nb::list moves;
  for (const plan::TierMove& move : explanation.moves) {
    moves.append(move_dict(move));
  }
  nb::dict result;
  result["reason"] = to_str(plan::tier_reason_name(explanation.reason));
  result["read_s"] = explanation.cost.read_s;
  result["decode_s"] = explanation.cost.decode_s;
  result["copy_s"] = explanation.cost.copy_s;
  result["compute_s"] = explanation.cost.compute_s;
  result["stall_s"] = explanation.stall_s;
  result["stalled_by"] = to_str(plan::channel_name(explanation.stalled_by));
  result["moves"] = moves;
  return result;
}

// The numbered prefixes of a plan's blocks, to find the same blocks again.
std::vector<std::string> plan_groups(const plan::Plan& plan) {
  std::vector<std::string> groups;
  for (const plan::PlannedBlock& block : plan.blocks) {
    std::string prefix = block.name.substr(0, block.name.rfind('.') + 1);
    if (std::ranges::find(groups, prefix) == groups.end()) {
      groups.push_back(std::move(prefix));
    }
  }
  return groups;
}

void check_plan(const std::string& text, const std::string& where,
                const std::filesystem::path& checkpoint_path) {
  const plan::Plan plan = unwrap(plan::parse_plan_toml(text, where));
  auto layout = [&]() -> Result<format::PackLayout> {
    const nb::gil_scoped_release no_gil;
    TP_ASSIGN_OR_RETURN(const format::Checkpoint checkpoint,
                        format::Checkpoint::open(checkpoint_path));
    TP_ASSIGN_OR_RETURN(const format::WeightTable weights, format::find_weights(checkpoint));
    TP_ASSIGN_OR_RETURN(const plan::BlockMap blocks,
                        plan::find_blocks(checkpoint.tensors(), {.groups = plan_groups(plan)}));
    return plan::make_pack_layout(plan, checkpoint, weights, blocks);
  }();
  unwrap(std::move(layout));
}

nb::dict read_checkpoint(const std::filesystem::path& path) {
  const format::Checkpoint checkpoint = unwrap([&] {
    const nb::gil_scoped_release no_gil;
    return format::Checkpoint::open(path);
  }());
  nb::list tensors;
  for (const format::TensorRecord& tensor : checkpoint.tensors()) {
    nb::list shape;
    for (const std::uint64_t size : tensor.shape) {
      shape.append(size);
    }
    tensors.append(
        nb::make_tuple(to_str(tensor.name), to_str(format::type_name(tensor)), nb::tuple(shape)));
  }
  nb::list files;
  for (const format::CheckpointFile& file : checkpoint.files()) {
    files.append(to_str(file.path.native()));
  }
  nb::dict result;
  result["path"] = to_str(checkpoint.path().native());
  result["files"] = files;
  result["fingerprint"] = to_str(checkpoint.fingerprint());
  result["tensors"] = tensors;
  return result;
}

using NamedTensor = std::tuple<std::string, std::string, std::vector<std::uint64_t>>;

nb::list find_blocks(const std::vector<NamedTensor>& tensors,
                     const std::vector<std::string>& groups) {
  std::vector<format::TensorRecord> records;  // Their names are those of `tensors`.
  records.reserve(tensors.size());
  for (const auto& [name, dtype, shape] : tensors) {
    format::TensorRecord record{.name = name,
                                .dtype = dtype_argument(dtype),
                                .shape = format::Shape(shape.data(), shape.data() + shape.size()),
                                .file_index = 0,
                                .offset_bytes = 0,
                                .size_bytes = 0};
    record.size_bytes = format::element_count(record) * format::dtype_bits(record.dtype) / 8;
    records.push_back(std::move(record));
  }
  nb::list result;
  const plan::BlockMap map = unwrap(plan::find_blocks(records, {.groups = groups}));
  for (const plan::BlockGroup& group : map.groups) {
    nb::list blocks;
    for (const plan::Block& block : group.blocks) {
      blocks.append(nb::make_tuple(to_str(block.name), block.stored_bytes));
    }
    result.append(nb::make_tuple(to_str(group.prefix), blocks));
  }
  return result;
}

}  // namespace

void bind_plan(nb::module_& module) {
  module.def("parse_plan", &parse_plan, nb::arg("text"), nb::arg("where"));
  module.def("retier_plan", &retier_plan, nb::arg("text"), nb::arg("where"), nb::arg("tiers"));
  module.def("explain_block", &explain_block, nb::arg("text"), nb::arg("where"), nb::arg("index"));
  module.def("check_plan", &check_plan, nb::arg("text"), nb::arg("where"), nb::arg("checkpoint"));
  module.def("find_blocks", &find_blocks, nb::arg("tensors"), nb::arg("groups"));
  module.def("probe_hardware", [] {
    const nb::gil_scoped_release no_gil;
    return plan::write_hardware(runtime::probe_hardware());
  });
  module.def("read_checkpoint", &read_checkpoint, nb::arg("checkpoint"));
}

}  // namespace trash_panda::python
