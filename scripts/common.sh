# Shared by quickstart, runtests and .ci/run: say little, install what is missing, build. Sourced, not run.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build
log=$build/log
mkdir -p "$build" "$log"

if [ -t 1 ]; then bold=$'\e[1m' dim=$'\e[2m' plain=$'\e[0m'; else bold= dim= plain=; fi
say() { printf '%s\n' "$*"; }
step() { printf '%s==>%s %s\n' "$bold" "$plain" "$*"; }
fail() {
  printf '%serror:%s %s\n' "$bold" "$plain" "$1" >&2
  shift
  for line in "$@"; do printf '       %s\n' "$line" >&2; done
  exit 1
}

packages="g++ cmake ninja-build ccache pkg-config ca-certificates python3 python3-pip python3-venv unzip
  libboost1.81-dev libboost-json1.81-dev libcli11-dev libspdlog-dev libfmt-dev libpcre2-dev libssl-dev libxxhash-dev
  librandom123-dev libedit-dev"
test_packages="libgtest-dev librapidcheck-dev clang-format"
# What the slow tests drive; one whose tool is missing skips.
slow_packages="curl slowhttptest systemd chromium-headless-shell debootstrap qemu-user-static g++-aarch64-linux-gnu
  python3-torch libopenblas0-pthread"

# install_packages NAME...: those of the distribution's packages that are missing.
install_packages() {
  command -v dpkg-query >/dev/null || {
    say "This is not a Debian system: make sure that the packages named in scripts/common.sh are there."
    return 0
  }
  local missing=()
  for p in "$@"; do
    dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'install ok installed' || missing+=("$p")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  local sudo=
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || fail "packages are missing and this user cannot install them: ${missing[*]}" \
      "Ask an administrator to run: apt-get install --no-remove ${missing[*]}"
    sudo=sudo
  fi
  step "installing ${#missing[@]} packages: ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  install_now() { $sudo apt-get install -y -q --no-remove --no-install-recommends "${missing[@]}" >"$log/apt.txt" 2>&1; }
  # The lists of a machine that has not asked for a while name files that are gone: ask once, then try again.
  install_now || { $sudo apt-get update -q >"$log/apt-update.txt" 2>&1 && install_now; } || {
    tail -n 5 "$log/apt.txt" >&2
    if grep -qi 'libboost1.74\|remove' "$log/apt.txt"; then
      fail "apt-get would have to remove packages, so nothing was changed." \
        "libboost1.81-dev and the default libboost1.74-dev exclude each other. Remove the latter yourself" \
        "(apt-get remove libboost1.74-dev), or build ibid in a container; then run this again."
    fi
    fail "apt-get could not install: ${missing[*]}" "Its output is in ${log#"$root"/}/apt.txt."
  }
}

# run_logged NAME COMMAND...: quiet; prints the end of the log where it fails.
run_logged() {
  local name=$1
  shift
  "$@" >"$log/$name.txt" 2>&1 && return 0
  tail -n 30 "$log/$name.txt" >&2
  fail "$name failed; the whole log is build/log/$name.txt"
}

# Clones of the project share what ccache has compiled, whatever their language.
export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1 CCACHE_SLOPPINESS=locale

jobs=$(nproc)
mem_jobs=$(awk '/MemAvailable/ {n = int($2 / 1500000); print n < 1 ? 1 : n}' /proc/meminfo)
[ "$mem_jobs" -lt "$jobs" ] && jobs=$mem_jobs

# configure [CMAKE ARGUMENT...]: the Release build in build/.
configure() {
  run_logged configure cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release "$@"
}

# build_targets TARGET...: with a progress line on a terminal.
build_targets() {
  if [ -t 1 ]; then
    NINJA_STATUS='[%f/%t] ' ninja -C "$build" -j "$jobs" "$@" 2>&1 | tee "$log/build.txt" |
      awk '/^\[[0-9]+\/[0-9]+\]/ {printf "\r\033[K%s", substr($0, 1, 100); fflush(); next} /error|warning/ {print "\n" $0}' || true
    [ "${PIPESTATUS[0]}" = 0 ] || fail "the build failed; the whole log is build/log/build.txt"
    printf '\r\033[K'
  else
    run_logged build ninja -C "$build" -j "$jobs" "$@"
  fi
}
