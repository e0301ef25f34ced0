#include "cli_hwreport.h"

namespace trash_panda::cli {

void define_hwreport(CommandDefinition& command, HwreportOptions& options) {
  command
      .describe(
          "Measures what this machine really does: how fast its disks are read, RAM is copied, "
          "weights are expanded, and GPUs are reached. What might tell who or where you are is "
          "replaced before anything is shown. Nothing is sent anywhere. The measurement is kept "
          "for plan.")
      .value("-o,--output", "FILE", options.output,
             "also write the report as JSON, which plan --hw reads (with --bug: as Markdown)")
      .flag("-f,--force", options.force, "replace FILE if it exists")
      .list("--path", "PATH", options.paths,
            "measure the drive of this folder or checkpoint (default: the current folder); may be "
            "repeated")
      .value("--gpu", "N", options.gpu, "only GPU N, or all (default)")
      .group("Measuring")
      .flag("--quick", options.quick, "about 10 s (default)")
      .flag("--full", options.full, "about 60 s: more repetitions, steadier figures")
      .flag("--no-bench", options.no_bench,
            "measure nothing: what the system says, and the last measurement")
      .group("Report")
      .flag("--redact", options.redact,
            "replace user, host, home, serial numbers, addresses and tokens (default)")
      .flag("--no-redact", options.no_redact, "show everything")
      .flag("--bug", options.bug, "a block of Markdown for a bug report")
      .value("--compare", "FILE", options.compare, "show what differs from a report that -o wrote")
      .example("trash-panda hwreport", "what can this machine do?")
      .example("trash-panda hwreport --path /nvme/models --path /mnt/share",
               "which drive is faster?")
      .example("trash-panda hwreport --full -o hw.json", "keep it, for plan --hw hw.json");
}

}  // namespace trash_panda::cli
