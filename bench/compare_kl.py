#!/usr/bin/env python3
"""Are our numbers right? The default model over one context of a text, beside llama.cpp.

    pip install llama-cpp-python gguf numpy      (llama.cpp is built from its source package: five minutes)
    ninja -C build log_probs && python3 bench/compare_kl.py --text book.txt

Two files: the model as it is (Q4_1), and one whose weights are the dequantised ones rounded to F16. Two comparisons:
 (a) our reference kernels (double precision) against llama.cpp, both on the F16 file, keys and values in F32:
     mean KL at most 1e-4, the same most likely token in at least 99 % of positions.
 (b) how far quantised arithmetic strays from exact arithmetic on the F16 file: our fast kernels on the Q4_1 file against
     our reference on the F16 file, beside llama.cpp's own distance between the two files, keys and values in F16:
     our mean KL at most 1.1 times llama.cpp's, the same most likely token at most 0.5 points less often.
KL(p || q) = sum p (ln p - ln q), mean over positions, p the F16 file's distribution ((a): ours).
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
MODEL_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"


def default_model():
    if "IBID_MODEL" in os.environ:
        return Path(os.environ["IBID_MODEL"])
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "ibid" / "models"
    return next(iter(sorted(cache.rglob(MODEL_NAME))), cache / MODEL_NAME)


def write_f16(source, target):
    """The same model with every matrix as F16, rounded from its dequantised values."""
    import gguf
    reader = gguf.GGUFReader(source)
    architecture = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(target, architecture)
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type"):
            continue
        kind = field.types[0]
        sub = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), kind, sub_type=sub)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        values = values.reshape([int(n) for n in reversed(tensor.shape)])
        writer.add_tensor(tensor.name, values.astype(np.float32 if values.ndim == 1 else np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def log_softmax(rows):
    rows = rows.astype(np.float64)
    rows -= rows.max(axis=-1, keepdims=True)
    return rows - np.log(np.exp(rows).sum(axis=-1, keepdims=True))


def peer(path, tokens, kv_type, threads, out):
    """llama.cpp's log-probabilities; its KV type by ggml's number (0: F32, 1: F16)."""
    import llama_cpp
    llm = llama_cpp.Llama(str(path), n_ctx=len(tokens), n_batch=512, n_ubatch=512, logits_all=True, n_threads=threads,
                          n_threads_batch=threads, type_k=kv_type, type_v=kv_type, flash_attn=False, verbose=False)
    llm.eval(tokens)
    scores = llm.scores
    result = np.memmap(out, dtype=np.float32, mode="w+", shape=(len(tokens), scores.shape[1]))
    for i in range(len(tokens)):
        result[i] = log_softmax(scores[i])
    llm.close()
    return result


def ours(program, path, tokens_file, out, n_tokens, *options):
    line = [program, path, tokens_file, out, *options]
    subprocess.run([str(x) for x in line], check=True, stdout=subprocess.DEVNULL)
    return np.memmap(out, dtype=np.float32, mode="r").reshape(n_tokens, -1)


def compare(p, q):
    kl, same = np.empty(len(p)), 0
    for i in range(len(p)):
        a, b = log_softmax(p[i]), log_softmax(q[i])  # again: F32 rows sum to 1 only to some 1e-6
        kl[i] = np.sum(np.exp(a) * (a - b))
        same += int(np.argmax(a) == np.argmax(b))
    return {"mean_kl": float(kl.mean()), "max_kl": float(kl.max()), "same_argmax": same / len(p)}


def perplexity(p, tokens):
    return float(np.exp(-np.mean([p[i][tokens[i + 1]] for i in range(len(tokens) - 1)], dtype=np.float64)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=default_model())
    parser.add_argument("--text", type=Path, default=ROOT.parent / "shared" / "data" / "text" / "botchan.txt")
    parser.add_argument("--tokens", type=int, default=2000)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--program", type=Path, default=ROOT / "build" / "log_probs")
    parser.add_argument("--work", type=Path, help="where files of some 2 GB go; default: a temporary folder")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    for path, hint in ((args.model, "run ./quickstart once, or set IBID_MODEL"), (args.text, "give --text"),
                       (args.program, "ninja -C build log_probs")):
        if not path.exists():
            sys.exit(f"compare_kl: {path} is not there: {hint}")
    try:
        import gguf, llama_cpp
    except ImportError as e:
        sys.exit(f"compare_kl: {e}: pip install llama-cpp-python gguf numpy")
    with tempfile.TemporaryDirectory() as temporary:
        report = run(args, args.work or Path(temporary), llama_cpp.__version__)
    if args.json:
        args.json.write_text(json.dumps(report, indent=1) + "\n")
    sys.exit(0 if report["pass"] else 1)


def run(args, work, peer_version):
    import llama_cpp
    work.mkdir(parents=True, exist_ok=True)
    f16 = work / "f16.gguf"
    if not f16.exists():
        write_f16(args.model, f16)
    vocabulary = llama_cpp.Llama(str(args.model), vocab_only=True, verbose=False)
    tokens = vocabulary.tokenize(args.text.read_bytes(), add_bos=False, special=False)[:args.tokens]
    vocabulary.close()
    tokens_file = work / "tokens.i32"
    np.array(tokens, dtype=np.int32).tofile(tokens_file)
    n, threads = len(tokens), ["--threads", args.threads]

    reference = ours(args.program, f16, tokens_file, work / "reference.f32", n, "--kernels", "reference", "--kv-dtype", "f32",
                     *threads)
    exact = compare(reference, peer(f16, tokens, 0, args.threads, work / "peer_f16_f32kv.f32"))
    fast = ours(args.program, args.model, tokens_file, work / "fast.f32", n, "--kv-dtype", "f16", *threads)
    mine = compare(reference, fast)
    peer_f16 = peer(f16, tokens, 1, args.threads, work / "peer_f16.f32")
    peer_q4 = peer(args.model, tokens, 1, args.threads, work / "peer_q4.f32")
    theirs = compare(peer_f16, peer_q4)
    fast_f16 = compare(reference, ours(args.program, f16, tokens_file, work / "fast_f16.f32", n, "--kv-dtype", "f16", *threads))

    report = {"tokens": n, "llama_cpp_python": peer_version, "a": exact, "b": mine, "b_llama_cpp": theirs,
              "fast_on_f16": fast_f16,
              "perplexity": {"ours, F16 file, reference": perplexity(reference, tokens),
                             "ours, Q4_1 file, fast": perplexity(fast, tokens),
                             "llama.cpp, F16 file": perplexity(peer_f16, tokens),
                             "llama.cpp, Q4_1 file": perplexity(peer_q4, tokens)}}
    report["pass"] = (exact["mean_kl"] <= 1e-4 and exact["same_argmax"] >= 0.99 and
                      mine["mean_kl"] <= 1.1 * theirs["mean_kl"] and
                      mine["same_argmax"] >= theirs["same_argmax"] - 0.005)
    show = lambda name, c: print(f"{name:58} mean KL {c['mean_kl']:.2e}  max {c['max_kl']:.2e}  "
                                 f"same argmax {100 * c['same_argmax']:.2f} %")
    show("(a) our reference | llama.cpp, F16 file, F32 KV", exact)
    show("(b) our reference on F16 | our fast kernels on Q4_1", mine)
    show("    llama.cpp on F16 | llama.cpp on Q4_1", theirs)
    show("    our reference | our fast kernels, F16 file", fast_f16)
    for name, value in report["perplexity"].items():
        print(f"perplexity {value:8.4f}  {name}")
    print("pass" if report["pass"] else "FAIL")
    return report


if __name__ == "__main__":
    main()
