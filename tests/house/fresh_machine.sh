#!/usr/bin/env bash
# The first command of a stranger: ./quickstart and ./runtests on a bare Debian, alone and in either order.
#
#   fresh_machine.sh SOURCE_DIR WORK_DIR
#
# Two trees are made with debootstrap, with nothing in them but the base system and the sources:
#   one    ./quickstart alone; then ./runtests, which must not build the product again, with a few of the tests; then
#          ./quickstart without a network
#   other  ./runtests alone, with the quick tests that meet the system: servers, Python, files, tools. Those that only
#          compute are the same in any tree.
# They take packages from where this machine takes them, and use its compiler cache. Ends with 77 and a sentence where no
# such tree can be made.
set -euo pipefail
source_dir=$(cd "$1" && pwd)
mkdir -p "$2"
work=$(cd "$2" && pwd)

skip() {
  printf 'skipped fresh_machine: %s\n' "$1"
  exit 77
}
say() { printf '%s\n' "$*"; }
wrong() {
  printf 'FAIL: %s\n' "$1" >&2
  exit 1
}

[ "$(id -u)" = 0 ] || skip "a bare Debian can only be made by root"
command -v debootstrap >/dev/null || skip "there is no debootstrap (apt-get install debootstrap)"
unshare --mount --pid --fork --net true 2>/dev/null || skip "this machine allows no namespaces of one's own"
suite=$(. /etc/os-release && printf '%s' "${ID:-}-${VERSION_CODENAME:-}")
[ "$suite" = debian-bookworm ] || skip "this is no Debian 12, so there is no mirror of one to take packages from"
mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 'Component: main' 'Codename: bookworm' | head -n 1)
[ -n "$mirror" ] || skip "apt names no source of Debian 12's packages"

base=$work/base
tree=
clean() { rm -rf --one-file-system "$work/base" "$work/one" "$work/other"; }
trap clean EXIT
clean
mkdir -p "$work/archives/partial" "$base"

# What this machine's apt and pip are told, so that the trees get packages the way that it does.
configure_sources() {
  local certificates=/etc/ssl/certs/ca-certificates.crt part
  for part in sources.list sources.list.d auth.conf auth.conf.d keyrings trusted.gpg trusted.gpg.d; do
    [ ! -e "/etc/apt/$part" ] || cp -a "/etc/apt/$part" "$base/etc/apt/"
  done
  apt-config dump | grep -E '^Acquire::[^ ]+ "[^"]+";' >"$base/etc/apt/apt.conf.d/00machine" || true
  printf 'APT::Keep-Downloaded-Packages "true";\nBinary::apt::APT::Keep-Downloaded-Packages "true";\n' \
    >"$base/etc/apt/apt.conf.d/01keep"
  printf 'force-unsafe-io\n' >"$base/etc/dpkg/dpkg.cfg.d/00unsafe-io"
  if [ -f "$certificates" ]; then
    cp "$certificates" "$base/etc/machine-certificates.crt"
    printf 'Acquire::https::CaInfo "/etc/machine-certificates.crt";\n' >>"$base/etc/apt/apt.conf.d/00machine"
  fi
  for part in resolv.conf pip.conf; do [ ! -f "/etc/$part" ] || cp -L "/etc/$part" "$base/etc/$part"; done
  printf '127.0.0.1 localhost\n::1 localhost\n' >"$base/etc/hosts"
}

# The files of the tree as they are now, committed or not.
copy_sources() {
  mkdir -p "$base/ibid"
  git -C "$source_dir" ls-files -z | (cd "$source_dir" && tar --null --files-from=- --create --ignore-failed-read 2>/dev/null) |
    tar --extract --directory "$base/ibid"
}

compiler_cache=$(ccache --get-config cache_dir 2>/dev/null || true)
compiler_cache=${compiler_cache:-$work/ccache}
mkdir -p "$compiler_cache"

