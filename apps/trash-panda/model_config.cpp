#include "model_config.h"

#include <nlohmann/json.hpp>

#include "trash_panda/base/json_depth.h"

#include "architecture_names.h"

namespace trash_panda::cli {

namespace {

std::string text_of(const nlohmann::json& object, const char* key) {
  const auto value = object.find(key);
  return value != object.end() && value->is_string() ? value->get<std::string>() : std::string();
}

/// transformers' class, diffusers' class, then the family that transformers looks classes up by.
std::string class_of(const nlohmann::json& config) {
  const auto classes = config.find("architectures");
  if (classes != config.end() && classes->is_array() && !classes->empty() &&
      classes->front().is_string()) {
    return classes->front().get<std::string>();
  }
  const std::string class_name = text_of(config, "_class_name");
  return class_name.empty() ? text_of(config, "model_type") : class_name;
}

std::optional<bool> flag_of(const nlohmann::json& object, const char* key) {
  const auto value = object.find(key);
  return value != object.end() && value->is_boolean() ? std::optional(value->get<bool>())
                                                      : std::nullopt;
}

/// Composite models say it for their language part.
std::optional<bool> ties_embeddings(const nlohmann::json& config) {
  for (const char* part : {"text_config", "language_config", "llm_config"}) {
    const auto found = config.find(part);
    if (found != config.end() && found->is_object()) {
      if (const auto flag = flag_of(*found, "tie_word_embeddings")) {
        return flag;
      }
    }
  }
  return flag_of(config, "tie_word_embeddings");
}

}  // namespace

ModelConfig read_model_config(const format::Checkpoint& checkpoint) {
  const Result<std::string> text = checkpoint.side_file("config.json");
  if (!text || is_json_too_deep(*text)) {
    return {};
  }
  const nlohmann::json json = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return {};
  }
  ModelConfig config{.architecture = {.name = class_of(json), .source = "config.json"},
                     .ties_embeddings = ties_embeddings(json)};
  if (config.architecture.name.empty()) {
    config.architecture.source = {};
  }
  return config;
}

Architecture find_architecture(const ModelConfig& config, const format::Checkpoint& checkpoint,
                               const plan::BlockMap& blocks) {
  for (const format::CheckpointFile& file : checkpoint.files()) {
    // Before config.json, which may have been left there by another checkpoint.
    const auto stated = file.metadata.find("general.architecture");
    if (file.kind == format::FileKind::kGguf && stated != file.metadata.end()) {
      return {.name = stated->second, .source = "GGUF"};
    }
  }
  if (!config.architecture.name.empty()) {
    return config.architecture;
  }
  for (const format::CheckpointFile& file : checkpoint.files()) {
    // The Stability AI model metadata standard, which trainers of diffusion models follow.
    const auto stated = file.metadata.find("modelspec.architecture");
    if (stated != file.metadata.end() && !stated->second.empty()) {
      return {.name = stated->second, .source = "__metadata__"};
    }
  }
  const std::string_view guess = guess_architecture(checkpoint.tensors(), blocks);
  return {.name = std::string(guess), .source = guess.empty() ? "" : "tensor names"};
}

}  // namespace trash_panda::cli
