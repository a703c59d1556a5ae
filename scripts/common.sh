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
  librandom123-dev libedit-dev libspng-dev libjpeg62-turbo-dev libwebp-dev"
test_packages="libgtest-dev librapidcheck-dev clang-format libzmq5"
# What the slow tests drive; one whose tool is missing skips.
slow_packages="curl slowhttptest systemd chromium-headless-shell debootstrap qemu-user-static g++-aarch64-linux-gnu
  valgrind python3-torch libopenblas0-pthread dpkg-dev patchelf umoci crun fish zsh"

# last_line: the newest line of standard input in the place of the one before, and the seconds while none comes; errors
# and warnings stay, and of a compiler what follows them. A loop of this shell: awk may read a pipe in blocks, and show
# nothing for long.
last_line() {
  local part line= shown= keeps= status width begin=$SECONDS
  width=$(tput cols 2>/dev/null || echo 80)
  [ "$width" -gt 20 ] || width=80
  while :; do
    status=0
    IFS= read -r -t 1 part || status=$?
    line+=$part
    if [ "$status" -gt 128 ]; then
      printf '\r\033[K%s%s s' "${shown:0:$((width - 10))}${shown:+ }" $((SECONDS - begin))
      continue
    fi
    line=${line//[$'\r\e']/}
    if [ -n "$line" ]; then
      case $line in
        \[[0-9]*/[0-9]*\]*) keeps= ;;
        *error:* | *warning:* | FAILED:*) keeps=1 ;;
      esac
      case "[$keeps]$line" in
        "[1]"* | "[]E: "* | "[]W: "*) printf '\r\033[K%s\n' "$line" ;;
        *) shown=$line && printf '\r\033[K%s' "${line:0:$((width - 1))}" ;;
      esac
    fi
    line=
    [ "$status" = 0 ] || break
  done
  printf '\r\033[K'
}

# quietly NAME COMMAND...: its output goes into the log NAME; on a terminal its last line is shown.
quietly() {
  local name=$1
  shift
  if [ -t 1 ]; then "$@" 2>&1 | tee "$log/$name.txt" | last_line; else "$@" >"$log/$name.txt" 2>&1; fi
}

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
  install_now() { quietly apt $sudo apt-get install -y -q --no-remove --no-install-recommends "${missing[@]}"; }
  # The lists of a machine that has not asked for a while name files that are gone: ask once, then try again.
  install_now || { quietly apt-update $sudo apt-get update -q && install_now; } || {
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
  quietly "$name" "$@" && return 0
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
    NINJA_STATUS='[%f/%t] ' quietly build ninja -C "$build" -j "$jobs" "$@" ||
      fail "the build failed; the whole log is build/log/build.txt"
  else
    run_logged build ninja -C "$build" -j "$jobs" "$@"
  fi
}
