#!/usr/bin/env bash
# The same bits on 64-bit ARM: cross-compiles the program and the tests that are held to tests/pinned_bits.txt, and runs
# them under qemu-user as processors of which each has another NEON table as its best.
#
#   arm64.sh SOURCE_DIR WORK_DIR          parity rows; of each kind of layer 40 requests under three schedules
#   arm64.sh SOURCE_DIR WORK_DIR --all    also the program and its selftest, every property test and what is slow: 72
#                                         requests under ten schedules
#
# The arm64 libraries are unpacked, not installed, into WORK_DIR/tree, with lists of packages of their own: nothing of
# this machine's own system changes, and no root is needed. Where that cannot be done it ends with 77 and a sentence, or
# fails if CI=true or IBID_CI says that nothing may be skipped (.ci/run does).
set -euo pipefail
source_dir=$(cd "$1" && pwd)
mkdir -p "$2"
work=$(cd "$2" && pwd)
extent=${3:-}
tree=$work/tree
build=$work/build

wrong() {
  printf 'FAIL: %s\n' "$1" >&2
  exit 1
}
skip() {
  [ "${IBID_CI:-${CI:-}}" != true ] || wrong "arm64 may not be skipped here, and $1"
  printf 'skipped arm64: %s\n' "$1"
  exit 77
}

qemu=$(command -v qemu-aarch64-static || command -v qemu-aarch64) ||
  skip "there is no qemu for 64-bit ARM (apt-get install qemu-user-static)"
command -v aarch64-linux-gnu-g++ >/dev/null || skip "there is no cross compiler (apt-get install g++-aarch64-linux-gnu)"
suite=$(. /etc/os-release && printf '%s' "${ID:-}-${VERSION_CODENAME:-}")
[ "$suite" = debian-bookworm ] || skip "this is no Debian 12, so there is no mirror of its arm64 packages"

# An apt of our own over this machine's sources: an empty system of another architecture.
packages="libboost1.81-dev libboost-json1.81-dev libcli11-dev libspdlog-dev libfmt-dev libpcre2-dev libssl-dev
  libxxhash-dev librandom123-dev libedit-dev libspng-dev libjpeg62-turbo-dev libwebp-dev libgtest-dev librapidcheck-dev"
