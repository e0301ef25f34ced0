#include "cli_bench.h"

#include "bench_report.h"

namespace trash_panda::cli {

void define_bench(CommandDefinition& command, BenchOptions& options) {
  command
      .describe(
          "Measures how close this machine comes to its limits. Each line has what was measured, "
          "what limits it, and the ratio of both, which took turns in the same run. Without a "
          "PACK the parts are measured: disk, RAM, expansion, decoding and the links to GPUs. "
          "With one, also passes over its blocks with nothing computed, beside plain reads of the "
          "same bytes. The pack is only read.")
      .optional_positional("PACK", options.pack, "a folder that repack wrote, to be streamed")
      .list("--what", "LIST", options.what,
            "what to measure: some of disk, h2d, ram, expand, decode, stream, with commas between "
            "them (default: all; stream needs a PACK); may be repeated")
      .choices({kBenchWords.begin(), kBenchWords.end()})
      .value("--runs", "N", options.runs,
             "rounds in which all that is compared takes turns "
             "(default 5)")
      .value("--path", "PATH", options.path,
             "measure the drive of this folder or checkpoint (default: the current folder)")
      .value("--export-json", "FILE", options.export_json, "also write the JSON document to FILE")
      .flag("-f,--force", options.force, "replace FILE if it exists")
      .example("trash-panda bench", "how close do disk, RAM and CPU come to their limits?")
      .example("trash-panda bench model.panda --what stream", "and streaming this pack?")
      .example("trash-panda bench --what disk --path /nvme --runs 9 --export-json disk.json",
               "a drive, with more rounds, to keep");
}

}  // namespace trash_panda::cli
