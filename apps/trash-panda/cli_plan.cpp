#include "cli_plan.h"

#include <string>
#include <string_view>

#include "cli_model_help.h"

namespace trash_panda::cli {

namespace {

constexpr std::string_view kPlanHelp =
    "a plan that plan -o wrote, or one edited by hand; - for stdin";

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

void define_plan_placement(CommandDefinition& command, PlanOptions& options) {
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
      .from_environment();
}

void define_plan_model(CommandDefinition& command, PlanOptions& options) {
  command.group("Model")
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
      .from_environment();
}

void define_plan_machine(CommandDefinition& command, PlanOptions& options) {
  command.group("Machine")
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
      .from_environment();
}

}  // namespace

void define_plan(CommandDefinition& command, PlanOptions& options) {
  command
      .describe(
          "Decides where each block of weights waits: in VRAM (gpu), in RAM (ram), or on disk, "
          "read every pass (disk). The same model, machine and options give the same plan.")
      .optional_positional("MODEL", options.model, std::string(kModelHelp) + "; or a GGUF file")
      .value("--stages", "FILE", options.stages,
             "plan the models of a pipeline, which FILE names, one after the other")
      .value("-o,--output", "FILE", options.output,
             "write the plan as TOML; - for stdout; with --stages a folder")
      .flag("-f,--force", options.force, "replace FILE if it exists")
      .flag("-n,--dry-run", options.dry_run, "write nothing")
      .flag("--check", options.check, "write nothing; exit 5 unless the model fits the budgets")
      .flag("--why", options.why, "say for each block why it waits where it does, and what binds");
  define_plan_budgets(command, options);
  define_plan_placement(command, options);
  define_plan_model(command, options);
  define_plan_machine(command, options);
  command.example("trash-panda plan model.safetensors", "what fits where on this machine?")
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

}  // namespace trash_panda::cli
