# Shared by the scripts of this folder that try something on a bare Debian: sourced, not run, after `name` (the script's, for
# sentences) and `work` (a folder) are set. A tree has the base system alone and takes packages from where this machine
# takes them.
skip() {
  printf 'skipped %s: %s\n' "$name" "$1"
  exit 77
}
say() { printf '%s\n' "$*"; }
wrong() {
  printf 'FAIL: %s\n' "$1" >&2
  exit 1
}

# Ends with 77 and a sentence where no such tree can be made.
need_bare_trees() {
  [ "$(id -u)" = 0 ] || skip "a bare Debian can only be made by root"
  command -v debootstrap >/dev/null || skip "there is no debootstrap (apt-get install debootstrap)"
  unshare --mount --pid --fork --net true 2>/dev/null || skip "this machine allows no namespaces of one's own"
  suite=$(. /etc/os-release && printf '%s' "${ID:-}-${VERSION_CODENAME:-}")
  [ "$suite" = debian-bookworm ] || skip "this is no Debian 12, so there is no mirror of one to take packages from"
  mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 'Component: main' 'Codename: bookworm' | head -n 1)
  [ -n "$mirror" ] || skip "apt names no source of Debian 12's packages"
}

# make_bare_tree DIR: with debootstrap, told of packages what this machine's apt and pip are told.
make_bare_tree() {
  local base=$1 certificates=/etc/ssl/certs/ca-certificates.crt part
  mkdir -p "$work/archives/partial" "$base"
  debootstrap --variant=minbase bookworm "$base" "$mirror" >"$work/debootstrap.txt" 2>&1 || {
    tail -n 5 "$work/debootstrap.txt"
    skip "debootstrap could not make a tree (above is what it said last)"
  }
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

# in_tree TREE NETWORK COMMAND: as its root, with no variable of ours but what reaches a mirror; NETWORK: with or without.
# The command starts in the folder $tree_folder of the tree (/ if unset). $compiler_cache, if set, is its /var/cache/compiler.
in_tree() {
  local at=$1 namespaces="--mount --pid --fork --kill-child" passed=()
  [ "$2" = with ] || namespaces="$namespaces --net"
  for variable in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_TRUSTED_HOST \
    PIP_DEFAULT_TIMEOUT; do
    [ -z "${!variable:-}" ] || passed+=("$variable=${!variable}")
  done
  # shellcheck disable=SC2086
  unshare $namespaces -- bash -euc '
    tree=$1 archives=$2 cache=$3 network=$4
    shift 4
    mount --make-rprivate /
    mount --rbind /dev "$tree/dev"
    mount -t proc proc "$tree/proc"
    mkdir -p "$tree/var/cache/apt/archives"
    mount --bind "$archives" "$tree/var/cache/apt/archives"
    if [ -n "$cache" ]; then
      mkdir -p "$tree/var/cache/compiler"
      mount --bind "$cache" "$tree/var/cache/compiler"
    fi
    [ "$network" = with ] || ip link set lo up 2>/dev/null || true
    exec env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin TERM=dumb \
      PIP_CERT=/etc/machine-certificates.crt CCACHE_DIR=/var/cache/compiler "$@"
  ' bash "$at" "$work/archives" "${compiler_cache:-}" "$2" "${passed[@]}" \
    chroot "$at" bash -c "cd ${tree_folder:-/} && $3" </dev/null
}

# timed NAME TREE NETWORK COMMAND: reports its seconds; its output is in $work/NAME.txt.
timed() {
  local began=$SECONDS log=$work/$1.txt
  if ! in_tree "$2" "$3" "$4" >"$log" 2>&1; then
    grep -m 2 -A 30 -F '***' "$log" >&2 || true  # what the first tests that failed said
    tail -n 40 "$log" >&2
    wrong "$1 ($4, $3 a network)"
  fi
  say "$1: $4, $3 a network: $((SECONDS - began)) s"
}
