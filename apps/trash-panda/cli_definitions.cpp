#include "cli_definitions.h"

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "trash_panda/base/file.h"
#include "trash_panda/base/nearest_name.h"

#include "cli_hwreport.h"
#include "cli_parser.h"

namespace trash_panda::cli {

namespace {

constexpr std::string_view kModelHelp =
    "a .safetensors file, a torch checkpoint (.pt, .pth, .bin, .ckpt), a folder, an *.index.json, "
    "or org/name[@rev][:subfolder] looked up offline in the Hugging Face cache";

constexpr std::string_view kPlanHelp =
    "a plan that plan -o wrote, or one edited by hand; - for stdin";

constexpr std::string_view kGroupHelp =
    "take the numbered children of PATH (model.layers) as blocks instead of searching; may be "
    "repeated";

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

void define_plan_budgets(CommandDefinition& command, PlanOptions& options) {
  command.group("Budgets")
      .value("--max-ram", "SIZE", options.max_ram,
             "RAM for weights (default: what the machine or its control group has, less a reserve)")
      .from_environment()
      .value("--min-free-ram", "SIZE", options.min_free_ram,
             "RAM to leave free (default: 8 % of RAM, within 1 and 4 GiB)")
      .from_environment()
      .value("--max-pinned", "SIZE", options.max_pinned,
             "pinned RAM at most: with a GPU, all that waits in RAM (default: as --max-ram)")
      .from_environment()
      .flag("--no-disk", options.no_disk, "keep every block in memory; an error if it can't be")
      .from_environment()
      .value("--gpu", "N", options.gpu, "plan for GPU N (default 0)")
      .from_environment()
      .value("--max-vram", "SIZE", options.max_vram, "VRAM to plan with (default: all that it has)")
      .from_environment()
      .value("--headroom-vram", "SIZE", options.headroom_vram,
             "VRAM to keep for activations and everything else (default 1.5GB)")
      .from_environment()
      .value("--activation-vram", "SIZE", options.activation_vram,
             "measured peak of the activations; replaces the headroom's guess")
      .from_environment();
}

void define_plan(CommandDefinition& command, PlanOptions& options) {
  command
      .describe(
          "Decides where each block of weights waits: in VRAM (gpu), in RAM (ram), or on disk, "
          "read every pass (disk). The same model, machine and options give the same plan.")
      .positional("MODEL", options.model, std::string(kModelHelp) + "; or a GGUF file")
      .value("-o,--output", "FILE", options.output, "write the plan as TOML; - for stdout")
      .flag("-f,--force", options.force, "replace FILE if it exists")
      .flag("-n,--dry-run", options.dry_run, "write nothing")
      .flag("--check", options.check, "write nothing; exit 5 unless the model fits the budgets")
      .flag("--why", options.why, "say for each block why it waits where it does, and what binds");
  define_plan_budgets(command, options);
  command.group("Placement")
      .value("--from", "PLAN", options.from,
             "ask again for what PLAN was asked for, with its comments and the tiers and budgets "
             "that were changed in it by hand; other options win; - for stdin")
      .value("--resident-blocks", "N", options.resident_blocks, "blocks that stay in VRAM")
      .from_environment()
      .list("--assign", "TIER=SEL", options.assignments,
            "put blocks into gpu, ram or disk: disk=0-7,12,-1 or ram='blocks.*'; may be repeated")
      .value("--lookahead", "N", options.lookahead, "blocks read ahead of the one in use")
      .from_environment()
      .value("--placement", "HOW", options.placement,
             "cost (default: the shortest simulated pass of those tried) or greedy (as the earlier "
             "Python library placed blocks)")
      .choices({"cost", "greedy"})
      .from_environment()
      .group("Model")
      .value("--compute-dtype", "DTYPE", options.compute_dtype,
             "what weights are expanded to: bf16 (default), fp16, fp32 or keep")
      .choices({"bf16", "fp16", "fp32", "keep"})
      .from_environment()
      .list("--group", "PATH", options.groups, std::string(kGroupHelp))
      .value("--context", "N", options.context,
             "leave room for a KV cache of N tokens, by the model's config.json")
      .from_environment()
      .value("--batch", "N", options.batch, "sequences that the KV cache holds (default 1)")
      .from_environment()
      .value("--kv-dtype", "DTYPE", options.kv_dtype,
             "dtype of the KV cache: bf16 (default), fp16, fp32 or fp8")
      .choices({"bf16", "fp16", "fp32", "fp8"})
      .from_environment()
      .group("Machine")
      .value("--compute-ms", "MS", options.compute_ms,
             "time of one pass's computation, as measured (default: an estimate from the memory's "
             "speed)")
      .from_environment()
      .value("--profile", "RUN.jsonl", options.profile,
             "take each block's time from the log of a run, as the median over its passes after "
             "the first; - for stdin")
      .value("--hw", "FILE", options.hardware,
             "plan for the machine that FILE describes, as hwreport --json writes it; nothing is "
             "measured")
      .value("--probe", "WHEN", options.probe,
             "measure disk, RAM and GPU first: auto (default: unless it was done within 30 days; "
             "about 3 s, for models of 256 MiB and more), never, or force (about 10 s)")
      .choices({"auto", "never", "force"})
      .from_environment()
      .example("trash-panda plan model.safetensors", "what fits where on this machine?")
      .example("trash-panda plan model.safetensors --max-ram 8GB -o plan.toml",
               "plan within 8 GB of RAM and keep the plan")
      .example("trash-panda plan model.safetensors --from plan.toml --max-ram 6GB -f -o plan.toml",
               "the same again with less RAM; what was noted in the file stays")
      .example("trash-panda plan models/llama --context 32768 --batch 4",
               "leave room for the KV cache of four sequences")
      .example("trash-panda plan models/flux --why", "why is each block where it is?")
      .example("trash-panda plan models/flux --assign disk=0-7 --json | jq .tiers",
               "the first eight blocks on disk, for a script");
}

void define_simulate(CommandDefinition& command, SimulateOptions& options) {
  command
      .describe(
          "Simulates a pass of a plan: reads, decoding, copies and computation, each serving one "
          "block after the other. Tells its time, the bound, and what the computation waits for.")
      .positional("PLAN", options.plan, std::string(kPlanHelp))
      .value("--hw", "FILE", options.hardware,
             "with the rates of the machine that FILE describes, as hwreport --json writes it")
      .list("--set", "KEY=V", options.settings,
            "another value, or several after commas: disk_bytes_per_s, decode_bytes_per_s, "
            "expand_bytes_per_s, link_bytes_per_s, compute_ms, host_slot_count or "
            "device_slot_count; may be repeated, all combinations are simulated")
      .value("--trace", "FILE", options.trace,
             "write the pass as a trace for Perfetto or chrome://tracing; - for stdout")
      .flag("-f,--force", options.force, "replace FILE if it is an earlier trace")
      .example("trash-panda simulate plan.toml", "how long does a step take, and why?")
      .example("trash-panda simulate plan.toml --set disk_bytes_per_s=400MB,1GB,3GB,7GB",
               "what would a faster drive bring?")
      .example("trash-panda simulate plan.toml --trace pass.json",
               "see who waits for whom, in ui.perfetto.dev");
}

void define_explain(CommandDefinition& command, ExplainOptions& options) {
  command
      .describe(
          "Says why blocks of a plan wait where they do, and what moving one of them to another "
          "tier would change: the predicted step, by simulation, and the memory that is taken.")
      .positional("PLAN", options.plan, std::string(kPlanHelp))
      .optional_positional("SEL", options.selector,
                           "blocks by number, 0-7,12,-1, or by name, 'model.layers.*' (default: "
                           "all)")
      .example("trash-panda explain plan.toml", "why is everything where it is?")
      .example("trash-panda explain plan.toml -- -1", "only the last block")
      .example("trash-panda explain plan.toml --json | jq '.blocks[] | select(.stall_s > 0)'",
               "what the step waits for, for a script");
}

void define_diff(CommandDefinition& command, DiffOptions& options) {
  command
      .describe(
          "Compares two plans, two machines that hwreport --json described, or the block times of "
          "two run logs, value by value. Exits 0 where they are the same and 1 where they differ; "
          "comments and layout don't count.")
      .positional("A", options.first, "a plan, a machine's description or a run log; - for stdin")
      .positional("B", options.second, "another one of the same kind; - for stdin")
      .example("trash-panda diff plan.toml edited.toml", "what was changed?")
      .example("trash-panda plan model --from plan.toml -o - | trash-panda diff plan.toml -",
               "would planning again change anything?");
}

void define_repack(CommandDefinition& command, RepackOptions& options) {
  command
      .describe(
          "Lays a checkpoint out for streaming: a folder of safetensors shards, one per tier, "
          "whose blocks lie page-aligned in execution order, with a checksum each. The source is "
          "never touched; killed at any moment, it leaves no half pack under the final name.")
      .positional("MODEL", options.model, std::string(kModelHelp))
      .value("-o,--output", "DIR", options.output,
             "the pack's folder (default: MODEL.panda beside MODEL)")
      .value("--plan", "FILE", options.plan,
             "the plan to lay it out for (default: plans for this machine)")
      .value("--align", "SIZE", options.align, "extents start on multiples of this (default 4096)")
      .from_environment()
      .value("--reserve", "SIZE", options.reserve,
             "space to leave free on the target drive (default 1GB)")
      .from_environment()
      .flag("-n,--dry-run", options.dry_run, "write nothing; say how large the pack would be")
      .flag("--force", options.force, "replace an existing pack, once the new one is complete")
      .flag("--verify", options.verify, "read the pack back and compare checksums")
      .example("trash-panda repack model.safetensors --plan plan.toml",
               "writes model.panda, laid out for the plan")
      .example("trash-panda repack models/flux -o /nvme/flux.panda --verify",
               "plans for this machine, writes to another drive, reads it back");
}

void define_verify(CommandDefinition& command, VerifyOptions& options) {
  command
      .describe(
          "Reads every byte of a pack and compares it with the checksums of its manifest. "
          "Exits 6 and names the extents if any differ.")
      .positional("PACK", options.pack, "a folder that repack wrote")
      .example("trash-panda verify model.panda", "is the pack as it was written?");
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
  add("hwreport", "measure this machine, for plans and bug reports", define_hwreport,
      invocation_.hwreport);
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
