#!/usr/bin/env python3
"""A second opinion: tiny random models of llama.cpp's own generator, run by llama.cpp and by us.

    test-llama-archs -o DIR        (a target of llama.cpp's own build, -DLLAMA_BUILD_TESTS=ON)
    pip install llama-cpp-python numpy; ninja -C build log_probs
    python3 bench/compare_archs.py DIR/*.gguf

Both compute the log-probabilities after each of 100 random tokens, with keys and values in F32, we by the reference kernels.
Prints the normalised mean square error of each file (llama.cpp's own bound between its backends is 1e-4), or why a file is
not read; exit status 1 where one is above 1e-4.
"""
import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
MOST = 1e-4


def log_softmax(rows):
    rows = rows.astype(np.float64)
    rows -= rows.max(axis=-1, keepdims=True)
    return rows - np.log(np.exp(rows).sum(axis=-1, keepdims=True))


def peer(path, n_tokens):
    """Random tokens, and llama.cpp's log-probabilities after each."""
    import llama_cpp
    llm = llama_cpp.Llama(str(path), n_ctx=n_tokens, n_batch=n_tokens, n_ubatch=n_tokens, logits_all=True, type_k=0, type_v=0,
                          flash_attn=False, verbose=False)
    tokens = np.random.default_rng(1).integers(0, llm.n_vocab(), n_tokens).astype(np.int32)
    llm.eval(tokens.tolist())
    out = log_softmax(np.array(llm.scores[:n_tokens]))
    llm.close()
    return tokens, out


def error(args, path, work):
    tokens, theirs = peer(path, args.tokens)
    tokens.tofile(work / "tokens.i32")
    line = [args.program, path, work / "tokens.i32", work / "out.f32", "--kernels", "reference", "--kv-dtype", "f32"]
    done = subprocess.run([str(x) for x in line], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        return done.stderr.strip()
    ours = np.fromfile(work / "out.f32", dtype=np.float32).reshape(theirs.shape).astype(np.float64)
    return float(((ours - theirs) ** 2).sum() / ((theirs - theirs.mean()) ** 2).sum())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--program", type=Path, default=ROOT / "build" / "log_probs")
    args = parser.parse_args()
    far = 0
    for path in args.files:
        with tempfile.TemporaryDirectory() as temporary:
            result = error(args, path, Path(temporary))
        ok = isinstance(result, float) and result <= MOST
        far += not ok
        print(f"{path.stem:24} {'ok ' if ok else 'FAR'} {result if isinstance(result, str) else format(result, '.1e')}", flush=True)
    sys.exit(1 if far else 0)


if __name__ == "__main__":
    main()
