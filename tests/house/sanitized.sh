#!/usr/bin/env bash
# What reads bytes from outside under the address and undefined-behaviour sanitizers, around the vector kernels of the build
# that is there, as it was last built, if one is.
#
#   sanitized.sh SOURCE_DIR [BUILD_DIR]       readers of files, templates, grammars and texts
#   sanitized.sh SOURCE_DIR BUILD_DIR --all   also the server and the C library with the engine below them, which take half an
#                                             hour to build on two cores; tests/house/memcheck.sh needs no build for them
set -euo pipefail
cd "$1"
kernels=$(realpath -m "${2:-build}")
[ -e "$kernels/CMakeFiles/ibid_kernels.dir/src/kernels/cpu/avx2/linear.cc.o" ] || kernels=
suites=(hostile_suite text_test format_test gguf_fuzz_replay grammar_fuzz_replay safetensors_fuzz_replay template_fuzz_replay
  tokenizer_json_fuzz_replay tokenizer_encode_fuzz_replay answer_parser_fuzz_replay rules_fuzz_replay
  image_test picture_fuzz_replay patch_rule_fuzz_replay)
[ "${3:-}" != --all ] || suites+=(server_test conformance_suite faults_suite capi_test cache_test spec_test options_fuzz_replay)
cmake --preset asan -DIBID_VECTOR_KERNELS="$kernels" >/dev/null
ninja -C build/asan "${suites[@]}" >build/asan/build.txt 2>&1 || { tail -n 30 build/asan/build.txt; exit 1; }
cd build/asan
ctest -j "$(nproc)" --output-on-failure --no-tests=error -L quick -R "^($(IFS='|'; echo "${suites[*]}"))\$"
