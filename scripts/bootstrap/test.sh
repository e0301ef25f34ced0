# shellcheck shell=bash
# Every check there is. A failed step does not stop the later ones: one run tells all. The
# runners' own closing lines come last, together.

failed_steps=()
summaries=()
pytest_workers_max=4

# check NAME TITLE COMMAND…: a step whose failure is remembered.
check() { step "$@" || failed_steps+=("$1"); }

# keep_summary NAME PATTERN: keeps the last line of the step's log that matches, for the end.
keep_summary() {
  local line
  line=$(grep -E -- "$2" "$log_folder/$1.log" 2>/dev/null | tail -n 1 || true)
  [[ -z $line ]] || summaries+=("$line")
}

test_preset() {
  local name=$1
  local -a runner
  build_preset "$name" || {
    failed_steps+=("build-$name")
    return 0
  }
  set_runner "$name"
  check "ctest-$name" "C++ tests of build/$name" \
    "${runner[@]}" ctest --preset "$name" -j "$jobs"
  keep_summary "ctest-$name" '^[0-9]+% tests passed, '
}

test_python() {
  local -a select=()
  ((with_torch)) || select=(-m "not torch")
  # A file's tests share packs. More workers spend more on importing torch than they save.
  check pytest "Python tests" "$venv_python" -m pytest "${select[@]}" \
    -n "$((jobs < pytest_workers_max ? jobs : pytest_workers_max))" --dist loadfile python/tests
}

# What ruff and the type checkers look at is said in pyproject.toml.
lint_python() {
  check ruff "ruff" "$venv_python" -m ruff check
  check ruff-format "ruff format" "$venv_python" -m ruff format --check
}

check_types() {
  if ! install_requirements lint "type checkers"; then
    failed_steps+=(pip-lint)
    return 0
  fi
  check mypy "mypy" "$venv_python" -m mypy
  check pyright "pyright" "$venv_python" -m pyright
}

# The wheel in clean environments: without PyTorch, and with the pinned one. The oldest that it
# works with brings gigabytes of CUDA along: scripts/check_wheel.py WHEEL --torch 2.11.0.
test_wheel() {
  local pinned
  local -a versions=()
  if ((with_torch)); then
    pinned=$(sed -n 's/^torch==//p' python/requirements-torch.txt)
    versions=(--torch "$pinned")
  fi
  if ! build_wheel build/wheel; then
    failed_steps+=(wheel)
    return 0
  fi
  check wheel-install "the wheel in clean environments" \
    "$venv_python" scripts/check_wheel.py build/wheel/*.whl "${versions[@]}"
}

run_tests() {
  local start_us
  start_us=$(now_us)
  check clang-format "clang-format" "$venv_python" scripts/lint.py --format-only
  lint_python
  test_preset "$preset"
  build_package || failed_steps+=(package)
  test_python
  test_fuzz
  if ((full)); then
    ((!with_torch)) || check_types
    test_wheel
    test_preset asan
    test_preset tsan
    # The joined sources of asan take clang-tidy a fraction of the time of single ones.
    check clang-tidy "clang-tidy" \
      "$venv_python" scripts/lint.py --build build/asan --build "$(package_build)" --jobs "$jobs"
  fi

  keep_summary pytest '^(=+ )?[0-9]+ (passed|failed|skipped|error).* in '
  say "all checks took $(seconds_since "$start_us")"
  ((${#summaries[@]} == 0)) || printf '%s\n' "${summaries[@]}"
  if ((${#failed_steps[@]})); then
    die "failed: ${failed_steps[*]}" "logs: $root/$log_folder/<step>.log"
  fi
}
