#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trash_panda/base/file.h"
#include "trash_panda/format/checkpoint.h"

namespace trash_panda::format {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kDefaultRevision = "main";

/// `org/name[@revision][:subfolder]`.
struct HubName {
  std::string repository;
  std::string revision{kDefaultRevision};
  std::string subfolder;
};

bool is_repository_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_' || c == '.' || c == '/';
}

/// @see huggingface_hub, validate_repo_id(): one slash, no leading dot or dash, no ".." or "--".
bool is_repository_name(std::string_view name) {
  const std::size_t slash = name.find('/');
  if (slash == std::string_view::npos || slash == 0 || slash + 1 == name.size() ||
      name.find('/', slash + 1) != std::string_view::npos) {
    return false;
  }
  const auto starts_well = [](std::string_view part) {
    return part.front() != '.' && part.front() != '-';
  };
  return std::ranges::all_of(name, is_repository_char) && starts_well(name) &&
         starts_well(name.substr(slash + 1)) && name.find("..") == std::string_view::npos &&
         name.find("--") == std::string_view::npos;
}

/// Whether a path from the command line stays below the folder that it is appended to.
bool stays_inside(std::string_view relative) {
  const fs::path path(relative);
  return !path.is_absolute() &&
         std::ranges::none_of(path, [](const fs::path& part) { return part == ".."; });
}

std::optional<HubName> parse_hub_name(std::string_view argument) {
  HubName name;
  if (const std::size_t colon = argument.find(':'); colon != std::string_view::npos) {
    name.subfolder = argument.substr(colon + 1);
    argument = argument.substr(0, colon);
  }
  if (const std::size_t at = argument.find('@'); at != std::string_view::npos) {
    name.revision = argument.substr(at + 1);
    argument = argument.substr(0, at);
  }
  name.repository = argument;
  const bool is_valid = is_repository_name(name.repository) && !name.revision.empty() &&
                        stays_inside(name.revision) && stays_inside(name.subfolder);
  return is_valid ? std::optional(std::move(name)) : std::nullopt;
}

/// Where the cache is. @see huggingface_hub, constants HF_HUB_CACHE and HF_HOME
fs::path cache_folder(const HubCacheEnvironment& environment) {
  if (!environment.hub_cache.empty()) {
    return environment.hub_cache;
  }
  if (!environment.hf_home.empty()) {
    return fs::path(environment.hf_home) / "hub";
  }
  return fs::path(environment.home) / ".cache" / "huggingface" / "hub";
}

/// `models--org--name`: folder of a repository in the cache.
std::string repository_folder(std::string_view repository) {
  std::string folder = fmt::format("models--{}", repository);
  folder.replace(folder.find('/'), 1, "--");
  return folder;
}

/// The commit that refs/<revision> holds; the revision itself when there is no such file.
std::string commit_of(const fs::path& repository, const std::string& revision) {
  std::ifstream reference(repository / "refs" / revision);
  std::string commit;
  reference >> commit;
  return commit.empty() || !stays_inside(commit) ? revision : commit;
}

std::string download_hint(const HubName& name) {
  std::string hint = fmt::format("get it with: hf download {}", name.repository);
  if (name.revision != kDefaultRevision) {
    hint += fmt::format(" --revision {}", name.revision);
  }
  if (!name.subfolder.empty()) {
    hint += fmt::format(" --include \"{}/*\"", name.subfolder);
  }
  return hint;
}

Error not_in_cache(const HubName& name, std::string_view what, const fs::path& where) {
  return Error(ErrorCode::kMissing,
               fmt::format("{} is neither a path nor in the Hugging Face cache: no {} {}",
                           printable(name.repository), what, printable(where)))
      .with_reason("not_in_cache")
      .with_hint(download_hint(name));
}

}  // namespace

Result<fs::path> resolve_model(std::string_view argument, const HubCacheEnvironment& environment) {
  fs::path path(argument);
  std::error_code ignored;
  if (fs::exists(path, ignored)) {
    return path;
  }
  const std::optional<HubName> name = parse_hub_name(argument);
  if (!name) {
    return std::unexpected(
        Error(ErrorCode::kMissing, fmt::format("{} does not exist", printable(path)))
            .with_reason("no_path")
            .with_hint("a model is a .safetensors file, a torch checkpoint, a folder, an index, a "
                       "pack or org/name[@revision][:subfolder] of the Hugging Face cache"));
  }
  const fs::path repository = cache_folder(environment) / repository_folder(name->repository);
  if (!fs::is_directory(repository, ignored)) {
    return std::unexpected(not_in_cache(*name, "folder", repository));
  }
  const fs::path snapshot = repository / "snapshots" / commit_of(repository, name->revision);
  if (!fs::is_directory(snapshot, ignored)) {
    return std::unexpected(not_in_cache(*name, "snapshot", snapshot));
  }
  fs::path model = name->subfolder.empty() ? snapshot : snapshot / name->subfolder;
  if (!fs::exists(model, ignored)) {
    return std::unexpected(not_in_cache(*name, "subfolder", model));
  }
  return model;
}

}  // namespace trash_panda::format
