#include "checkpoint_folder.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <optional>
#include <system_error>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trash_panda/base/file.h"
#include "trash_panda/format/pipeline.h"

namespace trash_panda::format {

namespace {

namespace fs = std::filesystem;

/// How the files of one format are named.
struct FolderFormat {
  std::string_view ending;
  std::string_view index_infix;
  std::string_view stem_ending;  ///< Of the names before that; empty where any will do.
};

/// The preferred one first. Folders have many a .bin that is none: an optimizer's state, arguments.
constexpr std::array<FolderFormat, 2> kFolderFormats = {
    FolderFormat{".safetensors", ".safetensors.index.", ""},
    FolderFormat{".bin", ".bin.index.", "pytorch_model"},
};

/// Names that libraries look for, the preferred one first.
/// @see transformers SAFE_WEIGHTS_NAME, diffusers SAFETENSORS_WEIGHTS_NAME
constexpr std::array<std::string_view, 3> kStandardStems = {"model", "diffusion_pytorch_model",
                                                            "pytorch_model"};

/// Most names that one message lists.
constexpr std::size_t kListedMax = 10;

/// `model-00002-of-00005`: which part of how many.
struct PartNumber {
  std::uint64_t part = 0;
  std::uint64_t count = 0;
};

/// What a file's name says about it.
struct FileName {
  std::string stem;     ///< "model"; for other than the standard names with all its dots.
  std::string variant;  ///< "fp16", or empty.
  std::optional<PartNumber> number;
  bool is_index = false;
};

std::optional<std::uint64_t> parse_number(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_number = error == std::errc() && end == text.data() + text.size();
  return is_number ? std::optional(number) : std::nullopt;
}

/// Takes `-00002-of-00005` off the end of a stem.
std::optional<PartNumber> take_part_number(std::string& stem) {
  const std::size_t of = stem.rfind("-of-");
  if (of == std::string::npos || of == 0) {
    return std::nullopt;
  }
  const std::size_t dash = stem.rfind('-', of - 1);
  if (dash == std::string::npos) {
    return std::nullopt;
  }
  const std::string_view text = stem;
  const auto part = parse_number(text.substr(dash + 1, of - dash - 1));
  const auto count = parse_number(text.substr(of + 4));
  if (!part || !count) {
    return std::nullopt;
  }
  stem.resize(dash);
  return PartNumber{.part = *part, .count = *count};
}

/// Takes `.fp16` off a standard name; other names keep their dots ("llama-3.1").
std::string take_variant(std::string& stem) {
  for (const std::string_view standard : kStandardStems) {
    if (stem.size() > standard.size() + 1 && stem.starts_with(standard) &&
        stem[standard.size()] == '.') {
      std::string variant = stem.substr(standard.size() + 1);
      stem.resize(standard.size());
      return variant;
    }
  }
  return {};
}

/// Takes a variant that stands after the number: `model-00001-of-00002.fp16`.
std::string take_late_variant(std::string& stem) {
  const std::size_t dot = stem.rfind('.');
  const std::size_t of = stem.rfind("-of-");
  if (dot == std::string::npos || of == std::string::npos || dot < of) {
    return {};
  }
  std::string variant = stem.substr(dot + 1);
  stem.resize(dot);
  return variant;
}

std::optional<FileName> parse_file_name(const std::string& name, const FolderFormat& format) {
  FileName parsed;
  const std::size_t index = name.find(format.index_infix);
  if (index != std::string::npos && name.ends_with("json")) {
    parsed.is_index = true;
    parsed.stem = name.substr(0, index);
    parsed.variant = take_variant(parsed.stem);
    // model.safetensors.index.fp16.json: the variant stands after the word.
    const std::string_view rest = std::string_view(name).substr(index + format.index_infix.size());
    if (rest.size() > 5 && rest[rest.size() - 5] == '.') {
      parsed.variant = rest.substr(0, rest.size() - 5);
    } else if (rest != "json") {
      return std::nullopt;
    }
    return parsed;
  }
  if (!name.ends_with(format.ending) || name.size() == format.ending.size()) {
    return std::nullopt;
  }
  parsed.stem = name.substr(0, name.size() - format.ending.size());
  std::string late_variant = take_late_variant(parsed.stem);
  parsed.number = take_part_number(parsed.stem);
  parsed.variant = late_variant.empty() ? take_variant(parsed.stem) : std::move(late_variant);
  return parsed;
}

/// Shards of one numbering, by part.
using PartFiles = std::map<std::uint64_t, std::string>;

/// Files of one stem and variant.
struct Group {
  std::string stem;
  std::string variant;
  std::string index;
  std::string single;
  std::map<std::uint64_t, PartFiles> shards;  ///< By the number of parts.

