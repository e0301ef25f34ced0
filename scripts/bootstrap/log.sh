# shellcheck shell=bash
# What a person sees: one line as a step starts, one with its time as it ends; on failure the
# end of its log and what would help.

log_folder=build/logs

say() { printf 'bootstrap: %s\n' "$*" >&2; }

die() {
  say "error: $1"
  shift
  local line
  for line in "$@"; do printf '           %s\n' "$line" >&2; done
  exit 1
}

die_usage() {
  say "error: $1"
  printf '           see: ./bootstrap help\n' >&2
  exit 2
}

# Ctrl-C reaches the running step too, as both are in the terminal's foreground group; this says
# what is left and keeps the exit code that a shell expects.
trap 'trap - INT; say "interrupted; the same command goes on from here"; exit 130' INT
trap 'trap - TERM; say "terminated"; exit 143' TERM

# seconds_since START_US: elapsed time as "12.3 s", from EPOCHREALTIME without its point.
now_us() { printf '%s' "${EPOCHREALTIME/[.,]/}"; }
seconds_since() {
  local elapsed_ms=$((($(now_us) - $1) / 1000))
  printf '%d.%d s' $((elapsed_ms / 1000)) $((elapsed_ms % 1000 / 100))
}

# step NAME TITLE COMMAND…: runs a command with its output in build/logs/NAME.log (or on the
# terminal under -v). Returns the command's exit code after showing the end of the log.
step() {
  local name=$1 title=$2 start_us code=0
  shift 2
  mkdir -p "$log_folder" || die "cannot write to $root/build" "sudo chown -R \"\$(id -un)\" '$root'"
  start_us=$(now_us)
  say "$title …"
  printf '+%s\n' "$(printf ' %q' "$@")" >"$log_folder/$name.log"
  if ((verbose)); then
    "$@" > >(tee -a "$log_folder/$name.log" >&2) 2>&1 </dev/null || code=$?
  else
    "$@" >>"$log_folder/$name.log" 2>&1 </dev/null || code=$?
  fi
  if ((code == 0)); then
    say "… done in $(seconds_since "$start_us")"
    return 0
  fi
  say "FAILED after $(seconds_since "$start_us"), exit $code: $title"
  if ((!verbose)); then
    tail -n 40 "$log_folder/$name.log" | sed 's/^/    | /' >&2
  fi
  say "whole log: $root/$log_folder/$name.log"
  say "to repeat this step: cd $(printf '%q' "$root") &&$(printf ' %q' "$@")"
  return "$code"
}

# default_jobs: cores of this process, but no more than one for each 1.5 GB of available memory:
# a compiler on this tree takes up to 1 GB.
default_jobs() {
  local cores available_kb by_memory
  cores=$(nproc)
  available_kb=$(awk '/^MemAvailable:/ {print $2}' /proc/meminfo 2>/dev/null || true)
  by_memory=$((${available_kb:-4000000} / 1500000))
  ((by_memory >= 1)) || by_memory=1
  printf '%d' $((cores < by_memory ? cores : by_memory))
}
