#include <array>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "trash_panda/base/file.h"
#include "trash_panda/base/nearest_name.h"
#include "trash_panda/format/manifest.h"

#include "commands.h"
#include "help_text.h"
#include "json_text.h"
#include "version_info.h"

namespace trash_panda::cli {

namespace {

struct Feature {
  std::string_view name;
  bool built;
};

/// What this build can do, said whichever way it is: a bug report then needs no questions.
constexpr std::array kFeatures = {
    Feature{"direct_io", true},
    Feature{"io_uring", true},
#ifdef TP_HAS_CUDA_KERNELS
    Feature{"cuda", true},
#else
    Feature{"cuda", false},
#endif
};

}  // namespace

Result<void> run_version(Console& console) {
  if (console.json()) {
    Json features;
    for (const Feature& feature : kFeatures) {
      features[std::string(feature.name)] = feature.built;
    }
    const Json document = {{"schema", "trash-panda/version/1"},
                           {"version", kVersion},
                           {"commit", kCommit},
                           {"compiler", kCompiler},
                           {"features", features},
                           {"pack_versions", {format::kPackVersion}}};
    return console.print(json_document(document));
  }
  std::string features;
  for (const Feature& feature : kFeatures) {
    features += fmt::format(" {}{}", feature.built ? '+' : '-', feature.name);
  }
  return console.print(
      fmt::format("trash-panda {}\ncommit {}\ncompiler {}\nfeatures{}\npack format version {}\n",
                  kVersion, kCommit, kCompiler, features, format::kPackVersion));
}

Result<void> run_help(const HelpOptions& options, const CommandDescriptions& commands,
                      Console& console) {
  const CommandDescription* command = find_command(commands, options.command.text);
  if (command != nullptr) {
    return console.print(help_text(commands, *command));
  }
  std::vector<std::string_view> names;
  for (const CommandDescription& entry : commands) {
    names.push_back(entry.name);
  }
  const std::string_view nearest = nearest_name(options.command.text, names);
  return std::unexpected(
      Error(ErrorCode::kUsage,
            fmt::format("unknown command '{}'", printable(std::string_view(options.command.text))))
          .with_hint(nearest.empty() ? std::string("see trash-panda --help")
                                     : fmt::format("did you mean {}?", nearest)));
}

}  // namespace trash_panda::cli
