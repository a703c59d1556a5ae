#!/usr/bin/env python3
"""What evicting keys and values costs in answers: bench/eviction_needle.py [--tokens N]

    ninja -C build ibid && bench/eviction_needle.py

A fact stands at one of ten places of a text of N tokens or so, and the question about it at its end, so that a window of queries sees
it. For each policy of `kv_eviction` and each share of the prompt that is kept: of the default model's answers at temperature 0, how
many name the fact.
"""
import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "conformance"))

FILLER = ("The boats left the harbour before dawn. ", "A cold wind came down from the hills. ", "Nobody in the market spoke of it. ",
          "Rain fell on the roofs until the evening. ", "The old bridge was closed for the winter. ")
WORDS = ("marmalade", "lantern", "walnut", "thunder", "velvet", "compass", "pepper", "falcon", "copper", "meadow")


def prompt(n_tokens, place, word):
    lines = [FILLER[i % len(FILLER)] for i in range(n_tokens // 9)]
    lines.insert(int(len(lines) * (place + 0.5) / len(WORDS)), f"The secret word of the castle is '{word}'. ")
    return "".join(lines) + "\nQuestion: what is the secret word of the castle? Answer: the secret word of the castle is '"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=2000)
    args = parser.parse_args()
    sys.argv = [sys.argv[0], str(ROOT / "build")]
    from harness import IBID, Server
    with Server([IBID, "serve", "default", "--port", 0, "--ctx", 2 * args.tokens]) as server:
        def right(eviction):
            n = 0
            for place, word in enumerate(WORDS):
                body = {"prompt": prompt(args.tokens, place, word), "max_tokens": 8, "temperature": 0, **eviction}
                n += word in server.post("/v1/completions", body)["choices"][0]["text"]
            return n
        print(f"| kept | {' | '.join(('snapkv', 'h2o', 'streaming'))} |\n|---|--:|--:|--:|\n| all | {right({})} of {len(WORDS)} | | |")
        for share in (0.5, 0.25, 0.12):
            row = [right({"kv_eviction": {"method": method, "keep_share": share}}) for method in ("snapkv", "h2o", "streaming")]
            print(f"| {share:.0%} | {' | '.join(f'{n} of {len(WORDS)}' for n in row)} |", flush=True)


if __name__ == "__main__":
    main()
