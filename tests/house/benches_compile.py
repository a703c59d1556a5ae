#!/usr/bin/env python3
"""Whether everything in bench/ still compiles: no build makes it unasked, and an interface that changed broke it unseen.

    benches_compile.py SOURCE_DIR BUILD_DIR

Takes the commands of BUILD_DIR/compile_commands.json and generates no code, which is most of the time.
"""
import concurrent.futures
import json
import os
import shlex
import subprocess
import sys


def check(entry: dict) -> str:
    """What the compiler has to say of a file: nothing if all is well."""
    command = shlex.split(entry["command"])
    output = command.index("-o")
    del command[output : output + 2]
    command[command.index("-c")] = "-fsyntax-only"
    result = subprocess.run(command, cwd=entry["directory"], capture_output=True, text=True)
    return "" if result.returncode == 0 else result.stderr[-4000:] or f"the compiler ended with {result.returncode}"


def main() -> int:
    source_dir, build_dir = (os.path.realpath(path) for path in sys.argv[1:3])
    bench = os.path.join(source_dir, "bench", "")
    with open(os.path.join(build_dir, "compile_commands.json")) as file:
        entries = [entry for entry in json.load(file) if os.path.realpath(entry["file"]).startswith(bench)]
    names = {os.path.relpath(entry["file"], source_dir) for entry in entries}
    if "bench/linear_bench.cc" not in names:
        print(f"FAIL: {build_dir}/compile_commands.json knows no benches, but {sorted(names)}")
        return 1
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        wrong = [said for said in pool.map(check, entries) if said]
    for said in wrong:
        print(said)
    print(f"{len(names) - len(wrong)} of {len(names)} files compile")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