apt() {
  apt-get -q -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o Dir::State="$work/apt" -o Dir::State::status="$work/apt/status" \
    -o Dir::Cache="$work/apt" -o Dir::Log="$work/apt" -o APT::Sandbox::User= -o Debug::NoLocking=1 -o DPkg::Post-Invoke= "$@"
}
make_tree() {
  rm -rf "$tree" "$work/apt"
  mkdir -p "$tree" "$work/apt/lists/partial" "$work/apt/archives/partial"
  : >"$work/apt/status"
  apt update >"$work/apt.txt" 2>&1 || true # some of a machine's sources have no arm64
  # shellcheck disable=SC2086
  apt install -y --download-only --no-install-recommends $packages >>"$work/apt.txt" 2>&1 || {
    tail -n 5 "$work/apt.txt"
    skip "the arm64 libraries could not be fetched (above is what apt said last)"
  }
  for deb in "$work"/apt/archives/*.deb; do dpkg-deb --extract "$deb" "$tree"; done
  printf '%s' "$packages" >"$tree/.made-of"
  rm -rf "$work/apt"
}

began=$SECONDS
[ "$(cat "$tree/.made-of" 2>/dev/null)" = "$packages" ] || make_tree
printf 'the arm64 libraries: %s s\n' $((SECONDS - began))

began=$SECONDS
# What computes is compiled as it is for users; what stands around it, most of the sources, as fast as can be.
cmake -S "$source_dir" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DIBID_TESTS=ON -DIBID_EDGES_OPT=-O0 \
  -DCMAKE_TOOLCHAIN_FILE="$source_dir/cmake/arm64.cmake" -DIBID_ARM64_TREE="$tree" >"$work/configure.txt" 2>&1 || {
  tail -n 30 "$work/configure.txt"
  wrong "the configuration for arm64"
}
targets=arm64_suite
[ "$extent" != --all ] || targets+=" ibid"
# shellcheck disable=SC2086
ninja -C "$build" $targets >"$work/build.txt" 2>&1 || {
  tail -n 30 "$work/build.txt"
  wrong "the build for arm64"
}
printf 'built: %s s\n' $((SECONDS - began))

ctest --test-dir "$build" -R '^isa_symbols$' >"$work/symbols.txt" 2>&1 || wrong "isa_symbols; see $work/symbols.txt"

# on NAME PROCESSOR COMMAND...: under qemu, of a shell of its own; what it says is in WORK_DIR/NAME.txt.
on() {
  local name=$1 processor=$2
  shift 2
  "$qemu" -cpu "$processor" -L "$tree" "$@" >"$work/$name.txt" 2>&1 &
  # shellcheck disable=SC2064
  trap "kill $! 2>/dev/null" EXIT
  wait $! || {
    tail -n 30 "$work/$name.txt"
    wrong "$name on $processor; see $work/$name.txt"
  }
  trap - EXIT
}
# suite NAME PROCESSOR TABLES FILTER: TABLES are what it must find that it has, the best one last.
suite() {
  local began=$SECONDS
  IBID_EXPECT_ISAS=$3 on "$1" "$2" "$build/arm64_suite" --gtest_filter="$4"
  printf '%s: %s s; %s\n' "$1" $((SECONDS - began)) "$(grep -E 'tables:|PASSED' "$work/$1.txt" | paste -sd ' ')"
}
part() {  # of PARTS, on the processor that has all tables
  export GTEST_TOTAL_SHARDS=$2 GTEST_SHARD_INDEX=$(($1 - 1))
  suite "part_$1_of_$2" max "$all_tables" "$3"
}
program() {
  local began=$SECONDS
  on version max "$build/ibid" --version
  on selftest max "$build/ibid" selftest
  printf '%s, selftest: %s s; %s\n' "$(head -n 1 "$work/version.txt")" $((SECONDS - began)) "$(tail -n 1 "$work/selftest.txt")"
}

# What no product takes part in is the same for each of the tables: norms, attention, noise.
products='InstructionSets.*:*/Linear.*:LinearInputs.*:Bf16Dot.*:*/PinnedAnswers.*/llama'
# What takes minutes under the emulator is left to --all: other tests have the same arithmetic.
most='-Slow*:ByHand*:TinyModel*:*/TinyModel.*:MoreArchitectures/*:*/CodesOfKv.*:AttentionOfCodes.*:AttentionHeads.*'
most+=':AttentionParity.ALongDecode*:AttentionParity.BitsDoNot*:*/LinearPieces.*/IQ*:*/LinearPieces.*/TQ*'
if [ "$extent" = --all ]; then
  products='-Slow*:TinyModel*:*/TinyModel.*'
  most='*:-SlowTinyModels.*EveryArchitecture*:SlowBf16Dot.*'
fi
all_tables="baseline neon neon_dotprod neon_i8mm"
parts=8

trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
began=$SECONDS n_running=0
# at_once COMMAND...: beside others, one for each core.
at_once() {
  [ "$n_running" -lt "$(nproc)" ] || wait -n || exit 1
  n_running=$((n_running < $(nproc) ? n_running + 1 : n_running))
  "$@" &
}
at_once suite tables max "$all_tables" 'InstructionSets.*'
for ((i = 1; i <= parts; ++i)); do at_once part $i $parts "$most"; done
at_once suite cortex-a72 cortex-a72 "baseline neon" "$products"
at_once suite neoverse-n1 neoverse-n1 "baseline neon neon_dotprod" "$products"
[ "$extent" != --all ] || at_once program
for ((; n_running > 0; --n_running)); do wait -n || exit 1; done
printf 'the same bits on 64-bit ARM: %s s\n' $((SECONDS - began))
