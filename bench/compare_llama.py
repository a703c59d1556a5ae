#!/usr/bin/env python3
"""ibid beside llama.cpp, in one run: bench/compare_llama.py [MODEL.gguf ...] [-p 512 -n 128 -t 2 -r 5] [--json FILE]

Without MODEL: the default model as it is and as Q4_0, Q8_0 and F16 (`ibid quantize`). Prefill of -p tokens and
decode of -n tokens in one stream, engines in turn (A B A B ...), each in a process of its own, at least five repeats;
medians, spread (largest over smallest) and the ratio of medians. Ours is `build/ibid bench`, the peer the low-level API
of the Python package llama-cpp-python, which should be built natively from its source package:
    CMAKE_ARGS=-DGGML_NATIVE=ON pip install --no-binary llama-cpp-python llama-cpp-python
Exit status 1 where a ratio is below --at-least (default 0.8).
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def cache_dir() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ibid" / "models"


def default_model() -> Path:
    return Path(os.environ.get("IBID_MODEL") or cache_dir() / "SmolLM2-135M-Instruct.Q4_1.gguf")


def variant(ibid: str, model: Path, dtype: str) -> Path:
    """The path of the model in `dtype`, made if it is not there."""
    out = cache_dir() / "variants" / f"{model.name.removesuffix('.Q4_1.gguf')}.{dtype}.gguf"
    if not out.exists():
        out.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([ibid, "quantize", model, out, "--type", dtype], check=True)
    return out


def run_peer(model: str, n_prompt: int, n_gen: int, n_threads: int) -> dict:
    """One repeat of the peer in this process: tokens per second of prefill and of decode."""
    import llama_cpp as llama

    llama.llama_backend_init()
    loaded = llama.llama_model_load_from_file(model.encode(), llama.llama_model_default_params())
    if not loaded:
        raise SystemExit(f"llama.cpp cannot load {model}")
    params = llama.llama_context_default_params()
    params.n_ctx = n_prompt + n_gen + 64
    params.n_batch = params.n_ubatch = max(n_prompt, 1)
    params.n_threads = params.n_threads_batch = n_threads
    context = llama.llama_init_from_model(loaded, params)
    n_vocab = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(loaded))
    tokens = (llama.llama_token * max(n_prompt, n_gen))(*[(1000 + 37 * i) % n_vocab for i in range(max(n_prompt, n_gen))])

    def forget() -> None:
        llama.llama_memory_clear(llama.llama_get_memory(context), True)

    def decode(first: int, n: int) -> None:
        part = (llama.llama_token * n)(*tokens[first : first + n])
        if llama.llama_decode(context, llama.llama_batch_get_one(part, n)) != 0:
            raise SystemExit("llama_decode failed")
        llama.llama_synchronize(context)

    decode(0, n_prompt)  # touch the weights once; ours does the same
    forget()
    begin = time.perf_counter()
    decode(0, n_prompt)
    prefill = n_prompt / (time.perf_counter() - begin)
    forget()
    decode(0, 1)
    forget()
    begin = time.perf_counter()
    for i in range(n_gen):
        decode(i, 1)
    return {"prefill": prefill, "decode": n_gen / (time.perf_counter() - begin)}


def peer(model: Path, args: argparse.Namespace) -> dict:
    command = [sys.executable, __file__, "--peer-run", str(model), "-p", str(args.p), "-n", str(args.n), "-t", str(args.t)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout)


def ours(model: Path, args: argparse.Namespace) -> dict:
    command = [args.ibid, "bench", str(model), "-p", str(args.p), "-n", str(args.n), "-t", str(args.t), "-r", "1", "-o", "json"]
    rows = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout)
    return {
        "prefill": next(r["avg_ts"] for r in rows if r["n_prompt"] == args.p and r["n_gen"] == 0),
        "decode": next(r["avg_ts"] for r in rows if r["n_prompt"] == 0 and r["n_gen"] == args.n),
    }


def compare(model: Path, args: argparse.Namespace) -> list[dict]:
    samples = {"ours": [], "peer": []}
    for repeat in range(args.r):
        for name, run in (("ours", ours), ("peer", peer)):
            samples[name].append(run(model, args))
        print(f"{model.name}: repeat {repeat + 1} of {args.r}", file=sys.stderr)
    rows = []
    for test in ("prefill", "decode"):
        row = {"model": model.name, "test": f"{test} {args.p if test == 'prefill' else args.n}", "n_threads": args.t}
        for name in ("ours", "peer"):
            values = [s[test] for s in samples[name]]
            row[name] = statistics.median(values)
            row[f"{name}_spread"] = max(values) / min(values)
            row[f"{name}_samples"] = values
        row["ratio"] = row["ours"] / row["peer"]
        rows.append(row)
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", type=Path, metavar="MODEL")
    parser.add_argument("-p", type=int, default=512, help="tokens of the prompt")
    parser.add_argument("-n", type=int, default=128, help="tokens generated")
    parser.add_argument("-t", type=int, default=2, help="threads")
    parser.add_argument("-r", type=int, default=5, help="repeats")
    parser.add_argument("--ibid", default=str(ROOT / "build" / "ibid"), help="our binary")
    parser.add_argument("--json", type=Path, help="write the rows, every sample included, to this file")
    parser.add_argument("--at-least", type=float, default=0.8, help="the smallest ratio that passes")
    parser.add_argument("--peer-run", metavar="MODEL", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.peer_run:
        print(json.dumps(run_peer(args.peer_run, args.p, args.n, args.t)))
        return 0
    try:
        import llama_cpp  # noqa: F401
    except ImportError:
        print("llama-cpp-python is not installed; the first lines of this file say how", file=sys.stderr)
        return 2
    models = args.models
    if not models:
        if not default_model().exists():
            print(f"{default_model()} is not there; run ./quickstart once or set IBID_MODEL", file=sys.stderr)
            return 2
        models = [default_model()] + [variant(args.ibid, default_model(), d) for d in ("Q4_0", "Q8_0", "F16")]
    print(f"{'model':44} {'test':12} {'ours t/s':>9} {'llama.cpp':>9} {'ratio':>6}  spread of ours, peer")
    rows = []
    for model in models:
        for r in compare(model, args):
            rows.append(r)
            print(f"{r['model']:44} {r['test']:12} {r['ours']:9.1f} {r['peer']:9.1f} {r['ratio']:5.2f}x"
                  f"  {r['ours_spread']:.2f} {r['peer_spread']:.2f}", flush=True)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0 if all(r["ratio"] >= args.at_least for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
