#!/usr/bin/env bash
# What reads bytes from outside, files and sockets, under the address and undefined-behaviour sanitizers:
# sanitized.sh SOURCE_DIR
set -euo pipefail
cd "$1"
targets="hostile_suite conformance_suite faults_suite server_test text_test format_test cache_test spec_test gguf_fuzz_replay grammar_fuzz_replay
  safetensors_fuzz_replay template_fuzz_replay tokenizer_json_fuzz_replay tokenizer_encode_fuzz_replay
  answer_parser_fuzz_replay rules_fuzz_replay"
cmake --preset asan >/dev/null
# shellcheck disable=SC2086
ninja -C build/asan $targets >build/asan/build.txt 2>&1 || { tail -n 30 build/asan/build.txt; exit 1; }
cd build/asan
ctest --output-on-failure -L quick -R '^(hostile_suite|conformance_suite|faults_suite|server_test|text_test|format_test|cache_test|spec_test|.*_fuzz_replay)$'
