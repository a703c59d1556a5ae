#!/usr/bin/env bash
# A package's life on a bare Debian without a compiler: what packaging/ makes of build/ibid is installed, answers, is upgraded
# and removed.
#
#   packages.sh SOURCE_DIR BUILD_DIR WORK_DIR
#
#   archive  unpacked and moved, before any library is installed
#   .deb     installed with what it depends on; the command line; the server as its own user; a health check; an upgrade that
#            keeps settings; removal; purge, after which the tree has the files and users that it had before
#   image    unpacked by umoci, run by crun as a user without rights on a read-only root
#
# Every answer is the one of build/ibid. Ends with 77 and a sentence where no such tree can be made.
set -euo pipefail
source_dir=$(cd "$1" && pwd)
build_dir=$(cd "$2" && pwd)
mkdir -p "$3"
work=$(cd "$3" && pwd)

name=packages
. "$source_dir/tests/house/bare_tree.sh"
need_bare_trees
for program in dpkg-shlibdeps patchelf umoci crun; do
  command -v "$program" >/dev/null || skip "there is no $program (packages dpkg-dev, patchelf, umoci, crun)"
done

tree=$work/tree made=$work/packages bundle=$work/bundle
container=ibid-packages-test-$$
clean() {
  rm -rf --one-file-system "$tree" "$made" "$bundle" "$work/crun"
}
trap clean EXIT
clean
mkdir -p "$made"

for script in "make_deb.py --revision 1" "make_deb.py --revision 2" make_tar.py make_oci.py; do
  # shellcheck disable=SC2086
  "$source_dir"/packaging/$script --build "$build_dir" --out "$made" >>"$work/made.txt"
