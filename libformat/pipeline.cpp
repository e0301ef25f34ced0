#include "trash_panda/format/pipeline.h"

#include <cstdint>
#include <optional>
#include <span>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trash_panda/base/file.h"

#include "foreign_json.h"

namespace trash_panda::format {

namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;

/// Longest index that is read, in bytes: real ones have one or two kB.
constexpr std::uint64_t kPipelineBytesMax = 1 << 20;

Error broken_pipeline(std::string message) {
  return Error(ErrorCode::kCorrupt, std::move(message)).with_reason("bad_pipeline");
}

std::string text_or_empty(const OrderedJson& value) {
  return value.is_string() ? value.get<std::string>() : std::string();
}

/// A component is `"unet": ["diffusers", "UNet2DConditionModel"]`; one that was left out has nulls.
/// Other members, such as `"requires_safety_checker": false`, are settings.
std::optional<PipelineComponent> parse_component(const std::string& name,
                                                 const OrderedJson& value) {
  if (name.starts_with('_') || !value.is_array() || value.size() < 2 || !value[1].is_string()) {
    return std::nullopt;
  }
  return PipelineComponent{.name = name,
                           .library = text_or_empty(value[0]),
                           .class_name = value[1].get<std::string>(),
                           .path = {}};
}

bool is_plain_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

Result<std::string> read_index_text(const fs::path& index_path) {
  TP_ASSIGN_OR_RETURN(const File file, File::open(index_path));
  if (file.size_bytes() > kPipelineBytesMax) {
    return std::unexpected(broken_pipeline(fmt::format("{} bytes are more than the limit of {}",
                                                       file.size_bytes(), kPipelineBytesMax)));
  }
  std::string text(file.size_bytes(), '\0');
  TP_RETURN_IF_ERROR(file.read_exact_at(0, std::as_writable_bytes(std::span(text))));
  return text;
}

Result<PipelineIndex> parse_pipeline(const fs::path& root, const std::string& text) {
  const auto index = parse_foreign_json<OrderedJson>(text);
  if (!index.is_object()) {
    return std::unexpected(broken_pipeline("it is no JSON object, or one nested too deep"));
  }
  PipelineIndex pipeline{.root = root, .class_name = {}, .components = {}};
  if (const auto name = index.find("_class_name"); name != index.end()) {
    // Newer ones hold [module, class].
    pipeline.class_name =
        name->is_array() && !name->empty() ? text_or_empty(name->back()) : text_or_empty(*name);
  }
  for (const auto& [name, value] : index.items()) {
    std::optional<PipelineComponent> component = parse_component(name, value);
    if (!component) {
      continue;
    }
    if (!is_plain_name(name)) {
      return std::unexpected(
          broken_pipeline(fmt::format("component {} would be outside its folder", printable(name)))
              .with_reason("unsafe_path"));
    }
    component->path = root / name;
    std::error_code ignored;
    component->has_folder = fs::is_directory(component->path, ignored);
    pipeline.components.push_back(*std::move(component));
  }
  return pipeline;
}

}  // namespace

bool is_pipeline(const fs::path& path) {
  std::error_code ignored;
  return path.filename() == kPipelineFile ? fs::is_regular_file(path, ignored)
                                          : fs::is_regular_file(path / kPipelineFile, ignored);
}

Result<PipelineIndex> read_pipeline(const fs::path& path) {
  std::error_code ignored;
  const fs::path absolute = fs::absolute(path, ignored).lexically_normal();
  const fs::path root = absolute.filename() == kPipelineFile ? absolute.parent_path() : absolute;
  const fs::path index_path = root / kPipelineFile;
  Result<std::string> text = read_index_text(index_path);
  Result<PipelineIndex> pipeline =
      text ? parse_pipeline(root, *text) : std::unexpected(std::move(text).error());
  if (!pipeline) {
    return std::unexpected(std::move(pipeline).error().with_context(printable(index_path)));
  }
  return pipeline;
}

}  // namespace trash_panda::format
