#!/usr/bin/env bash
# The same bits on 64-bit ARM: cross-compiles the tests that are held to tests/pinned_bits.txt and runs them under
# qemu-user, once for each NEON table as the best one of its processor.
#
#   arm64.sh SOURCE_DIR WORK_DIR          parity rows, answers of tiny models, ArithmeticVersion: some minutes
#   arm64.sh SOURCE_DIR WORK_DIR --all    also slow ones: 72 requests of each architecture under ten schedules
#
# The arm64 libraries are unpacked, not installed, into WORK_DIR/tree, with lists of packages of their own: nothing of
# this machine's own system changes, and no root is needed. Ends with 77 and a sentence where that cannot be done.
set -euo pipefail
source_dir=$(cd "$1" && pwd)
mkdir -p "$2"
work=$(cd "$2" && pwd)
extent=${3:-}
tree=$work/tree
build=$work/build

skip() {
  printf 'skipped arm64: %s\n' "$1"
  exit 77
}
wrong() {
  printf 'FAIL: %s\n' "$1" >&2
  exit 1
}

qemu=$(command -v qemu-aarch64-static || command -v qemu-aarch64) ||
  skip "there is no qemu for 64-bit ARM (apt-get install qemu-user-static)"
command -v aarch64-linux-gnu-g++ >/dev/null || skip "there is no cross compiler (apt-get install g++-aarch64-linux-gnu)"
suite=$(. /etc/os-release && printf '%s' "${ID:-}-${VERSION_CODENAME:-}")
[ "$suite" = debian-bookworm ] || skip "this is no Debian 12, so there is no mirror of its arm64 packages"

# An apt of our own over this machine's sources: an empty system of another architecture.
packages="libboost1.81-dev libboost-json1.81-dev libcli11-dev libspdlog-dev libfmt-dev libpcre2-dev libssl-dev
  libxxhash-dev librandom123-dev libedit-dev libgtest-dev librapidcheck-dev"
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
cmake -S "$source_dir" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DIBID_TESTS=ON \
  -DCMAKE_TOOLCHAIN_FILE="$source_dir/cmake/arm64.cmake" -DIBID_ARM64_TREE="$tree" >"$work/configure.txt" 2>&1 || {
  tail -n 30 "$work/configure.txt"
  wrong "the configuration for arm64"
}
ninja -C "$build" arm64_suite >"$work/build.txt" 2>&1 || {
  tail -n 30 "$work/build.txt"
  wrong "the build for arm64"
}
printf 'built: %s s\n' $((SECONDS - began))

ctest --test-dir "$build" -R '^isa_symbols$' >"$work/symbols.txt" 2>&1 || wrong "isa_symbols; see $work/symbols.txt"

trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
# on PROCESSOR TABLES FILTER: TABLES are what it must find that it has, the best one last.
on() {
  local began=$SECONDS
  IBID_EXPECT_ISAS="$2" "$qemu" -cpu "$1" -L "$tree" "$build/arm64_suite" --gtest_brief=1 --gtest_filter="$3" >"$work/$1.txt" 2>&1 || {
    tail -n 30 "$work/$1.txt"
    wrong "$1; see $work/$1.txt"
  }
  printf '%s: %s; %s s; %s\n' "$1" "$(grep tables: "$work/$1.txt")" $((SECONDS - began)) "$(grep PASSED "$work/$1.txt")"
}
# Norms, attention, noise and the pinned answers need no more than one of them: what is no product is the same on all three.
products='InstructionSets.*:*/Linear.*:LinearInputs.*:Bf16Dot.*'
most='-Slow*:TinyModel*:*/TinyModel.*:CudaSeam.*:AttentionParity.BitsDoNot*:AttentionParity.ALongDecode*:*/LinearPieces.Summed*'
if [ "$extent" = --all ]; then
  products='-Slow*:TinyModel*:*/TinyModel.*:CudaSeam.*'
  most='*:-SlowTinyModels.*EveryArchitecture*:SlowBf16Dot.*:CudaSeam.*'
fi
(
  on cortex-a72 "baseline neon" "$products"
  on neoverse-n1 "baseline neon neon_dotprod" "$products"
) &
on max "baseline neon neon_dotprod neon_i8mm" "$most"
wait $! || exit 1
[ "$extent" = --all ] || on max "baseline neon neon_dotprod neon_i8mm" 'InstructionSets.*:TinyModels.OfEveryShapeSayWhatIsPinned'
printf 'the same bits on 64-bit ARM\n'
