#pragma once

#include <string>
#include <vector>

#include "setting.h"

namespace trash_panda::cli {

enum class ColorMode { kAuto, kAlways, kNever };
enum class ProgressMode { kAuto, kAlways, kNever, kJson };
enum class Verbosity { kQuiet, kNormal, kVerbose };

/// What every command takes.
struct GlobalOptions {
  bool help = false;
  bool version = false;
  bool json = false;
  bool quiet = false;
  bool verbose = false;
  Setting color;
  Setting progress;
};

struct InspectOptions {
  Setting model;
  bool tensors = false;
  Setting match;  ///< Glob over tensor names.
  Setting top;    ///< How many of the largest tensors.
  bool check_scales = false;
  std::vector<std::string> groups;
};

struct PlanOptions {
  Setting model;
  Setting stages;
  Setting output;
  bool force = false;
  bool dry_run = false;
  bool check = false;
  bool why = false;
  Setting gpu;
  Setting max_ram;
  Setting min_free_ram;
  Setting max_pinned;
  bool no_disk = false;
  Setting max_vram;
  Setting headroom_vram;
  Setting activation_vram;
  Setting resident_blocks;
  std::vector<std::string> assignments;  ///< TIER=SEL, in order.
  Setting lookahead;
  Setting compute_dtype;
  Setting placement;
  Setting context;
  Setting batch;
  Setting kv_dtype;
  Setting compute_ms;
  Setting profile;
  Setting from;
  Setting hardware;
  Setting probe;
  std::vector<std::string> groups;
};

struct SimulateOptions {
  Setting plan;
  Setting hardware;
  std::vector<std::string> settings;  ///< KEY=V[,V…], in order.
  Setting trace;
  bool force = false;
};

struct ExplainOptions {
  Setting plan;
  Setting selector;
};

struct DiffOptions {
  Setting first;
  Setting second;
};

struct RepackOptions {
  Setting model;
  Setting output;
  Setting plan;
  Setting align;
  Setting reserve;
  Setting limit_rate;
  Setting compress;
  Setting dtype;
  Setting direct;
  Setting disk_dir;
  bool dry_run = false;
  bool force = false;
  bool verify = false;
  bool resume = false;
  bool no_resume = false;
};

struct VerifyOptions {
  Setting pack;
  Setting source;
  bool quick = false;
};

struct UnpackOptions {
  Setting pack;
  Setting output;
  Setting max_shard_size;
  Setting reserve;
};

struct HwreportOptions {
  Setting output;
  bool force = false;
  std::vector<std::string> paths;
  Setting gpu;
  bool quick = false;
  bool full = false;
  bool no_bench = false;
  bool redact = false;
  bool no_redact = false;
  bool bug = false;
  Setting compare;
};

struct BenchOptions {
  Setting pack;
  std::vector<std::string> what;  ///< Words, with commas between them.
  Setting runs;
  Setting path;
  Setting export_json;
  bool force = false;
};

struct ReportOptions {
  Setting run;
  Setting to;
  Setting output;
  bool force = false;
};

struct HelpOptions {
  Setting command;
};

struct CompletionOptions {
  Setting shell;
};

/// One run of the program, as typed. Which command's options count, `command` says.
struct Invocation {
  std::string command;  ///< Empty: none was given.
  GlobalOptions global;
  InspectOptions inspect;
  PlanOptions plan;
  SimulateOptions simulate;
  ExplainOptions explain;
  DiffOptions diff;
  RepackOptions repack;
  VerifyOptions verify;
  UnpackOptions unpack;
  HwreportOptions hwreport;
  BenchOptions bench;
  ReportOptions report;
  HelpOptions help;
  CompletionOptions completion;
};

}  // namespace trash_panda::cli
