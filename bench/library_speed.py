#!/usr/bin/env python3
"""What the Python package costs: many prompts at once beside `ibid bench`'s batched rate, and one call.

  bench/library_speed.py [MODEL] [--prompts 1000] [--streams 16] [--threads N]

In turns, three times; medians. Needs build/ibid and build/libibid.so.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
os.environ.setdefault("IBID_LIBRARY", str(ROOT / "build/libibid.so.1"))
sys.path.insert(0, str(ROOT / "python"))
import ibid  # noqa: E402

PROMPT_LEN, ANSWER_LEN = 8, 64


def bench(options):
    """Tokens a second of as many streams, each of a prompt and an answer of these lengths."""
    command = [ROOT / "build/ibid", "bench", "-m", options.model, "--streams", options.streams, "-p", PROMPT_LEN, "-n", ANSWER_LEN,
               "-r", 1, "-o", "json", *(["-t", options.threads] if options.threads else [])]
    rows = json.loads(subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True).stdout)
    return max(row["avg_ts"] for row in rows if row.get("n_gen"))


def offline(llm, options):
    prompts = [[3 + (i * 7 + j * 13) % 400 for j in range(PROMPT_LEN)] for i in range(options.prompts)]
    params = ibid.SamplingParams(temperature=0, max_tokens=ANSWER_LEN, ignore_eos=True)
    begin = time.monotonic()
    n = sum(len(output.outputs[0].token_ids) for output in llm.generate(prompts, params))
    return n / (time.monotonic() - begin)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="default")
    parser.add_argument("--prompts", type=int, default=1000)
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--threads", type=int)
    options = parser.parse_args()
    with ibid.LLM(options.model, ctx=1024, max_num_seqs=options.streams, threads=options.threads) as llm:
        rates = [(offline(llm, options), bench(options)) for _ in range(3)]
        ours, of_bench = (statistics.median(column) for column in zip(*rates))
        print(f"{options.prompts} prompts: {ours:.1f} tokens/s; ibid bench --streams {options.streams}: {of_bench:.1f}; ratio {ours / of_bench:.3f}")
        calls = []
        for _ in range(2000):
            begin = time.perf_counter()
            llm.engine.call("/version")
            calls.append(time.perf_counter() - begin)
        print(f"a call that computes nothing: {statistics.median(calls) * 1e6:.0f} us")


if __name__ == "__main__":
    main()
