# shellcheck shell=bash
# Builds: CMake presets into build/<preset>, the Python package into .venv/.

# The same compiler cache serves every clone: paths are taken relative to the clone.
if command -v ccache >/dev/null; then
  export CMAKE_CXX_COMPILER_LAUNCHER=ccache
  export CCACHE_BASEDIR=${CCACHE_BASEDIR-$root} CCACHE_NOHASHDIR=1
fi

cmake_options() {
  if ((with_cuda)); then
    printf '%s\n' "-DTP_CUDA=AUTO" "-DTP_NVCC=$nvcc"
  else
    printf '%s\n' "-DTP_CUDA=OFF" "-DTP_NVCC="
  fi
}

# set_runner PRESET: sets `runner` to what stands before commands that run programs of a preset.
# A thread-sanitized program of GCC before 14 dies at start where the kernel randomises more than
# 28 bits of addresses (Ubuntu 24.04: 32), so there it runs without.
set_runner() {
  local bits
  runner=()
  bits=$(cat /proc/sys/vm/mmap_rnd_bits 2>/dev/null || echo 0)
  if [[ $1 == tsan ]] && ((bits > 28)) && setarch "$(uname -m)" -R true 2>/dev/null; then
    runner=(setarch "$(uname -m)" -R)
  fi
}

build_preset() {
  local name=$1
  local -a options runner
  set_runner "$name"
  mapfile -t options < <(cmake_options)
  if ((with_torch)); then options+=(-DTP_TORCH=AUTO); else options+=(-DTP_TORCH=OFF); fi
  step "configure-$name" "configure build/$name" cmake --preset "$name" "${options[@]}" &&
    step "build-$name" "build build/$name with $jobs jobs" \
      "${runner[@]}" cmake --build --preset "$name" -j "$jobs"
}

# package_identity: a hash of all that the Python package is made from and how.
package_identity() {
  {
    cmake_options
    find . -type f \( -path './lib*' -o -path './apps/*' -o -path './cmake/*' -o -path './man/*' \
      -o -path './python/native/*' -o -path './python/src/*' -o -path './schemas/*' \
      -o -path './CMakeLists.txt' -o -path './pyproject.toml' -o -path './README.md' \
      -o -path './LICENSE' \) ! -name '*.pyc' -print0 | LC_ALL=C sort -z | xargs -0 sha256sum
  } | sha256sum
}

# package_build: where the package is built. It is made of what the release preset builds, and of
# the Python module.
package_build() {
  if [[ $preset == release ]]; then echo build/release; else echo build/python; fi
}

# release_setting NAME: the value in build/release, which holds more than the package and must not
# lose it to a build of the package; else OFF.
release_setting() {
  local value
  value=$(sed -n "s/^$1:[A-Z]*=//p" build/release/CMakeCache.txt 2>/dev/null || true)
  echo "${value:-OFF}"
}

# set_package_settings: sets `settings` to what pip is told to build the package the way that the
# presets are built. Nothing is fetched: the build tools are in .venv already.
set_package_settings() {
  local option
  local -a options
  mapfile -t options < <(cmake_options)
  options+=(-DCMAKE_UNITY_BUILD=ON -DCMAKE_EXPORT_COMPILE_COMMANDS=ON -DTP_WARNINGS_AS_ERRORS=OFF)
  [[ $preset != release ]] ||
    options+=("-DTP_BUILD_TESTS=$(release_setting TP_BUILD_TESTS)"
      "-DTP_TORCH=$(release_setting TP_TORCH)")
  settings=(--no-index --no-build-isolation --no-deps)
  settings+=("--config-settings=build-dir=$(package_build)")
  # Spelled out, as the pip of Debian 12 knows no -C.
  for option in "${options[@]}"; do
    settings+=("--config-settings=cmake.define.${option#-D}")
  done
  export CMAKE_BUILD_PARALLEL_LEVEL=$jobs
}

build_package() {
  local stamp identity
  local -a settings
  stamp=$venv/.installed-package
  identity=$(package_identity)
  if [[ -f $stamp && $(<"$stamp") == "$identity" && -x $venv/bin/trash-panda ]]; then
    return 0
  fi
  set_package_settings
  rm -f -- "$stamp"
  step package "build the Python package into .venv" \
    "${pip[@]}" install --force-reinstall "${settings[@]}" . || return
  printf '%s' "$identity" >"$stamp"
}

# build_wheel FOLDER: the package as one file, alone in the folder.
build_wheel() {
  local -a settings
  set_package_settings
  rm -rf -- "$1"
  step wheel "build the wheel" "${pip[@]}" wheel --wheel-dir "$1" "${settings[@]}" .
}

build_all() {
  build_preset "$preset" || die "the build of preset '$preset' failed"
  build_package || die "the build of the Python package failed"
  say "built: build/$preset, .venv/bin/trash-panda"
}

run_demo() {
  say "run: $venv_python python/demo/minilm.py"
  "$venv_python" python/demo/minilm.py
}

remove_outputs() {
  say "remove build/ and .venv/"
  rm -rf -- build "$venv"
}