  [[nodiscard]] std::string name() const {
    if (!index.empty()) {
      return index;
    }
    return single.empty() ? shards.begin()->second.begin()->second : single;
  }
};

using Groups = std::map<std::pair<std::string, std::string>, Group>;

struct FolderContent {
  const FolderFormat* format = nullptr;
  Groups groups;                     ///< Of that format, by stem and variant.
  std::vector<std::string> files;    ///< All, sorted.
  std::vector<std::string> folders;  ///< Sorted.
};

Groups group_files(const std::vector<std::string>& files, const FolderFormat& format) {
  Groups groups;
  for (const std::string& name : files) {
    const std::optional<FileName> parsed = parse_file_name(name, format);
    if (!parsed || !parsed->stem.ends_with(format.stem_ending)) {
      continue;
    }
    Group& group = groups[{parsed->stem, parsed->variant}];
    group.stem = parsed->stem;
    group.variant = parsed->variant;
    if (parsed->is_index) {
      group.index = name;
    } else if (parsed->number) {
      group.shards[parsed->number->count][parsed->number->part] = name;
    } else {
      group.single = name;
    }
  }
  return groups;
}

Result<FolderContent> list_folder(const fs::path& folder) {
  FolderContent content;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::string name = it->path().filename().string();
    std::error_code ignored;  // A link that leads nowhere is listed: opening it says so.
    (it->is_directory(ignored) ? content.folders : content.files).push_back(std::move(name));
  }
  if (error) {
    return std::unexpected(Error::from_errno(
        error.value(), fmt::format("can't list the folder {}", printable(folder))));
  }
  std::ranges::sort(content.files);
  std::ranges::sort(content.folders);
  for (const FolderFormat& format : kFolderFormats) {
    content.format = &format;
    content.groups = group_files(content.files, format);
    if (!content.groups.empty()) {
      break;
    }
  }
  return content;
}

std::string list_names(const std::vector<std::string>& names) {
  const std::size_t listed = std::min(names.size(), kListedMax);
  std::string text;
  for (std::size_t i = 0; i < listed; ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : ", ", printable(names[i]));
  }
  if (names.size() > listed) {
    text += fmt::format(" and {} more", names.size() - listed);
  }
  return text;
}

bool has_checkpoint(const fs::path& folder) {
  const Result<FolderContent> content = list_folder(folder);
  return content && !content->groups.empty();
}

std::vector<std::string> component_folders(const fs::path& folder, const FolderContent& content) {
  std::vector<std::string> components;
  for (const std::string& name : content.folders) {
    if (has_checkpoint(folder / name)) {
      components.push_back(name);
    }
  }
  return components;
}

bool has_torch_ending(std::string_view name) {
  constexpr std::array<std::string_view, 4> kEndings = {".bin", ".pt", ".pth", ".ckpt"};
  return std::ranges::any_of(kEndings, [name](auto ending) { return name.ends_with(ending); });
}

/// Says what is in a folder that has no checkpoint of its own.
Error no_checkpoint(const fs::path& folder, const FolderContent& content) {
  const std::vector<std::string> components = component_folders(folder, content);
  if (!components.empty()) {
    const bool has_index = std::ranges::binary_search(content.files, kPipelineFile);
    std::vector<std::string> paths;
    paths.reserve(components.size());
    for (const std::string& name : components) {
      paths.push_back((folder / name).string());
    }
    return Error(ErrorCode::kUsage,
                 fmt::format("{} holds no checkpoint itself but {} in folders{}: {}",
                             printable(folder), components.size(),
                             has_index ? " (a pipeline, by its model_index.json)" : "",
                             list_names(components)))
        .with_reason("pipeline")
        .with_hint(fmt::format("name one of them: {}", list_names(paths)));
  }
  for (const std::string& name : content.files) {
    if (name.ends_with(".gguf") || has_torch_ending(name)) {
      return Error(ErrorCode::kUnsupported,
                   fmt::format("{} holds no safetensors checkpoint, but {}", printable(folder),
                               printable(name)))
          .with_reason(name.ends_with(".gguf") ? "gguf" : "pickle")
          .with_hint(fmt::format("name that file if it is meant: {}", printable(folder / name)));
    }
  }
  return Error(ErrorCode::kMissing,
               fmt::format("{} holds no checkpoint: no .safetensors file and no index among its "
                           "{} files",
                           printable(folder), content.files.size()))
      .with_reason("no_checkpoint")
      .with_hint("name a .safetensors file, an index or the folder that holds one");
}

/// Position in kStandardStems; past its end for other names.
std::size_t stem_rank(const Group& group) {
  return static_cast<std::size_t>(
      std::distance(kStandardStems.begin(), std::ranges::find(kStandardStems, group.stem)));
}

