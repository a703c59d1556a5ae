#!/usr/bin/env python3
"""A second opinion: tiny random models of llama.cpp's own generator, run by llama.cpp and by us.

    test-llama-archs -o DIR        (a target of llama.cpp's own build, -DLLAMA_BUILD_TESTS=ON)
    pip install llama-cpp-python gguf numpy; ninja -C build log_probs
    python3 bench/compare_archs.py DIR/*.gguf

Both compute the log-probabilities after each of 100 random tokens, with keys and values in F32, we by the reference kernels.
Prints the normalised mean square error of each file (llama.cpp's own bound between its backends is 1e-4), or why a file is
not read; exit status 1 where one is above 1e-4.
"""
import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from compare_kl import log_softmax

ROOT = Path(__file__).resolve().parent.parent
MOST = 1e-4
# Keys that the saver writes for these families and llama.cpp does not read for them.
NORMALISE = ("llama", "qwen3moe", "qwen3next", "qwen35moe", "minimax-m2", "ernie4_5-moe", "hunyuan-moe", "lfm2moe")
SECTIONS = ("qwen35", "qwen35moe")  # of RoPE, by which llama.cpp takes others for models of pictures


def plain(source, target, left_out):
    """The same file without keys of value 0 and tensors of such names: the saver writes every key and every optional tensor that it
    knows, whether files of the family have it or not."""
    import gguf
    reader = gguf.GGUFReader(source)
    architecture = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(target, architecture)
    no_scaling = [name for name, field in reader.fields.items()
                  if name.endswith("rope.scaling.factor") and field.contents() in (0.0, 1.0)]
    for name, field in reader.fields.items():
        if (name.endswith("expert_weights_norm") and architecture in NORMALISE or
                name.endswith("dimension_sections") and architecture not in SECTIONS):
            continue
        if name.startswith("GGUF.") or name == "general.architecture" or (no_scaling and ".rope.scaling." in name):
            continue
        kind, value = field.types[0], field.contents()
        is_number = kind not in (gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.STRING, gguf.GGUFValueType.BOOL)
        if (is_number and value == 0) or (kind == gguf.GGUFValueType.ARRAY and len(value) == 0):
            continue
        writer.add_key_value(name, value, kind, sub_type=field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)
    for tensor in reader.tensors:
        if re.sub(r"^blk\.\d+\.", "", tensor.name) in left_out or tensor.name.endswith(".scale"):
            continue
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


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
    """The error, or why there is none; and the names of tensors that were left out, as we do not use them."""
    file, left_out = work / "model.gguf", {"rope_freqs.weight"}
    for _ in range(60):
        plain(path, file, left_out)
        np.zeros(2, np.int32).tofile(work / "tokens.i32")
        done = ours(args, file, work)
        unused = re.search(r'has a tensor "(?:blk\.\d+\.)?([^"]+)" that ibid', done)
        if not unused:
            break
        left_out.add(unused[1])
    if done:
        return done, left_out
    try:
        tokens, theirs = peer(file, args.tokens)
    except Exception as e:  # of any kind: the file lacks what it needs
        return f"llama.cpp: {e}", left_out
    tokens.tofile(work / "tokens.i32")
    ours(args, file, work)
    mine = np.fromfile(work / "out.f32", dtype=np.float32).reshape(theirs.shape).astype(np.float64)
    return float(((mine - theirs) ** 2).sum() / ((theirs - theirs.mean()) ** 2).sum()), left_out


def ours(args, file, work):
    """Fills out.f32; what was wrong, else nothing."""
    line = [args.program, file, work / "tokens.i32", work / "out.f32", "--kernels", "reference", "--kv-dtype", "f32"]
    done = subprocess.run([str(x) for x in line], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    return done.stderr.strip() if done.returncode else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--program", type=Path, default=ROOT / "build" / "log_probs")
    args = parser.parse_args()
    far = 0
    for path in args.files:
        with tempfile.TemporaryDirectory() as temporary:
            result, left_out = error(args, path, Path(temporary))
        ok = isinstance(result, float) and result <= MOST
        far += not ok
        print(f"{path.stem:24} {'ok ' if ok else 'FAR'} "
              f"{result if isinstance(result, str) else format(result, '.1e')}, without {', '.join(sorted(left_out))}", flush=True)
    sys.exit(1 if far else 0)


if __name__ == "__main__":
    main()
