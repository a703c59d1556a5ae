#!/usr/bin/env bash
# The server, the C library and the cache under valgrind, as they are built: what sanitizers would need a build of half an
# hour for. memcheck.sh SOURCE_DIR BUILD_DIR
set -euo pipefail
cd "$1"
if ! command -v valgrind >/dev/null; then
  [ "${IBID_CI:-${CI:-}}" != true ] || { printf 'FAIL: memcheck may not be skipped here, and there is no valgrind\n' >&2; exit 1; }
  printf 'skipped memcheck: there is no valgrind\n'
  exit 77
fi
for suite in cache_test capi_test server_test; do
  # Forked children and what is held at the end are not asked for; pages are compared with tables elsewhere.
  valgrind -q --error-exitcode=9 --leak-check=no "$2/$suite" --gtest_brief=1 --gtest_filter='-Slow*:ByHand*:ApiDocs*'
done