Error several_checkpoints(const fs::path& folder, const std::vector<const Group*>& groups) {
  std::vector<std::string> names;
  names.reserve(groups.size());
  for (const Group* group : groups) {
    names.push_back(group->name());
  }
  return Error(ErrorCode::kUsage, fmt::format("{} holds {} checkpoints: {}", printable(folder),
                                              groups.size(), list_names(names)))
      .with_reason("several_checkpoints")
      .with_hint(fmt::format("name one of them: {}", printable(folder / names.front())));
}

/// The group to open: a standard name before others, plain before variants.
Result<const Group*> choose_group(const fs::path& folder, const FolderContent& content) {
  std::vector<const Group*> groups;
  for (const auto& [key, group] : content.groups) {
    groups.push_back(&group);
  }
  const auto rank = [](const Group* group) {
    return std::pair(stem_rank(*group), !group->variant.empty());
  };
  std::ranges::stable_sort(groups, {}, rank);
  const bool is_clear = groups.size() == 1 || rank(groups[0]) != rank(groups[1]);
  if (!is_clear) {
    return std::unexpected(several_checkpoints(folder, groups));
  }
  return groups.front();
}

std::vector<std::string> missing_parts(std::uint64_t count, const PartFiles& parts) {
  // Parts are numbered from 1; some writers begin with 0.
  const std::uint64_t first = parts.begin()->first == 0 ? 0 : 1;
  const std::string& sample = parts.begin()->second;
  const std::size_t of = sample.rfind("-of-");
  const std::size_t dash = sample.rfind('-', of - 1);
  std::vector<std::string> missing;
  for (std::uint64_t part = first; part < first + count && missing.size() <= 1000; ++part) {
    if (!parts.contains(part)) {
      missing.push_back(fmt::format("{}{:0{}}{}", sample.substr(0, dash + 1), part, of - dash - 1,
                                    sample.substr(of)));
    }
  }
  return missing;
}

/// Shards without an index: all parts of one numbering.
Result<std::vector<fs::path>> choose_shards(const fs::path& folder, const Group& group,
                                            std::vector<std::string>& notes) {
  const PartFiles* chosen = nullptr;
  std::vector<std::string> missing;
  for (const auto& [count, parts] : group.shards) {
    std::vector<std::string> gaps = missing_parts(count, parts);
    if (!gaps.empty()) {
      missing = std::move(gaps);
    } else if (chosen == nullptr) {
      chosen = &parts;
    } else {
      return std::unexpected(several_checkpoints(folder, {&group, &group}));
    }
  }
  if (chosen == nullptr) {
    return std::unexpected(
        Error(ErrorCode::kMissing,
              fmt::format("{} lacks shards: {}", printable(folder), list_names(missing)))
            .with_reason("missing_shard")
            .with_hint("download the missing files"));
  }
  if (group.shards.size() > 1) {
    notes.push_back("shards of another, incomplete numbering in the folder are not used");
  }
  std::vector<fs::path> files;
  for (const auto& [part, name] : *chosen) {
    files.push_back(folder / name);
  }
  notes.push_back(fmt::format("no index: {} numbered shards are read together", files.size()));
  return files;
}

}  // namespace

Result<FolderChoice> choose_in_folder(const fs::path& folder) {
  TP_ASSIGN_OR_RETURN(const FolderContent content, list_folder(folder));
  if (content.groups.empty() || std::ranges::binary_search(content.files, kPipelineFile)) {
    return std::unexpected(no_checkpoint(folder, content));
  }
  TP_ASSIGN_OR_RETURN(const Group* group, choose_group(folder, content));
  FolderChoice choice;
  if (content.format != kFolderFormats.data()) {
    choice.notes.push_back(
        fmt::format("the folder has no safetensors files: {} is read, executing nothing in it",
                    printable(std::string_view(group->name()))));
  }
  if (!group->index.empty()) {
    // transformers takes the single file where both exist; vLLM, SGLang and others follow the
    // index. So do we: the index is what publishers keep up to date with its shards.
    choice.index = folder / group->index;
    if (!group->single.empty()) {
      choice.notes.push_back(
          fmt::format("{} is not used: the index beside it is followed", printable(group->single)));
    }
  } else if (!group->single.empty()) {
    choice.files.push_back(folder / group->single);
  } else {
    TP_ASSIGN_OR_RETURN(choice.files, choose_shards(folder, *group, choice.notes));
  }
  for (const auto& [key, other] : content.groups) {
    if (&other != group) {
      choice.others.push_back(other.name());
    }
  }
  return choice;
}

}  // namespace trash_panda::format
