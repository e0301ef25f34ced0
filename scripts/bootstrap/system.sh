# shellcheck shell=bash
# System packages by apt. dpkg is asked first, so a repeat changes nothing and needs no network.

# The same names serve Debian 12, Debian 13 and Ubuntu 24.04.
system_packages=(
  g++ cmake ninja-build pkg-config
  libfmt-dev libsimdjson-dev nlohmann-json3-dev libtomlplusplus-dev libxxhash-dev libzstd-dev
  libcli11-dev libhwloc-dev liburing-dev libgtest-dev libgmock-dev
)

system_name() { (. /etc/os-release 2>/dev/null && printf '%s' "${PRETTY_NAME:-unknown}") || true; }

is_supported_system() {
  (
    . /etc/os-release 2>/dev/null || exit 1
    case ${ID:-}:${VERSION_ID:-} in
      debian:12 | debian:13 | ubuntu:24.04) exit 0 ;;
      *) exit 1 ;;
    esac
  )
}

# missing_packages NAME…: those that dpkg does not know as installed, one a line.
missing_packages() {
  local name
  for name in "$@"; do
    [[ $(dpkg-query -W -f='${db:Status-Status}' "$name" 2>/dev/null) == installed ]] ||
      printf '%s\n' "$name"
  done
}

# become_root: sets `sudo` to what stands before commands of root; 1 when this user can't be root.
become_root() {
  sudo=()
  ((EUID != 0)) || return 0
  command -v sudo >/dev/null && { [[ -t 0 ]] || sudo -n true 2>/dev/null; } && sudo -v || return 1
  sudo=(sudo)
}

# apt_install NAME…: after become_root.
apt_install() {
  local -a apt=("${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q
    -o DPkg::Lock::Timeout=300)
  step apt-update "refresh the package lists" "${apt[@]}" update ||
    say "the package lists could not be refreshed; trying with those at hand"
  step apt-install "install $# system packages: $*" \
    "${apt[@]}" install -y --no-install-recommends "$@"
}

install_system_packages() {
  local -a needed=("${system_packages[@]}") missing
  ((with_system)) || return 0
  find_python || needed+=(python3 python3-venv python3-dev)
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    die "'$(system_name)' has no apt; Debian 12, Debian 13 and Ubuntu 24.04 are supported" \
      "install what these Debian packages hold: ${needed[*]}" \
      "then run the same command with --no-system"
  fi
  is_supported_system ||
    say "note: '$(system_name)' is not Debian 12, Debian 13 or Ubuntu 24.04;" \
      "trying the same packages"
  mapfile -t missing < <(missing_packages "${needed[@]}")
  ((${#missing[@]})) || return 0

  become_root || die "system packages are missing, and installing them needs root: ${missing[*]}" \
    "as root: apt-get update && apt-get install -y --no-install-recommends ${missing[*]}" \
    "then run the same command again"
  apt_install "${missing[@]}" ||
    die "apt could not install: ${missing[*]}" \
      "by hand: ${sudo[*]:+sudo }apt-get update && ${sudo[*]:+sudo }apt-get install ${missing[*]}"
}
