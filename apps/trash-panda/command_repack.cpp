#include <array>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trash_panda/base/file.h"
#include "trash_panda/base/file_system.h"
#include "trash_panda/format/pack_verify.h"
#include "trash_panda/format/pack_writer.h"
#include "trash_panda/plan/pack_layout.h"
#include "trash_panda/runtime/probe.h"

#include "commands.h"
#include "measured_rates.h"
#include "model_input.h"
#include "output_file.h"
#include "pack_folder.h"
#include "pack_target.h"
#include "plan_report.h"
#include "plan_request.h"
#include "progress_bar.h"
#include "repack_dtype.h"
#include "repack_plan.h"
#include "repack_report.h"
#include "repack_retier.h"
#include "resume_command.h"
#include "signals.h"
#include "version_info.h"

namespace trash_panda::cli {

namespace {

Result<format::PackOptions> pack_options(const RepackOptions& options, Console& console) {
  format::PackOptions pack;
  TP_ASSIGN_OR_RETURN(const std::optional<std::uint64_t> align, size_of(options.align));
  TP_ASSIGN_OR_RETURN(const std::optional<std::uint64_t> reserve, size_of(options.reserve));
  TP_ASSIGN_OR_RETURN(const std::optional<std::uint64_t> limit, size_of(options.limit_rate));
  if (limit == 0) {
    return std::unexpected(Error(ErrorCode::kUsage, fmt::format("{}: nothing would ever be written "
                                                                "at a rate of 0",
                                                                options.limit_rate.source)));
  }
  if (options.resume && options.no_resume) {
    return std::unexpected(Error(ErrorCode::kUsage, "--resume and --no-resume exclude each other"));
  }
  pack.page_bytes = align.value_or(pack.page_bytes);
  pack.reserve_bytes = reserve.value_or(pack.reserve_bytes);
  pack.write_bytes_per_s_max = limit.value_or(0);
  pack.resume = options.resume      ? format::ResumeMode::kAlways
                : options.no_resume ? format::ResumeMode::kNever
                                    : format::ResumeMode::kIfSame;
  constexpr std::array<std::string_view, 3> kDirectWords = {"auto", "on", "off"};
  constexpr std::array kDirectUses = {DirectUse::kAuto, DirectUse::kAlways, DirectUse::kNever};
  TP_ASSIGN_OR_RETURN(const std::optional<std::size_t> direct,
                      choice_of(options.direct, kDirectWords));
  pack.direct = kDirectUses.at(direct.value_or(0));
  pack.generator = fmt::format("trash-panda {}", kVersion);
  pack.stop = stop_flag();
  pack.log = console.logger();
  return pack;
}

/// Reads the pack back.
/// @retval kMismatch  It differs from what was written.
/// @retval kFailed    It can't be read, so that nobody knows.
Result<void> verify_written(const std::filesystem::path& pack, Console& console) {
  ProgressBar progress(console, "verifying");
  TP_ASSIGN_OR_RETURN(
      const format::VerifyReport report,
      format::verify_pack(pack, {.progress = progress.callback(), .stop = stop_flag()}));
  if (report.mismatches.empty()) {
    return {};
  }
  if (report.mismatches.size() == report.unreadable_count) {
    return std::unexpected(Error(
        ErrorCode::kFailed,
        fmt::format("{} can't be read back: {}", printable(pack), report.mismatches.front())));
  }
  return std::unexpected(
      Error(ErrorCode::kMismatch, fmt::format("{} differs from what was written: {}",
                                              printable(pack), report.mismatches.front()))
          .with_hint("the drive may be failing; repack to another one"));
}

/// Takes away a pack that is known to be wrong. One that only could not be looked at to the end is
/// complete, and took long to write: it stays, under the name that it was written by.
Error after_failed_check(Error error, const PackTarget& target, Console& console) {
  if (error.code() == ErrorCode::kMismatch || error.code() == ErrorCode::kCorrupt) {
    if (const Result<void> removed = remove_pack(target.staged, console.logger()); !removed) {
      console.warn(removed.error().to_string());
    }
    return error;
  }
  const std::string staged = printable(target.staged);
  std::string hint = fmt::format(
      "{} is complete, but not all of it was read back; look at it again with: trash-panda verify "
      "{}",
      staged, path_argument(target.staged));
  if (target.replaces) {
    hint += fmt::format("; {} is still the old one, and another run writes the new one anew",
                        printable(target.final));
  }
  return std::move(error).with_hint(hint);
}

struct WrittenPack {
  format::Manifest manifest;
  std::chrono::steady_clock::duration elapsed{};  ///< Of writing, without --verify.
};

/// Says how the pack was planned and what is odd about it.
void announce(const RepackInput& input, Console& console) {
  if (console.json()) {
    return;  // The document has it.
  }
  if (input.plan_file.empty()) {
    console.note(fmt::format(
        "no --plan: {}, blocks {}",
        input.takes_on ? "the interrupted run's plan is used" : "planned for this machine",
        input.plan.blocks.empty() ? "none" : tier_counts(input.plan)));
  }
  for (const std::string& warning : input.warnings) {
    console.warn(warning);
  }
}

/// Says what is left of a run that failed, and what helps.
Error with_way_on(Error error, const RepackOptions& options, const PackTarget& target) {
  const bool can_resume = format::pack_can_resume(target.staged);
  if (error.code() == ErrorCode::kInterrupted) {
    return std::move(error).with_hint(
        can_resume ? fmt::format("take on with: {}", resume_command(options))
                   : fmt::format("nothing is left of {}", printable(target.staged)));
  }
  if (error.code() != ErrorCode::kOutput || !error.hint().empty()) {
    return error;
  }
  return std::move(error).with_hint(
      can_resume ? fmt::format("choose another place with -o, or mend it and take on with: {}",
                               resume_command(options))
                 : "choose another place with -o");
}

/// Writes the staged pack.
Result<WrittenPack> write_staged(const RepackOptions& options, const RepackInput& input,
                                 const PackTarget& target, format::PackOptions pack,
                                 Console& console) {
  const auto start = std::chrono::steady_clock::now();
  ProgressBar progress(console, "repacking");
  // Announced once writing has begun, so that one that can't begin is told in one line.
  bool announced = false;
  pack.progress = [&, show = progress.callback()](const Progress& state) {
    if (!std::exchange(announced, true)) {
      announce(input, console);
    }
    show(state);
  };
  Result<format::Manifest> manifest =
      format::write_pack(FileSystem::posix(), input.model.checkpoint, input.model.weights,
                         input.layout, target.staged, pack);
  if (!manifest) {
    return std::unexpected(with_way_on(std::move(manifest).error(), options, target));
  }
  if (!announced) {
    announce(input, console);
  }
  return WrittenPack{.manifest = *std::move(manifest),
                     .elapsed = std::chrono::steady_clock::now() - start};
}

Result<WrittenPack> write(const RepackOptions& options, const RepackInput& input,
                          const PackTarget& target, format::PackOptions pack, Console& console) {
  const InterruptScope interrupts;
  TP_ASSIGN_OR_RETURN(WrittenPack written,
                      write_staged(options, input, target, std::move(pack), console));
  if (options.verify) {
    if (Result<void> verified = verify_written(target.staged, console); !verified) {
      return std::unexpected(after_failed_check(std::move(verified).error(), target, console));
    }
  }
  TP_RETURN_IF_ERROR(publish_pack(target, console));
  return written;
}

/// What reading the checkpoint takes at the rate that was measured of its drive, if one was.
Result<std::optional<double>> read_seconds(const std::filesystem::path& path,
                                           const format::Checkpoint& checkpoint, Console& console) {
  const std::uint64_t size_bytes = checkpoint.total_bytes();
  plan::Hardware hardware = runtime::probe_hardware();
  TP_RETURN_IF_ERROR(add_measured_rates({.path = path, .size_bytes = size_bytes}, ProbeMode::kNever,
                                        hardware, console));
  if (hardware.disks.empty() || !hardware.disks.front().read_bytes_per_s) {
    return std::nullopt;
  }
  return static_cast<double>(size_bytes) /
         static_cast<double>(*hardware.disks.front().read_bytes_per_s);
}

/// What the drives that a pack goes to have free.
Result<std::vector<DriveSpace>> drive_spaces(const PackTarget& target,
                                             const format::PackLayout& layout,
                                             const format::Manifest& manifest,
                                             const format::PackOptions& pack) {
  std::vector<DriveSpace> drives;
  for (const auto& [folder, needed_bytes] :
       format::pack_drive_needs(target.staged, layout, manifest, pack)) {
    TP_ASSIGN_OR_RETURN(const std::uint64_t free_bytes, FileSystem::posix().free_bytes(folder));
    drives.push_back({.folder = folder, .needed_bytes = needed_bytes, .free_bytes = free_bytes});
  }
  return drives;
}

Result<void> report_pack(const RepackReport& report, Console& console) {
  if (console.json()) {
    return console.print(repack_json(report));
  }
  TP_RETURN_IF_ERROR(console.print(repack_text(report, console)));
  if (!report.dry_run) {
    console.note(fmt::format("next: in Python, model = trash_panda.load({}, model)",
                             python_quoted(report.target.native())));
  }
  return {};
}

}  // namespace

Result<void> run_repack(const RepackOptions& options, Console& console) {
  for (const Setting* name : {&options.output, &options.plan, &options.disk_dir}) {
    if (name->given() && name->text.empty()) {
      return std::unexpected(
          Error(ErrorCode::kUsage, fmt::format("{}: an empty name", name->source)));
    }
  }
  TP_ASSIGN_OR_RETURN(format::PackOptions pack, pack_options(options, console));
  TP_ASSIGN_OR_RETURN(const std::filesystem::path path, find_model(options.model));
  if (!options.plan.given()) {
    TP_RETURN_IF_ERROR(refuse_pack(path));
  } else if (is_pack(path)) {
    return retier(options, path, console);
  }
  TP_ASSIGN_OR_RETURN(
      const PackTarget target,
      choose_target(options, path, options.dry_run ? TargetUse::kDryRun : TargetUse::kWrite,
                    console));
  TP_ASSIGN_OR_RETURN(RepackInput input, load_repack_input(options, path, target.staged, console));
  if (Result<void> chosen = choose_dtypes(options, target.staged, input, console); !chosen) {
    return std::unexpected(with_way_on(std::move(chosen).error(), options, target));
  }
  pack.disk_prefix = target.disk_prefix;
  if (target.replaces) {
    TP_RETURN_IF_ERROR(refuse_source_inside(target.final, input.model.checkpoint));
  }
  WrittenPack written;
  TP_ASSIGN_OR_RETURN(
      written.manifest,
      format::lay_out_pack(input.model.checkpoint, input.model.weights, input.layout, pack));
  RepackReport report = {.input = &input,
                         .manifest = &written.manifest,
                         .target = target.final,
                         .dry_run = options.dry_run,
                         .verified = options.verify && !options.dry_run};
  if (options.dry_run) {
    // No failure: how much space it takes is what is asked.
    if (const Result<void> fits = format::check_pack_space(FileSystem::posix(), target.staged,
                                                           input.layout, written.manifest, pack);
        !fits) {
      input.warnings.push_back(fits.error().message());
    }
    TP_ASSIGN_OR_RETURN(report.drives, drive_spaces(target, input.layout, written.manifest, pack));
    TP_ASSIGN_OR_RETURN(report.read_s, read_seconds(path, input.model.checkpoint, console));
    announce(input, console);
  } else {
    TP_ASSIGN_OR_RETURN(written, write(options, input, target, std::move(pack), console));
    report.elapsed = written.elapsed;
  }
  return report_pack(report, console);
}

}  // namespace trash_panda::cli
