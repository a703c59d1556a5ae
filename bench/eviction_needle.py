#!/usr/bin/env python3
"""What evicting keys and values costs in answers: bench/eviction_needle.py [--tokens N] [--text FILE]

    ninja -C build ibid && bench/eviction_needle.py

A fact stands at one of ten places of a text of N tokens or so, and the question about it at its end, so that a window of queries sees
it. For each policy of `kv_eviction` and each share of the prompt that is kept: of the default model's answers at temperature 0, how
many name the fact.

With --text instead: eight parts of FILE of N tokens are prompts, and each next token of the answer that all keys and values give is
predicted with fewer: the Kullback-Leibler divergence per token in thousandths, of the 20 most likely tokens and all others as one
(so no more than the whole one), and how often the most likely token is the same.
"""
import argparse
import math
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "conformance"))

FILLER = ("The boats left the harbour before dawn. ", "A cold wind came down from the hills. ", "Nobody in the market spoke of it. ",
          "Rain fell on the roofs until the evening. ", "The old bridge was closed for the winter. ")
WORDS = ("marmalade", "lantern", "walnut", "thunder", "velvet", "compass", "pepper", "falcon", "copper", "meadow")
METHODS, SHARES = ("snapkv", "h2o", "streaming"), (0.5, 0.25, 0.12)
N_PARTS, N_ANSWER, N_TOP = 8, 16, 20


def prompt(n_tokens, place, word):
    lines = [FILLER[i % len(FILLER)] for i in range(n_tokens // 9)]
    lines.insert(int(len(lines) * (place + 0.5) / len(WORDS)), f"The secret word of the castle is '{word}'. ")
    return "".join(lines) + "\nQuestion: what is the secret word of the castle? Answer: the secret word of the castle is '"


def needles(server, n_tokens):
    def right(eviction):
        n = 0
        for place, word in enumerate(WORDS):
            body = {"prompt": prompt(n_tokens, place, word), "max_tokens": 8, "temperature": 0, **eviction}
            n += word in server.post("/v1/completions", body)["choices"][0]["text"]
        return f"{n} of {len(WORDS)}"
    return right


def divergences(server, n_tokens, text):
    ids = server.post("/tokenize", {"content": text})["tokens"]
    parts = [ids[i * n_tokens:(i + 1) * n_tokens] for i in range(N_PARTS)]
    assert len(parts[-1]) == n_tokens, f"the text has fewer than {N_PARTS * n_tokens} tokens"

    def tops(part, so_far, eviction):
        body = {"prompt": part, "max_tokens": len(so_far) + 1, "temperature": 0, "seed": 0, "logprobs": N_TOP, "ignore_eos": True,
                "return_token_ids": True, "return_tokens_as_token_ids": True, "resume": {"token_ids": so_far}, **eviction}
        choice = server.post("/v1/completions", body)["choices"][0]
        return choice["token_ids"], choice["logprobs"]["top_logprobs"][0]

    base = []  # of each part: the tokens so far and what follows them
    for part in parts:
        so_far = []
        for _ in range(N_ANSWER):
            ids, top = tops(part, so_far, {})
            base.append((part, list(so_far), top))
            so_far += ids[-1:]

    def distance(eviction):
        sum_kl, n_same = 0.0, 0
        for part, so_far, p in base:
            _, q = tops(part, so_far, eviction)
            both = p.keys() & q.keys()
            rest_p, rest_q = (max(1e-9, 1 - sum(math.exp(of[token]) for token in both)) for of in (p, q))
            sum_kl += sum(math.exp(p[token]) * (p[token] - q[token]) for token in both) + rest_p * math.log(rest_p / rest_q)
            n_same += max(p, key=p.get) == max(q, key=q.get)
        return f"{1000 * sum_kl / len(base):.1f}, {n_same / len(base):.0%}"
    return distance


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=2000)
    parser.add_argument("--text", type=Path)
    args = parser.parse_args()
    sys.argv = [sys.argv[0], str(ROOT / "build")]
    from harness import IBID, Server
    with Server([IBID, "serve", "default", "--port", 0, "--ctx", 2 * args.tokens]) as server:
        if args.text:
            measure = divergences(server, args.tokens, args.text.read_text(encoding="utf-8"))
        else:
            measure = needles(server, args.tokens)
        print(f"| kept | {' | '.join(METHODS)} |\n|---|--:|--:|--:|\n| all | {measure({})} | | |")
        for share in SHARES:
            row = [measure({"kv_eviction": {"method": method, "keep_share": share}}) for method in METHODS]
            print(f"| {share:.0%} | {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
