#include "cli_definitions.h"

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "trash_panda/base/file.h"
#include "trash_panda/base/nearest_name.h"

#include "cli_bench.h"
#include "cli_hwreport.h"
#include "cli_model_help.h"
#include "cli_parser.h"
#include "cli_plan.h"

namespace trash_panda::cli {

namespace {

void define_globals(CommandDefinition& command, GlobalOptions& options) {
  command.group("Global options")
      .flag("-h,--help", options.help, "show this help and exit")
      .flag("-V,--version", options.version, "show version, commit, compiler and features")
      .flag("-q,--quiet", options.quiet, "say nothing but errors and the result")
      .flag("-v,--verbose", options.verbose, "also say what is being done")
      .flag("--json", options.json, "one JSON document on stdout; failures as JSON on stderr")
      .value("--color", "WHEN", options.color,
             "auto (a terminal, unless NO_COLOR is set), always or never")
      .choices({"auto", "always", "never"})
      .from_environment()
      .value("--progress", "HOW", options.progress,
             "auto (a bar on a terminal, else a line every 10 s), always, never or json")
      .choices({"auto", "always", "never", "json"})
      .from_environment();
}

void define_inspect(CommandDefinition& command, InspectOptions& options) {
  command
      .describe(
          "Shows what a checkpoint is: its blocks, dtypes, how its scales are stored, and what is "
          "odd about it. Only headers are read, never the data; of scales the values, too, where "
          "they are few.")
      .positional(
          "MODEL", options.model,
          std::string(kModelHelp) + "; or a GGUF file, a pack, or the root folder of a pipeline")
      .flag("--tensors", options.tensors, "list every tensor")
      .value("--match", "GLOB", options.match, "list the tensors whose name matches")
      .value("--top", "N", options.top, "list the N largest tensors (default 5)")
      .flag("--check-scales", options.check_scales,
            "look at the values of all scales, however many, for zeros, NaN and the like")
      .list("--group", "PATH", options.groups, std::string(kGroupHelp))
      .example("trash-panda inspect model.safetensors", "what is this file?")
      .example("trash-panda inspect --match '*.norm*' models/flux", "only some tensors")
      .example("trash-panda inspect --json org/name | jq .groups", "for a script");
}

void define_report(CommandDefinition& command, ReportOptions& options) {
  command
      .describe(
          "Shows where the time of a run went: what each pass read, waited for, expanded and "
          "computed. Python writes the log when TRASH_PANDA_LOG=RUN.jsonl is set before loading.")
      .positional("RUN", options.run, "a run log")
      .value(
          "--to", "FORM", options.to,
          "summary (default); perfetto: a trace for ui.perfetto.dev or chrome://tracing; html: a "
          "page for a browser, which needs no network")
      .choices({"summary", "perfetto", "html"})
      .value("-o,--output", "FILE", options.output, "write it to FILE; - for stdout (default)")
      .flag("-f,--force", options.force, "replace FILE if it exists")
      .example("trash-panda report run.jsonl", "what did the passes wait for?")
      .example("trash-panda report run.jsonl --to perfetto -o run.trace.json",
               "each read, wait and computation on a time line")
      .example("trash-panda report run.jsonl --to html -o run.html",
               "passes, lanes, stalls, memory and the plan's prediction in one page");
}

void define_repack(CommandDefinition& command, RepackOptions& options) {
  command
      .describe(
          "Lays a checkpoint out for streaming: a folder of safetensors shards, one per tier, "
          "whose blocks lie page-aligned in execution order, with a checksum each. The source is "
          "never touched. Interrupted or killed at any moment, it leaves no half pack under the "
          "final name, but DIR.partial, with which the next run takes on: what is finished is not "
          "read again.\n\n"
          "Given a pack and another plan, it gives the blocks their new tiers, in place or under "
          "another name: a tier is a remark in the manifest, so no weight is read or moved.")
      .positional("MODEL", options.model,
                  std::string(kModelHelp) + "; or a pack, which is fitted to --plan")
      .value("-o,--output", "DIR", options.output,
             "the pack's folder (default: MODEL.panda beside MODEL)")
      .value("--plan", "FILE", options.plan,
             "the plan to lay it out for (default: plans for this machine)")
      .value(
          "--compress", "HOW", options.compress,
          "exponent: store bf16 weights a third smaller and f32 weights a sixth, by a lossless "
          "code of their exponents; none: as they are; max: the rest by zstd, too, which takes a "
          "fifth off fp8, but much longer to read; auto: bf16 of the blocks for which the plan "
          "says so, and if it was made without measured rates, of those on disk (default auto)")
      .choices({"auto", "none", "exponent", "max"})
      .from_environment()
      .value(
          "--dtype", "DTYPE", options.dtype,
          "round large matrices (two dimensions, 4,096 elements, named *.weight) to bf16, to fp8 "
          "with a scale each, or to the plan's compute dtype; the pack says which. keep: store "
          "what the checkpoint has; f32 that are bf16 without loss become bf16 unless --compress "
          "is none (default keep)")
      .choices({"keep", "compute", "bf16", "fp8"})
      .from_environment()
      .value("--align", "SIZE", options.align, "extents start on multiples of this (default 4096)")
      .from_environment()
      .value(
          "--disk-dir", "DIR", options.disk_dir,
          "put the shard of the disk tier into this folder, on a faster drive say; the pack holds "
          "a link to it (default: into the pack)")
      .from_environment()
      .value("--direct", "WHEN", options.direct,
             "read and write past the page cache: auto where the filesystems allow, on, or fail "
             "where they don't, off (default auto)")
      .choices({"auto", "on", "off"})
      .from_environment()
      .value("--reserve", "SIZE", options.reserve,
             "space to leave free on the target drive (default 1GB)")
      .from_environment()
      .value("--limit-rate", "SIZE", options.limit_rate,
             "write no more than this a second (default: as fast as the drives)")
      .from_environment()
      .flag("-n,--dry-run", options.dry_run,
            "write nothing; say how large the pack would be and how long reading takes")
      .flag("--force", options.force, "replace an existing pack, once the new one is complete")
      .flag("--verify", options.verify, "read the pack back and compare checksums")
      .flag("--resume", options.resume,
            "take on with what an interrupted run left, or fail where it was for another model, "
            "plan or layout (default: take on if it is the same, else start anew)")
      .flag("--no-resume", options.no_resume, "start anew")
      .example("trash-panda repack model.safetensors --plan plan.toml",
               "writes model.panda, laid out for the plan")
      .example("trash-panda repack models/flux -o /nvme/flux.panda --verify",
               "plans for this machine, writes to another drive, reads it back");
}

void define_verify(CommandDefinition& command, VerifyOptions& options) {
  command
      .describe(
          "Reads every byte of a pack, past the page cache, and compares it with the checksums of "
          "its manifest; or every tensor with that of the checkpoint it was made from. Exits 6 and "
          "names the extents if any differ.")
      .positional("PACK", options.pack, "a folder that repack wrote")
      .flag("--quick", options.quick,
            "read manifest, plan and headers only: finds what is missing or cut short")
      .value("--source", "MODEL", options.source,
             "compare bit for bit with this checkpoint, in place of the checksums")
      .example("trash-panda verify model.panda", "is the pack as it was written?")
      .example("trash-panda verify model.panda --source model.safetensors",
               "does it hold what the checkpoint holds?");
}

void define_unpack(CommandDefinition& command, UnpackOptions& options) {
  command
      .describe(
          "Makes a standard checkpoint of a pack: safetensors files and their index, with the "
          "names, metadata and bytes that the source had. Scales that were put into another "
          "form keep the pack's, under the pack's names; a note says which.")
      .positional("PACK", options.pack, "a folder that repack wrote")
      .value("-o,--output", "DIR", options.output, "the checkpoint's folder, which is made")
      .value("--max-shard-size", "SIZE", options.max_shard_size,
             "tensors of a file at most (default: files as the source had them)")
      .value("--reserve", "SIZE", options.reserve,
             "space to leave free on the target drive (default 1GB)")
      .from_environment()
      .example("trash-panda unpack model.panda -o model", "the checkpoint back")
      .example("trash-panda unpack model.panda -o model --max-shard-size 5GB",
               "the same in files of 5 GB");
}

}  // namespace

struct CommandLine::Parser {
  CLI::App app;
  std::deque<CommandDescription> descriptions;  // References into it stay valid as it grows.
  std::vector<BoundOption> options;
  std::vector<BoundPositional> positionals;