# in_tree TREE NETWORK COMMAND: as its root, with no variable of ours but what reaches a mirror; NETWORK: with or without.
in_tree() {
  local at=$1 namespaces="--mount --pid --fork --kill-child" passed=()
  [ "$2" = with ] || namespaces="$namespaces --net"
  for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_TRUSTED_HOST \
    PIP_DEFAULT_TIMEOUT; do
    [ -z "${!name:-}" ] || passed+=("$name=${!name}")
  done
  # shellcheck disable=SC2086
  unshare $namespaces -- bash -euc '
    tree=$1 archives=$2 cache=$3 network=$4
    shift 4
    mount --make-rprivate /
    mount --rbind /dev "$tree/dev"
    mount -t proc proc "$tree/proc"
    mkdir -p "$tree/var/cache/compiler" "$tree/var/cache/apt/archives"
    mount --bind "$archives" "$tree/var/cache/apt/archives"
    mount --bind "$cache" "$tree/var/cache/compiler"
    [ "$network" = with ] || ip link set lo up 2>/dev/null || true
    exec env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin TERM=dumb \
      PIP_CERT=/etc/machine-certificates.crt CCACHE_DIR=/var/cache/compiler "$@"
  ' bash "$at" "$work/archives" "$compiler_cache" "$2" "${passed[@]}" chroot "$at" bash -c "cd /ibid && $3" </dev/null
}

# timed NAME TREE NETWORK COMMAND
timed() {
  local began=$SECONDS log=$work/$1.txt
  if ! in_tree "$2" "$3" "$4" >"$log" 2>&1; then
    grep -m 2 -A 30 -F '***' "$log" >&2 || true  # what the first tests that failed said
    tail -n 40 "$log" >&2
    wrong "$1 ($4, $3 a network)"
  fi
  say "$1: $4, $3 a network: $((SECONDS - began)) s"
}
built_at() { stat -c '%i %y' "$1/ibid/build/ibid"; }

began=$SECONDS
debootstrap --variant=minbase bookworm "$base" "$mirror" >"$work/debootstrap.txt" 2>&1 || {
  tail -n 5 "$work/debootstrap.txt"
  skip "debootstrap could not make a tree (above is what it said last)"
}
configure_sources
copy_sources
say "a bare tree: $((SECONDS - began)) s"

cp -a "$base" "$work/one"
mv "$base" "$work/other"

tree=$work/one
timed quickstart-first "$tree" with ./quickstart
grep -q 'tokens/s' "$work/quickstart-first.txt" || wrong "./quickstart gave no answer; see $work/quickstart-first.txt"
for package in libgtest-dev librapidcheck-dev clang-format; do
  ! chroot "$tree" dpkg-query -W "$package" >/dev/null 2>&1 || wrong "./quickstart installed $package, which only tests need"
done
before=$(built_at "$tree")
timed runtests-second "$tree" with "./runtests '^(selftest|life|base_test|server_test)\$'"
grep -q '100% tests passed, 0 tests failed out of 4' "$work/runtests-second.txt" ||
  wrong "./runtests did not run what it was asked for; see $work/runtests-second.txt"
[ "$(built_at "$tree")" = "$before" ] || wrong "./runtests built the product again, which ./quickstart had built"
timed quickstart-offline "$tree" without ./quickstart
grep -q 'tokens/s' "$work/quickstart-offline.txt" || wrong "./quickstart gave no answer without a network"
[ "$(built_at "$tree")" = "$before" ] || wrong "./quickstart built the product again after ./runtests"
rm -rf --one-file-system "$tree"

timed runtests-first "$work/other" with "./runtests '^(base_test|text_test|format_test|server_test|cli_test|conformance_suite|life|fleet|otlp|replay|speculation|run|terminal|quickstart|commands|batch|keep_packed|house_.*|selftest|isa_symbols|scenario_suite)\$'"
grep -q '100% tests passed' "$work/runtests-first.txt" || wrong "./runtests ran no tests; see $work/runtests-first.txt"
say "both commands work on a bare machine, alone and in either order"