done
first=$(basename "$made"/ibid_*-1_*.deb) second=$(basename "$made"/ibid_*-2_*.deb)
archive=$(basename "$made"/ibid-*-linux-*.tar.gz)
image=$(find "$made" -maxdepth 1 -type d -name 'ibid-*-oci-*')
version=$("$build_dir/ibid" --version)
number=${version#ibid } number=${number%% *}
say "made: $(cd "$made" && du -h --apparent-size -- *.deb *.tar* | tr '\t\n' ' ;')"

began=$SECONDS
make_bare_tree "$tree"
say "a bare tree: $((SECONDS - began)) s"
mkdir "$tree/packages"
cp "$made"/*.deb "$made/$archive" "$tree/packages/"
python3 -B -c 'import sys; sys.path.insert(0, sys.argv[1]); import tiny_model; tiny_model.make(sys.argv[2])' \
  "$source_dir/tests/conformance" "$tree/packages/tiny"
chmod -R a+rX "$tree/packages"

asked='-p "Why is it so?" --temp 0 --seed 3 --ignore-eos -n 16'
answer=$(cd "$tree/packages" && eval "'$build_dir/ibid' run tiny $asked" </dev/null | sha256sum)

# lines TREE COMMAND: what the command writes in the tree, without a network.
lines() { in_tree "$1" without "$2"; }
# same PLACE BINARY: the binary in the tree has the version and the answer of the build.
same() {
  [ "$(lines "$tree" "$2 --version")" = "$version" ] || wrong "$1: $2 --version is not $version"
  [ "$(lines "$tree" "cd /packages && $2 run tiny $asked" | sha256sum)" = "$answer" ] ||
    wrong "$1: $2 answers otherwise than the build"
  say "$1: $version, and the answer of the build"
}
# Every name in the tree but of what apt and logs keep, and the users.
inventory() {
  lines "$tree" "find / -xdev \( -path /packages -o -path /proc -o -path /dev -o -path /run -o -path /var/cache/apt -o -path /var/lib/apt \
    -o -path /var/log -o -path /tmp -o -name 'passwd-' -o -name 'group-' -o -name 'shadow-' -o -name 'gshadow-' -o -name 'subuid-' \
    -o -name 'subgid-' -o -path '/var/lib/dpkg/*-old' -o -path /var/cache/ldconfig \) -prune -o -print | sort
    cat /etc/passwd /etc/group /etc/shadow /etc/gshadow"
}

lines "$tree" '! command -v cc && ! command -v gcc && ! command -v c++ && ! command -v python3' >/dev/null ||
  wrong "the tree has a compiler or Python"

lines "$tree" "cd /packages && mkdir -p /opt/one && tar -xf $archive -C /opt/one --strip-components 1"
same "the archive" /opt/one/bin/ibid
lines "$tree" 'mkdir "/opt/the other" && mv /opt/one "/opt/the other/place"'
same "the archive, moved" '"/opt/the other/place/bin/ibid"'
lines "$tree" 'rm -rf /opt/one "/opt/the other"'

timed lists "$tree" with "apt-get update -q"
inventory >"$work/before.txt"
timed install "$tree" with "DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends /packages/$first"
same "the package" ibid
lines "$tree" 'grep -q "^ibid:" /etc/passwd && grep -q "^IBID_OPTIONS=" /etc/default/ibid && test -s /usr/share/man/man1/ibid-serve.1.gz &&
  test -s /usr/share/bash-completion/completions/ibid && ldconfig -p | grep -q libibid.so.1 && dpkg --verify ibid' || wrong "files of the package are missing"

# The server as its user, asked by a client that is bash; the same request twice, and a health check.
cat >"$tree/packages/serve.sh" <<'END'
set -euo pipefail
runuser -u ibid -- env XDG_CACHE_HOME=/tmp/ibid-cache ibid serve /packages/tiny --port 8080 2>/tmp/ibid.log &
for ((i = 0; ; ++i)); do
  ! ibid health >/dev/null 2>&1 || break
  if [ $i -gt 600 ] || ! kill -0 $! 2>/dev/null; then cat /tmp/ibid.log; exit 1; fi
  sleep 0.1
done
ask() {
  local body='{"prompt":"Why is it so?","temperature":0,"max_tokens":16,"ignore_eos":true,"seed":3}'
  exec 3<>/dev/tcp/127.0.0.1/8080
  printf 'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s' ${#body} "$body" >&3
  cat <&3 || true
  exec 3>&-
}
first=$(ask) again=$(ask)
text() { grep -o '"text":"[^"]*"' <<<"$1"; }
printf 'health: %s\n' "$(ibid health)"
[ -n "$(text "$first")" ] && [ "$(text "$first")" = "$(text "$again")" ]
pkill -P $! -TERM ibid 2>/dev/null || kill $!
wait $! || true
END
timed serve "$tree" without "bash /packages/serve.sh"
grep -q '^health: ready$' "$work/serve.txt" || wrong "ibid health does not report the server as ready; see $work/serve.txt"

# As an administrator leaves it: settings changed, the server enabled
# (with the link that systemctl makes), models fetched.
lines "$tree" 'sed -i s/8080/8081/ /etc/default/ibid && mkdir -p /etc/ibid /var/cache/ibid/models /etc/systemd/system/multi-user.target.wants &&
  touch /etc/ibid/keys /var/cache/ibid/models/x.gguf &&
  ln -s /lib/systemd/system/ibid.service /etc/systemd/system/multi-user.target.wants/ibid.service'
timed upgrade "$tree" without "DEBIAN_FRONTEND=noninteractive apt-get install -y -q /packages/$second"
[ "$(lines "$tree" "dpkg-query -W -f '\${Version}' ibid")" = "$number-2" ] || wrong "the upgrade left the old version"
lines "$tree" 'grep -q 8081 /etc/default/ibid && test -e /var/cache/ibid/models/x.gguf && test -L /etc/systemd/system/multi-user.target.wants/ibid.service' ||
  wrong "the upgrade lost settings, models or the enabled server"
same "the upgrade" ibid
timed remove "$tree" without "DEBIAN_FRONTEND=noninteractive apt-get remove -y -q ibid"
lines "$tree" '! command -v ibid >/dev/null && test -e /etc/default/ibid && test -e /var/cache/ibid/models/x.gguf' || wrong "removal took settings or models, or left the binary"
timed purge "$tree" without "DEBIAN_FRONTEND=noninteractive apt-get purge -y -q --autoremove ibid"
rm -rf "$tree/tmp"/*
inventory >"$work/after.txt"
diff "$work/before.txt" "$work/after.txt" >"$work/left.txt" || {
  cat "$work/left.txt" >&2
  wrong "the purge left something (< before, > after)"
}
say "after the purge the tree has the $(wc -l <"$work/after.txt") names, users and groups that it had before"

# The image: what a runtime for containers gets, on a read-only root, as a user without rights.
umoci unpack --image "$image:$number" "$bundle" >"$work/umoci.txt" 2>&1 || {
  cat "$work/umoci.txt" >&2
  wrong "umoci cannot unpack the image"
}
[ "$(stat -c %u "$bundle/rootfs/cache")" = 10001 ] || wrong "the image's /cache is not its user's"
# configured COMMAND...: the bundle's process is the image's entry point with this command.
configured() {
  python3 - "$bundle/config.json" "$tree/packages" "$@" <<'END'
import json
import sys

path, models, *command = sys.argv[1:]
with open(path) as file:
    config = json.load(file)
process = config["process"]
process["terminal"], process["args"], process["noNewPrivileges"] = False, [process["args"][0], *command], True
process["capabilities"] = {}
process["user"] = {"uid": 10001, "gid": 10001}
config["root"]["readonly"] = True
linux = config["linux"]
linux.pop("resources", None)
linux["namespaces"] = [n for n in linux["namespaces"] if n["type"] != "network"]  # the one that in_runtime makes
keep = [m for m in config["mounts"] if m["destination"] in ("/proc", "/dev")]
config["mounts"] = keep + [
    {"destination": "/models", "type": "bind", "source": models, "options": ["rbind", "ro"]},
    {"destination": "/cache", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev", "mode=0700", "uid=10001", "gid=10001"]}]
with open(path, "w") as file:
    json.dump(config, file)
END
}
# in_runtime COMMAND: with `container VERB...`, in a network of its own. crun refuses machines that have both kinds of cgroups.
in_runtime() {
  unshare --mount --net bash -euo pipefail -c '
    mount --make-rprivate /
    if [ -d /sys/fs/cgroup/unified ]; then
      umount -l /sys/fs/cgroup
      mount -t cgroup2 none /sys/fs/cgroup
    fi
    ip link set lo up
    work=$1 bundle=$2 name=$3
    container() { crun --root "$work/crun" --cgroup-manager=disabled "$@"; }
    eval "$4"' bash "$work" "$bundle" "$container" "$1" </dev/null
}
configured --version
[ "$(in_runtime 'container run --bundle "$bundle" "$name"')" = "$version" ] || wrong "the image's version is not $version"
eval "configured run /models/tiny $asked"
[ "$(in_runtime 'container run --bundle "$bundle" "$name"' | sha256sum)" = "$answer" ] || wrong "the image answers otherwise than the build"
configured serve /models/tiny --host 127.0.0.1 --port 8080
in_runtime '
  container run --bundle "$bundle" "$name" >"$work/container.txt" 2>&1 &
  for ((i = 0; ; ++i)); do
    ! container exec "$name" /usr/bin/ibid health >"$work/health.txt" 2>&1 || break
    if [ $i -gt 600 ] || ! kill -0 $! 2>/dev/null; then cat "$work/container.txt" "$work/health.txt"; exit 1; fi
    sleep 0.1
  done
  container kill "$name" TERM
  wait $!' || wrong "the container does not become ready, or does not end with 0 on SIGTERM; see $work/container.txt"
[ "$(cat "$work/health.txt")" = ready ] || wrong "the image's health check reports $(cat "$work/health.txt")"
say "the image: $version, the answer of the build, ready by its health check, on a read-only root, as user 10001"
