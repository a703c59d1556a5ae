#!/usr/bin/env bash
# The first command of a stranger: ./quickstart and ./runtests on a bare Debian, alone and in either order.
#
#   fresh_machine.sh SOURCE_DIR WORK_DIR
#
# Two trees are made with debootstrap, with nothing in them but the base system and the sources:
#   one    ./quickstart alone; then ./runtests, which must not build the product again, with a few of the tests; then
#          ./quickstart without a network
#   other  with IBID_ALL=1 alone: ./runtests first, with the quick tests that meet the system: servers, Python, files,
#          tools. Those that only compute are the same in any tree.
# They take packages from where this machine takes them, and use its compiler cache. Ends with 77 and a sentence where no
# such tree can be made.
set -euo pipefail
source_dir=$(cd "$1" && pwd)
mkdir -p "$2"
work=$(cd "$2" && pwd)

name=fresh_machine
. "$source_dir/tests/house/bare_tree.sh"
need_bare_trees

base=$work/base
tree=
clean() { rm -rf --one-file-system "$work/base" "$work/one" "$work/other"; }
trap clean EXIT
clean

# The files of the tree as they are now, committed or not.
copy_sources() {
  mkdir -p "$base/ibid"
  git -C "$source_dir" ls-files -z | (cd "$source_dir" && tar --null --files-from=- --create --ignore-failed-read 2>/dev/null) |
    tar --extract --directory "$base/ibid"
}

compiler_cache=$(ccache --get-config cache_dir 2>/dev/null || true)
compiler_cache=${compiler_cache:-$work/ccache}
mkdir -p "$compiler_cache"

tree_folder=/ibid

built_at() { stat -c '%i %y' "$1/ibid/build/ibid"; }

began=$SECONDS
make_bare_tree "$base"
copy_sources
say "a bare tree: $((SECONDS - began)) s"

[ "${IBID_ALL:-}" != 1 ] || cp -a "$base" "$work/other"
mv "$base" "$work/one"

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

[ "${IBID_ALL:-}" = 1 ] || { say "./quickstart works on a bare machine, and ./runtests after it"; exit 0; }
timed runtests-first "$work/other" with "./runtests '^(base_test|format_test|server_test|life|fleet|replay|run|terminal|quickstart|commands|keep_packed|library|house_.*|selftest|isa_symbols)\$'"
grep -q '100% tests passed' "$work/runtests-first.txt" || wrong "./runtests ran no tests; see $work/runtests-first.txt"
say "both commands work on a bare machine, alone and in either order"