  CommandDefinition add_command(const std::string& name, const std::string& summary) {
    CommandDescription& description = descriptions.emplace_back();
    description.name = name;
    description.summary = summary;
    CLI::App& command = name.empty() ? app : *app.add_subcommand(name, summary);
    return {command, description, options, positionals};
  }
};

CommandLine::CommandLine() : parser_(std::make_unique<Parser>()) {
  Parser& parser = *parser_;
  parser.app.set_help_flag();  // Help is ours: its text is the manual's.
  parser.app.allow_extras();   // Leftovers too: they get the nearest name.
  parser.app.require_subcommand(0, 1);

  CommandDefinition root = parser.add_command("", "stream models bigger than memory");
  root.describe(
          "Plans where each block of a checkpoint waits (VRAM, RAM, disk), lays the checkpoint out "
          "for that plan, and streams it so that models bigger than memory run.")
      .example("trash-panda plan model.safetensors -o plan.toml", "what fits where")
      .example("trash-panda repack model.safetensors --plan plan.toml",
               "writes model.panda, laid out for streaming");
  define_globals(root, invocation_.global);

  const auto add = [&](const char* name, const char* summary, auto define, auto& options) {
    CommandDefinition command = parser.add_command(name, summary);
    define(command, options);
    define_globals(command, invocation_.global);
  };
  add("inspect", "show blocks, dtypes, scales and oddities of a checkpoint", define_inspect,
      invocation_.inspect);
  add("plan", "decide what fits where", define_plan, invocation_.plan);
  add("simulate", "predict a plan's step, and sweep what it depends on", define_simulate,
      invocation_.simulate);
  add("explain", "say why blocks wait where they do", define_explain, invocation_.explain);
  add("diff", "compare plans, machines or run logs", define_diff, invocation_.diff);
  add("repack", "lay a checkpoint out for streaming", define_repack, invocation_.repack);
  add("verify", "compare a pack with its checksums", define_verify, invocation_.verify);
  add("unpack", "make a standard checkpoint of a pack", define_unpack, invocation_.unpack);
  add("hwreport", "measure this machine, for plans and bug reports", define_hwreport,
      invocation_.hwreport);
  add("bench", "measure how close this machine comes to its limits", define_bench,
      invocation_.bench);
  add("report", "show where the time of a run went", define_report, invocation_.report);
  const auto define_completion = [](CommandDefinition& command, CompletionOptions& options) {
    command.describe("Prints a completion script for a shell.")
        .positional("SHELL", options.shell, "bash, zsh or fish")
        .example("source <(trash-panda completion bash)", "complete in this shell");
  };
  add("completion", "print a completion script", define_completion, invocation_.completion);
  const auto define_version = [](CommandDefinition& command, GlobalOptions&) {
    command.describe("Shows version, commit, compiler, features and pack format versions.");
  };
  add("version", "show version and features", define_version, invocation_.global);
  const auto define_help = [](CommandDefinition& command, HelpOptions& options) {
    command.describe("Shows the help of a command, or the list of commands.")
        .optional_positional("COMMAND", options.command, "a command's name");
  };
  add("help", "show help", define_help, invocation_.help);
}

CommandLine::~CommandLine() = default;

CommandDescriptions CommandLine::describe() const {
  CommandDescriptions commands;
  for (const CommandDescription& description : parser_->descriptions) {
    CommandDescription command = description;
    for (const BoundOption& bound : parser_->options) {
      if (bound.app->get_name() == command.name) {
        command.options.push_back(bound.description);
      }
    }
    commands.push_back(std::move(command));
  }
  return commands;
}

Result<void> CommandLine::parse(std::span<const std::string> arguments) {
  TP_RETURN_IF_ERROR(run_parser(arguments));
  const std::vector<CLI::App*> chosen = parser_->app.get_subcommands();
  invocation_.command = chosen.empty() ? std::string() : chosen.front()->get_name();
  if (invocation_.global.help || invocation_.global.version) {
    return {};
  }
  TP_RETURN_IF_ERROR(check_leftovers());
  TP_RETURN_IF_ERROR(check_positionals());
  return read_environment();
}

Result<void> CommandLine::run_parser(std::span<const std::string> arguments) {
  // The parser takes its arguments last first.
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
  try {
    parser_->app.parse(std::move(reversed));
  } catch (const CLI::ParseError& error) {
    return std::unexpected(Error(ErrorCode::kUsage, printable(std::string_view(error.what()))));
  }
  return {};
}

Result<void> CommandLine::check_leftovers() const {
  std::vector<std::string> leftovers = parser_->app.remaining(/*recurse=*/true);
  std::erase(leftovers, "--");
  if (leftovers.empty()) {
    return {};
  }
  // An option that is not known may have left its value behind too: the option is the cause.
  const auto option = std::ranges::find_if(
      leftovers, [](const std::string& text) { return text.size() > 1 && text.starts_with('-'); });
  std::string name = option == leftovers.end() ? leftovers.front() : *option;
  const bool is_option = option != leftovers.end();
  const bool is_command = !is_option && invocation_.command.empty();
  std::vector<std::string_view> known;
  if (is_option) {
    name = name.substr(0, name.find('='));
    for (const BoundOption& bound : parser_->options) {
      if (bound.app->get_name() == invocation_.command) {
        known.push_back(bound.description.long_name);
      }
    }
  } else if (is_command) {
    for (const CommandDescription& description : parser_->descriptions) {
      known.push_back(description.name);
    }
  }
  const std::string_view kind = is_option    ? "unknown option"
                                : is_command ? "unknown command"
                                             : "unexpected argument";
  const std::string_view nearest = nearest_name(name, known);
  const std::string help = fmt::format(
      "trash-panda {}--help", invocation_.command.empty() ? "" : invocation_.command + " ");
  return std::unexpected(
      Error(ErrorCode::kUsage, fmt::format("{} '{}'", kind, printable(std::string_view(name))))
          .with_hint(nearest.empty() ? fmt::format("see {}", help)
                                     : fmt::format("did you mean {}?", nearest)));
}

Result<void> CommandLine::check_positionals() const {
  for (const BoundPositional& bound : parser_->positionals) {
    const bool applies =
        !invocation_.command.empty() && bound.app->get_name() == invocation_.command;
    if (applies && bound.description.required && bound.setting->text.empty()) {
      return std::unexpected(
          Error(ErrorCode::kUsage, fmt::format("{} is missing", bound.description.name))
              .with_hint(fmt::format("{} is {}", bound.description.name, bound.description.help)));
    }
  }
  return {};
}

Result<void> CommandLine::read_environment() {
  for (const BoundOption& bound : parser_->options) {
    const std::string& name = bound.description.environment;
    const bool applies = bound.app->get_name() == invocation_.command;
    const char* value = name.empty() || !applies ? nullptr : std::getenv(name.c_str());
    if (value == nullptr || *value == '\0') {
      continue;
    }
    if (bound.setting != nullptr && !bound.setting->given()) {
      *bound.setting = {.text = value, .source = name};
    } else if (bound.flag != nullptr && !*bound.flag) {
      TP_ASSIGN_OR_RETURN(*bound.flag, flag_of({.text = value, .source = name}));
    }
  }
  return {};
}

}  // namespace trash_panda::cli
