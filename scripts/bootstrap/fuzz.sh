# shellcheck shell=bash
# Fuzz targets: clang 19 with libFuzzer, their build, and a run. tests/fuzz/run.py runs them.

# Not among system_packages: 56 MB to fetch, 314 MB installed, and only fuzzing needs them.
fuzz_packages=(clang-19 libclang-rt-19-dev)

has_fuzz_compiler() {
  command -v clang++-19 >/dev/null &&
    clang++-19 -fsanitize=fuzzer,address,undefined -x c++ -o /dev/null - >/dev/null 2>&1 <<'CODE'
extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }
CODE
}

# ensure_fuzz_compiler: installs it where that can be done; 1 when there is none in the end.
ensure_fuzz_compiler() {
  has_fuzz_compiler && return
  ((with_system)) && command -v apt-get >/dev/null && become_root || return
  apt_install "${fuzz_packages[@]}" && has_fuzz_compiler
}

# build_fuzzers PRESET: fuzz, or fuzz-quick, which is built sooner and runs slower.
build_fuzzers() {
  step "configure-$1" "configure build/$1" cmake --preset "$1" &&
    step "build-$1" "build build/$1 with $jobs jobs" cmake --build --preset "$1" -j "$jobs"
}

run_fuzz() {
  ensure_fuzz_compiler || die "fuzzing needs clang 19 with its fuzzer and sanitizers" \
    "on Debian and Ubuntu: apt-get install -y --no-install-recommends ${fuzz_packages[*]}"
  build_fuzzers fuzz || die "the build of preset 'fuzz' failed"
  find_python
  say "run: tests/fuzz/run.py, $fuzz_seconds s for each target, $jobs at a time"
  "$python" -B tests/fuzz/run.py --seconds "$fuzz_seconds" --jobs "$jobs" "${fuzz_targets[@]}"
}

# test_fuzz: every target for a few seconds: that they build, take their seeds, and find nothing
# that is quickly found. Only here may they be left out, and then the summary says so.
test_fuzz() {
  if ! ensure_fuzz_compiler; then
    say "WARNING: fuzz targets are neither built nor run: no clang 19 with its sanitizers here," \
      "and none could be installed (packages: ${fuzz_packages[*]})"
    summaries+=("fuzz: SKIPPED, no clang 19 with its fuzzer and sanitizers")
    return 0
  fi
  build_fuzzers fuzz-quick || {
    failed_steps+=(build-fuzz-quick)
    return 0
  }
  check fuzz "fuzz targets, 5 s each" \
    "$python" -B tests/fuzz/run.py --build build/fuzz-quick --seconds 5 --jobs "$jobs"
  keep_summary fuzz '^fuzz: '
}
