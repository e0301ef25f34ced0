#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trash_panda/plan/block_groups.h"

#include "model_config.h"
#include "model_input.h"

namespace trash_panda::cli {

/// A name under which a stored tensor is used as well.
struct Tie {
  std::string name;         ///< Not stored: "lm_head.weight".
  std::string target;       ///< Stored: "model.embed_tokens.weight".
  std::string_view source;  ///< Who says so: "__metadata__", "config.json", or of a torch
                            ///< file "shared memory".
};

/// The ties of a checkpoint: those that its files name, and the head that config.json ties.
[[nodiscard]] std::vector<Tie> find_ties(const LoadedModel& model, const ModelConfig& config);

/// What is odd about how a model is laid out and named, one line each; what the reader itself
/// remarks is in LoadedModel::warnings.
[[nodiscard]] std::vector<std::string> layout_remarks(const LoadedModel& model,
                                                      const ModelConfig& config);

}  // namespace trash_panda::cli
