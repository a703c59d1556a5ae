#!/usr/bin/env python3
"""Does `ibid convert` write what the field's converter writes? Each tiny model of tests/golden, converted by both.

    pip install -r tools/requirements-golden.txt; pip download --no-binary :all: --no-deps llama-cpp-python; tar xzf ...
    ninja -C build ibid && python3 bench/compare_own_converter.py .../vendor/llama.cpp [NAME ...]

Both write F32. Prints for each model how many tensors are equal bit for bit, and what differs: tensors (with the largest
difference), and keys of the architecture that one of the two files has alone or with another value. Exit status 1 where a
tensor differs by more than a rounding (1e-6 of its largest value).
"""
import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from compare_converted import GOLDEN, ROOT, convert


def values(reader, arch):
    out = {}
    for name, field in reader.fields.items():
        if name.startswith(arch + "."):
            value = field.contents()
            out[name] = [float(x) for x in value] if isinstance(value, list) else float(value) if not isinstance(value, str) else value
    return out


def close(a, b):
    return a == b if isinstance(a, str) or isinstance(b, str) or np.shape(a) != np.shape(b) else bool(np.allclose(a, b, rtol=1e-6))


def compare(args, name, work):
    theirs_file, own_file = work / "theirs.gguf", work / "own.gguf"
    try:
        convert(args.llama_cpp, GOLDEN / name, theirs_file)
    except Exception as e:  # of any converter
        return f"not converted by llama.cpp: {type(e).__name__}: {e}", False
    done = subprocess.run([args.program, "convert", GOLDEN / name, "-o", own_file, "--type", "f32"], capture_output=True, text=True)
    if done.returncode != 0:
        return done.stderr.strip(), True
    import gguf  # llama.cpp's own, which convert() puts first
    theirs, own = gguf.GGUFReader(theirs_file), gguf.GGUFReader(own_file)
    a, b = ({t.name: t for t in r.tensors} for r in (theirs, own))
    notes, far, equal = [], False, 0
    for tensor in sorted(set(a) | set(b)):
        if tensor not in a or tensor not in b:
            notes.append(f"{tensor} only {'ours' if tensor in b else 'theirs'}")
            continue
        x, y = np.asarray(a[tensor].data, dtype=np.float32).ravel(), np.asarray(b[tensor].data, dtype=np.float32).ravel()
        if x.shape == y.shape and np.array_equal(x.view(np.uint32), y.view(np.uint32)) and list(a[tensor].shape) == list(b[tensor].shape):
            equal += 1
            continue
        distance = np.abs(x - y).max() / np.abs(x).max() if x.shape == y.shape else np.inf
        far |= bool(distance > 1e-6)
        notes.append(f"{tensor} differs by {distance:.1e} {list(a[tensor].shape)} {list(b[tensor].shape)}")
    arch, own_arch = (bytes(r.fields["general.architecture"].parts[-1]).decode() for r in (theirs, own))
    if arch != own_arch:
        return f"architecture {arch}, ours {own_arch}", True
    k, o = values(theirs, arch), values(own, arch)
    notes += [f"{key}: theirs {k.get(key)} ours {o.get(key)}" for key in sorted(set(k) | set(o))
              if key not in k or key not in o or not close(k[key], o[key])]
    return f"{equal} tensors equal" + "".join("\n    " + note for note in notes), far


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("llama_cpp", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--program", type=Path, default=ROOT / "build" / "ibid")
    args = parser.parse_args()
    any_far = False
    for name in args.names or sorted(f.parent.name for f in GOLDEN.glob("*/config.json")):
        with tempfile.TemporaryDirectory() as temporary:
            found, far = compare(args, name, Path(temporary))
        any_far |= far
        print(f"{name:20} {'FAR ' if far else ''}{found}", flush=True)
    sys.exit(1 if any_far else 0)


if __name__ == "__main__":
    main()
