# shellcheck shell=bash
# The private environment .venv/, and the packages in it. Each requirements file leaves a stamp
# with its hash, so a repeat asks no index.

venv=.venv
venv_python=$venv/bin/python

# Reads only; exit 0 when this Python can make an environment and compile modules for it.
python_probe='
import os, sys, sysconfig
assert sys.version_info >= (3, 10)
import ensurepip, venv
assert os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h"))
'

# find_python: sets `python` to the first program that passes the probe.
find_python() {
  for python in ${PYTHON:+"$PYTHON"} python3 /usr/bin/python3; do
    if "$python" -c "$python_probe" >/dev/null 2>&1; then
      return 0
    fi
  done
  python=""
  return 1
}

# What does not matter here: that root runs pip, and that there is a newer pip.
export PIP_ROOT_USER_ACTION=ignore PIP_DISABLE_PIP_VERSION_CHECK=1
pip=("$venv_python" -m pip)

# An environment has its folder and its Python written into it: it is made anew when either
# is another one.
make_venv() {
  find_python || die "no Python 3.10 or newer with the venv module and Python.h was found" \
    "on Debian and Ubuntu: apt-get install -y python3 python3-venv python3-dev"
  local stamp=$venv/.made-for identity
  identity=$("$python" -c 'import os, sys; print(os.path.realpath(sys.executable), sys.version)')
  identity="$root|$identity"
  if [[ -x $venv_python && -f $stamp && $(<"$stamp") == "$identity" ]] &&
    "$venv_python" -c 'import sys' 2>/dev/null; then
    return 0
  fi
  rm -rf -- "$venv"
  step venv "make the Python environment .venv with $("$python" -V)" "$python" -m venv "$venv" ||
    die "python -m venv failed" "on Debian and Ubuntu: apt-get install -y python3-venv"
  printf '%s' "$identity" >"$stamp"
}

# install_requirements NAME TITLE: what python/requirements-NAME.txt pins, once per content.
install_requirements() {
  local name=$1 title=$2 file hash stamp
  file=python/requirements-$name.txt
  stamp=$venv/.installed-$name
  hash=$(sha256sum <"$file")
  if [[ -f $stamp && $(<"$stamp") == "$hash" ]]; then
    return 0
  fi
  rm -f -- "$stamp"
  step "pip-$name" "install $title ($file)" \
    "${pip[@]}" install --progress-bar off -r "$file" || return
  printf '%s' "$hash" >"$stamp"
}

# find_nvcc: sets `nvcc` to the machine's CUDA compiler, or to the one in .venv, or to nothing.
find_nvcc() {
  nvcc=$(command -v nvcc || true)
  [[ -n $nvcc ]] || { [[ -x /usr/local/cuda/bin/nvcc ]] && nvcc=/usr/local/cuda/bin/nvcc; } || true
  if [[ -z $nvcc ]]; then
    local candidate
    for candidate in "$root/$venv"/lib/python3*/site-packages/nvidia/cu*/bin/nvcc; do
      [[ ! -x $candidate ]] || nvcc=$candidate
    done
  fi
  [[ -n $nvcc ]]
}

install_nvcc() {
  nvcc=""
  if ((!with_cuda)); then
    say "CUDA kernels: left out (--no-cuda)"
    return 0
  fi
  find_nvcc || install_requirements cuda "the CUDA compiler, as this machine has none" || true
  if find_nvcc; then
    return 0
  fi
  say "CUDA kernels: left out, no nvcc here and none could be installed; all else is built"
  with_cuda=0
}

install_deps() {
  install_system_packages
  make_venv
  local help="check the network and pip's settings: $venv_python -m pip config list"
  install_requirements dev "build and test tools" || die "pip could not install them" "$help"
  if ((with_torch)); then
    install_requirements torch "PyTorch and transformers" ||
      die "pip could not install them" "$help" "or leave PyTorch out: --no-torch"
  fi
  install_nvcc
}
