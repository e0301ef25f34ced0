#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "trash_panda/format/checkpoint.h"
#include "trash_panda/plan/block_groups.h"

namespace trash_panda::cli {

/// What a model is, and who says so.
struct Architecture {
  std::string name;         ///< "LlamaForCausalLM"; empty where nothing tells.
  std::string_view source;  ///< "config.json", "__metadata__", "GGUF" or "tensor names"; empty with
                            ///< `name`.
};

/// What config.json says that is of use here.
struct ModelConfig {
  Architecture architecture;
  std::optional<bool> ties_embeddings;  ///< `tie_word_embeddings`; nothing where it is not said.
};

/// A config.json that is missing or broken says nothing: what it is about may still be sound.
[[nodiscard]] ModelConfig read_model_config(const format::Checkpoint& checkpoint);

/// The architecture by the best word there is: config.json, the files' `__metadata__`, else a guess
/// from what the tensors are called.
[[nodiscard]] Architecture find_architecture(const ModelConfig& config,
                                             const format::Checkpoint& checkpoint,
                                             const plan::BlockMap& blocks);

}  // namespace trash_panda::cli
