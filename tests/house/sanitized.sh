#!/usr/bin/env bash
# What reads bytes from outside, files and sockets, under the address and undefined-behaviour sanitizers, around the
# vector kernels of the build that is there, as it was last built, if one is: sanitized.sh SOURCE_DIR [BUILD_DIR]
set -euo pipefail
cd "$1"
kernels=$(realpath -m "${2:-build}")
[ -e "$kernels/CMakeFiles/ibid_kernels.dir/src/kernels/cpu/avx2/linear.cc.o" ] || kernels=
targets="hostile_suite conformance_suite faults_suite server_test text_test format_test cache_test gguf_fuzz_replay grammar_fuzz_replay
  safetensors_fuzz_replay template_fuzz_replay tokenizer_json_fuzz_replay tokenizer_encode_fuzz_replay
  answer_parser_fuzz_replay rules_fuzz_replay"
cmake --preset asan -DIBID_VECTOR_KERNELS="$kernels" >/dev/null
# shellcheck disable=SC2086
ninja -C build/asan $targets >build/asan/build.txt 2>&1 || { tail -n 30 build/asan/build.txt; exit 1; }
cd build/asan
ctest -j "$(nproc)" --output-on-failure -L quick -R '^(hostile_suite|conformance_suite|faults_suite|server_test|text_test|format_test|cache_test|.*_fuzz_replay)$'
