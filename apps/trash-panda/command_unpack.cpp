#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "trash_panda/base/file.h"
#include "trash_panda/base/file_system.h"
#include "trash_panda/base/units.h"
#include "trash_panda/format/pack_unpack.h"
#include "trash_panda/format/pack_verify.h"
#include "trash_panda/format/pack_writer.h"

#include "commands.h"
#include "json_text.h"
#include "model_input.h"
#include "output_file.h"
#include "progress_bar.h"
#include "resume_command.h"
#include "signals.h"

namespace trash_panda::cli {

namespace {

Result<format::UnpackOptions> unpack_options(const UnpackOptions& options, Console& console) {
  format::UnpackOptions unpack;
  TP_ASSIGN_OR_RETURN(unpack.file_bytes_max, size_of(options.max_shard_size));
  if (unpack.file_bytes_max == 0) {
    return std::unexpected(Error(ErrorCode::kUsage, fmt::format("{}: no file can be of 0 bytes",
                                                                options.max_shard_size.source)));
  }
  TP_ASSIGN_OR_RETURN(const std::optional<std::uint64_t> reserve, size_of(options.reserve));
  unpack.reserve_bytes = reserve.value_or(unpack.reserve_bytes);
  unpack.stop = stop_flag();
  unpack.log = console.logger();
  return unpack;
}

std::uint64_t total_bytes(const format::UnpackLayout& layout) {
  std::uint64_t bytes = 0;
  for (const format::UnpackedFile& file : layout.files) {
    bytes += file.size_bytes;
  }
  return bytes;
}

std::string unpack_json(const UnpackOptions& options, const format::UnpackLayout& layout,
                        const format::Manifest& manifest) {
  Json files = Json::array();
  for (const format::UnpackedFile& file : layout.files) {
    files.push_back({{"name", file.name},
                     {"size_bytes", file.size_bytes},
                     {"tensor_count", file.tensors.size()}});
  }
  const Json document = {{"schema", "trash-panda/unpack/1"},
                         {"pack", options.pack.text},
                         {"checkpoint", options.output.text},
                         {"total_bytes", total_bytes(layout)},
                         {"files", files},
                         {"normalized", layout.normalized},
                         {"left_out", manifest.left_out}};
  return json_document(document);
}

/// Says what is not as it was in the source.
void tell_differences(const format::UnpackLayout& layout, const format::Manifest& manifest,
                      Console& console) {
  if (!layout.normalized.empty()) {
    console.note(fmt::format("{} in the pack's form, not the source's: {}",
                             counted(layout.normalized.size(), "tensor"),
                             some_names(layout.normalized)));
  }
  if (!manifest.left_out.empty()) {
    console.warn(fmt::format("{} of the source, which are no parameters, are not in the pack: {}",
                             counted(manifest.left_out.size(), "tensor"),
                             some_names(manifest.left_out)));
  }
}

/// Says what is left of a run that was interrupted, and how to go on.
Error with_next_step(Error error, const UnpackOptions& options) {
  if (error.code() != ErrorCode::kInterrupted) {
    return error;
  }
  const std::filesystem::path staged = format::partial_pack_path(options.output.text);
  std::error_code ignored;
  const bool is_left = std::filesystem::exists(staged, ignored);
  return std::move(error).with_hint(fmt::format("{} is left of {}; begin again with: {}",
                                                is_left ? "a part" : "nothing", printable(staged),
                                                unpack_command(options)));
}

/// Whether a folder's name ends with its own: "." and "a/.." say where it is, not what it is
/// called.
bool has_own_name(const std::filesystem::path& path) {
  const std::filesystem::path name = path.lexically_normal().filename();
  return name != "." && name != "..";
}

/// Tells at once what can't be written.
///
/// @retval kUsage   It lies inside the pack. @retval kOutput  It is there, or its folder isn't.
Result<void> check_target(const std::filesystem::path& target, const std::filesystem::path& pack) {
  std::error_code error;
  if (!has_own_name(target) ||
      std::filesystem::exists(std::filesystem::symlink_status(target, error))) {
    return std::unexpected(
        Error(ErrorCode::kOutput, fmt::format("{} already exists", printable(target)))
            .with_hint("a checkpoint gets a new folder: give it another name with -o"));
  }
  const std::filesystem::path folder =
      folder_of(target.has_filename() ? target : target.parent_path());  // "out/" is called "out".
  TP_RETURN_IF_ERROR(check_output_folder(folder, "-o"));
  const std::filesystem::path real_pack = std::filesystem::canonical(pack, error);
  const std::filesystem::path real_folder = std::filesystem::canonical(folder, error);
  if (std::ranges::mismatch(real_pack, real_folder).in1 == real_pack.end()) {
    return std::unexpected(
        Error(ErrorCode::kUsage, fmt::format("{} is inside the pack", printable(target)))
            .with_hint("choose another place with -o"));
  }
  return {};
}

/// A checkpoint must not be made of bytes that are not those that were packed.
Result<void> check_pack(const std::filesystem::path& pack, Console& console) {
  ProgressBar progress(console, "verifying");
  TP_ASSIGN_OR_RETURN(
      const format::VerifyReport report,
      format::verify_pack(pack, {.progress = progress.callback(), .stop = stop_flag()}));
  if (report.mismatches.empty()) {
    return {};
  }
  const bool is_unreadable = report.unreadable_count == report.mismatches.size();
  return std::unexpected(
      Error(is_unreadable ? ErrorCode::kFailed : ErrorCode::kMismatch,
            fmt::format("{} {}, nothing was unpacked: {}", printable(pack),
                        is_unreadable ? "can't be read" : "is damaged", report.mismatches.front()))
          .with_hint(fmt::format("trash-panda verify {} lists all", path_argument(pack))));
}

}  // namespace

Result<void> run_unpack(const UnpackOptions& options, Console& console) {
  if (options.output.text.empty()) {
    return std::unexpected(Error(ErrorCode::kUsage, "-o DIR is missing")
                               .with_hint("it says where the checkpoint goes"));
  }
  const std::filesystem::path pack = options.pack.text;
  TP_ASSIGN_OR_RETURN(format::UnpackOptions unpack, unpack_options(options, console));
  TP_ASSIGN_OR_RETURN(const format::Manifest manifest, format::read_manifest(pack));
  TP_RETURN_IF_ERROR(check_target(options.output.text, pack));
  format::UnpackLayout layout;
  {
    const InterruptScope interrupts;
    if (Result<void> whole = check_pack(pack, console); !whole) {
      return std::unexpected(with_next_step(std::move(whole).error(), options));
    }
    ProgressBar progress(console, "unpacking");
    unpack.progress = progress.callback();
    Result<format::UnpackLayout> unpacked =
        format::unpack_pack(FileSystem::posix(), pack, options.output.text, unpack);
    if (!unpacked) {
      return std::unexpected(with_next_step(std::move(unpacked).error(), options));
    }
    layout = *std::move(unpacked);
  }
  if (console.json()) {
    return console.print(unpack_json(options, layout, manifest));
  }
  tell_differences(layout, manifest, console);
  return console.print(
      fmt::format("{}  {}  {}\n", printable(std::filesystem::path(options.output.text)),
                  format_bytes(total_bytes(layout)), counted(layout.files.size(), "file")));
}

}  // namespace trash_panda::cli
