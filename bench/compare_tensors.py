#!/usr/bin/env python3
"""Does `ibid convert` write what the field's converter writes? The same folders by both, tensor by tensor, in F32.

    pip install -r tools/requirements-golden.txt; pip download --no-binary :all: --no-deps llama-cpp-python; tar xzf ...
    ninja -C build ibid && python3 bench/compare_tensors.py .../vendor/llama.cpp FOLDER ...

Each folder (of tests/golden and tests/golden/quantised by name, or a path) becomes an F32 GGUF by convert_hf_to_gguf's
classes and by `ibid convert --type f32`. Every tensor of either file must be in the other, of the same shape and with the
same bits. Prints a line for each folder; exit status 1 where one differs. --digests FILE appends a line for each folder
that does not: its name, and the SHA-256 of the tensors in the order of their names, of each "NAME DIM DIM ..." outermost
first, a line feed and its bytes. tests/golden/converted.txt has these, and tests/golden/convert_test.cc keeps to them.
"""
import argparse
import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from compare_converted import GOLDEN, ROOT, convert


def tensors_of(path):
    import gguf
    return {t.name: (tuple(map(int, t.shape)), np.array(t.data)) for t in gguf.GGUFReader(path).tensors}


def compare(args, folder):
    with tempfile.TemporaryDirectory() as temporary:
        theirs, ours = Path(temporary) / "theirs.gguf", Path(temporary) / "ours.gguf"
        try:
            convert(args.llama_cpp, folder, theirs, eager=True)
        except Exception as e:  # of any converter
            return f"not converted by theirs: {type(e).__name__}: {e}"
        done = subprocess.run([args.program, "convert", folder, "-o", ours, "--type", "f32"], capture_output=True, text=True)
        if done.returncode != 0:
            return f"not converted by ours: {done.stderr.strip()}"
        a, b = tensors_of(theirs), tensors_of(ours)
    if a.keys() != b.keys():
        return f"theirs alone: {sorted(a.keys() - b.keys())}, ours alone: {sorted(b.keys() - a.keys())}"
    for name, (shape, values) in a.items():
        if shape != b[name][0]:
            return f"{name} has the shape {b[name][0]}, not {shape}"
        n = int((values.view(np.uint32).ravel() != b[name][1].view(np.uint32).ravel()).sum())
        if n > 0:
            return f"{name}: {n} of {values.size} values differ"
    if args.digests:
        digest = hashlib.sha256()
        for name, (shape, values) in sorted(a.items()):
            digest.update(" ".join([name, *map(str, reversed(shape))]).encode() + b"\n" + values.tobytes())
        with open(args.digests, "a") as out:
            out.write(f"{folder.relative_to(GOLDEN)} {digest.hexdigest()}\n")
    return len(a)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("llama_cpp", type=Path)
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--digests", type=Path)
    parser.add_argument("--program", type=Path, default=ROOT / "build" / "ibid")
    args = parser.parse_args()
    differ = 0
    for name in args.folders:
        known = [p for p in (Path(name), GOLDEN / name, GOLDEN / "quantised" / name) if (p / "config.json").exists()]
        result = compare(args, known[0]) if known else "is no folder of a model"
        differ += isinstance(result, str)
        print(f"{name:20} {'OTHER  ' + result if isinstance(result, str) else f'ok      {result} tensors'}", flush=True)
    sys.exit(1 if differ else 0)


if __name__ == "__main__":
    main()
