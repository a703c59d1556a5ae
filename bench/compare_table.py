"""What bench/compare.py makes of its samples: bounds of a model's work on a machine, medians, tables and the picture.

A Task reads a prompt (prefill 512) or writes 128 tokens in each of eight streams (decode 128 x 8), after `depth` tokens that
are there already. The least time of a step is the sum over its two phases, which cannot run at once, as each layer waits for
the one before; a phase takes at least as long as all its bytes at the read limit, and as all its multiply-adds at their units',
both measured in the same run:
  products   max(W / read, sum over matrices of rows x weights / rate of their type)
  attention  max(positions x E / read, 2 x pairs x layers x heads x head_len / fp32)
W: bytes of all matrices, read once; of quantised ones the rate is int8's, of BF16 bf16's, of others fp32's; E: bytes of a
position's keys and values in all layers. A prefill of T tokens after D has T rows (of the output matrix one), T D + T (T + 1) / 2
pairs and D + T positions, and its bound is T over that time; a decode of T tokens in S streams has S rows and S (D + (T + 1) / 2)
pairs and positions in a middle step, and its bound is S over it. Where a unit has no limit, a decode is held against its bytes
alone and a prefill against nothing. Weights that a cache holds can be read faster. What a server gives ("served", and
FIRST_TOKEN) has no bound here.
"""
import re
import statistics
from html import escape
from typing import NamedTuple

# Bytes of so many weights.
BLOCKS = {
    "F32": (4, 1), "F16": (2, 1), "BF16": (2, 1), "Q4_0": (18, 32), "Q4_1": (20, 32), "Q5_0": (22, 32), "Q5_1": (24, 32),
    "Q8_0": (34, 32), "IQ4_NL": (18, 32), "MXFP4": (17, 32), "Q2_K": (84, 256), "Q3_K": (110, 256), "Q4_K": (144, 256),
    "Q5_K": (176, 256), "Q6_K": (210, 256), "IQ4_XS": (136, 256), "IQ2_XXS": (66, 256), "IQ2_XS": (74, 256),
    "IQ2_S": (82, 256), "IQ3_XXS": (98, 256), "IQ3_S": (110, 256), "IQ1_S": (50, 256), "IQ1_M": (56, 256),
    "TQ1_0": (54, 256), "TQ2_0": (66, 256), "NVFP4": (36, 64), "Q1_0": (18, 128), "Q2_0": (18, 64),
}  # fmt: skip
FIRST_TOKEN = "first token, ms"  # a kind of work of which less is better
KV_BYTES = 2  # F16, in all engines


class Task(NamedTuple):
    kind: str  # prefill, decode, served, FIRST_TOKEN
    tokens: int
    streams: int = 1
    depth: int = 0
    threads: int = 0

    def name(self) -> str:
        return f"{self.kind} {self.tokens}" + (f" x {self.streams}" if self.streams > 1 else "") + (
            f" after {self.depth:,}" if self.depth else "")


def unit(dtype: str) -> str:
    return {"BF16": "bf16", "F16": "fp32", "F32": "fp32"}.get(dtype, "int8")


class Facts:
    """Of a model, from the text of `ibid inspect --tensors`."""

    def __init__(self, text: str):
        heads = re.search(r"^attention +(\d+) query and (\d+) key/value heads of (\d+)", text, re.M)
        self.heads, self.kv_heads, self.head_len = (int(x) for x in heads.groups())
        self.layers = int(re.search(r"^layers +(\d+)", text, re.M).group(1))
        self.matrices = []  # name, type, elements
        for name, dtype, n, k in re.findall(r"^(\S+)\s+(\w+)\s+(\d+) x (\d+) ", text, re.M):
            self.matrices.append((name, dtype, int(n) * int(k)))
        names = {name for name, _, _ in self.matrices}
        self.output = "output.weight" if "output.weight" in names else "token_embd.weight"

    def bytes_a_step(self) -> float:
        """Of weights: all matrices but an embedding that is not the output too, of which a token reads a row."""
        read = (m for m in self.matrices if m[0] == self.output or m[0] != "token_embd.weight")
        return sum(n * BLOCKS[dtype][0] / BLOCKS[dtype][1] for _, dtype, n in read)

    def bytes_a_position(self) -> int:
        return 2 * self.layers * self.kv_heads * self.head_len * KV_BYTES

    def product_seconds(self, rows: int, n_logits: int, limits: dict) -> float | None:
        """The least that multiply-adds of a step take. None without a limit."""
        total = 0.0
        for name, dtype, n in self.matrices:
            times = n_logits if name == self.output else 0 if name == "token_embd.weight" else rows
            if times and not limits[unit(dtype)]:
                return None
            total += times * n / limits[unit(dtype)] if times else 0.0
        return total

    def attention_seconds(self, pairs: float, limits: dict) -> float | None:
        return 2.0 * pairs * self.layers * self.heads * self.head_len / limits["fp32"] if limits["fp32"] else None


def bound(facts: Facts, task: Task, limits: dict) -> float | None:
    """Tokens a second; None where the machine has no limit for it."""
    if task.kind not in ("prefill", "decode") or not limits["read"]:
        return None
    if task.kind == "prefill":
        rows, n_logits, n_tokens, positions = task.tokens, 1, task.tokens, task.depth + task.tokens
        pairs = task.tokens * task.depth + task.tokens * (task.tokens + 1) / 2
    else:
        rows = n_logits = n_tokens = task.streams
        pairs = positions = task.streams * (task.depth + (task.tokens + 1) / 2)
    phases = [(facts.bytes_a_step(), facts.product_seconds(rows, n_logits, limits)),
              (positions * facts.bytes_a_position(), facts.attention_seconds(pairs, limits))]  # fmt: skip
    if task.kind == "prefill" and any(arithmetic is None for _, arithmetic in phases):
        return None
    return n_tokens / sum(max(n_bytes / limits["read"], arithmetic or 0.0) for n_bytes, arithmetic in phases)


def rows_of(samples: dict, bounds: dict) -> list[dict]:
    """samples[model, task][engine]: tokens a second, or milliseconds, of each repeat; bounds[model, task]. The first engine is ours."""
    rows = []
    for (model, task), engines in samples.items():
        row = {"model": model, "work": task.name(), "threads": task.threads, "bound": bounds.get((model, task)), "engines": {}}
        for engine, values in engines.items():
            middle = statistics.median(values)
            row["engines"][engine] = {"median": middle, "spread": max(values) / min(values), "samples": values,
                                      "share": middle / row["bound"] if row["bound"] else None}
        names = list(engines)
        ours = row["engines"][names[0]]["median"]
        row["ratio"] = {n: ours / row["engines"][n]["median"] for n in names[1:]}
        if task.kind == FIRST_TOKEN:
            row["ratio"] = {n: 1 / ratio for n, ratio in row["ratio"].items()}
        rows.append(row)
    return rows


def number(x: float) -> str:
    return f"{x:,.0f}" if x >= 100 else f"{x:.1f}"


def labels(rows: list[dict]) -> list[str]:
    """What each row's work is called: with its threads, where rows differ in them."""
    several = len({row["threads"] for row in rows}) > 1
    return [row["work"] + (f", {row['threads']} threads" if several else "") for row in rows]


def table(rows: list[dict]) -> str:
    """In Markdown: medians with their spread (largest over smallest), ratios, and the share of the bound that ours has."""
    peers = list(dict.fromkeys(p for row in rows for p in row["ratio"]))
    ours = next(iter(rows[0]["engines"]))
    lines = ["| model | work | " + " | ".join([ours] + [f"{p} | ratio" for p in peers]) + " | bound | share |",
             "|---|---|" + "--:|" * (1 + 2 * len(peers)) + "--:|--:|"]
    for row, label in zip(rows, labels(rows)):
        def cell(engine):
            e = row["engines"].get(engine)
            return f"{number(e['median'])} ({e['spread']:.2f})" if e else "–"

        cells = [row["model"], label, cell(ours)]
        for p in peers:
            cells += [cell(p), f"{row['ratio'][p]:.2f}" if p in row["ratio"] else "–"]
        share = row["engines"][ours]["share"]
        cells += [number(row["bound"]) if row["bound"] else "–", f"{100 * share:.0f} %" if share else "–"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def scaling(rows: list[dict]) -> str:
    """In Markdown, of ours: a column for each number of threads, with the share of its bound."""
    counts = sorted({row["threads"] for row in rows})
    cells: dict = {}
    for row in rows:
        e = next(iter(row["engines"].values()))
        share = f" ({100 * e['share']:.0f} %)" if e["share"] else ""
        cells.setdefault((row["model"], row["work"]), {})[row["threads"]] = number(e["median"]) + share
    lines = ["| model | work | " + " | ".join(f"{n} threads" if n > 1 else "1 thread" for n in counts) + " |",
             "|---|---|" + "--:|" * len(counts)]  # fmt: skip
    lines += ["| " + " | ".join([*key, *(of.get(n, "–") for n in counts)]) + " |" for key, of in cells.items()]
    return "\n".join(lines)


STYLE = """
  .ground { fill: #fbfaf7 } text { fill: #1d1c1a; font-size: 14px } .what { fill: #4d4a43; font-size: 12px }
  .bar0 { fill: #2f6f8f } .bar1 { fill: #b9892f } .bar2 { fill: #7a6a9a } .line { stroke: #8a8578 }
  @media (prefers-color-scheme: dark) {
    .ground { fill: #191917 } text { fill: #f3f1ea } .what { fill: #c9c4b7 }
    .bar0 { fill: #6fb3d2 } .bar1 { fill: #e0b45c } .bar2 { fill: #b3a3d6 } .line { stroke: #8f8a7d }
  }
"""


def picture(rows: list[dict]) -> str:
    """Bars of each engine's share of the bound; bars are cut at 125 %, and the number shows the rest."""
    rows = [r for r in rows if r["bound"]]
    engines = list(dict.fromkeys(e for r in rows for e in r["engines"]))
    left, width, full, bar = 300, 860, 400, 14
    out, y = [], 56
    for i, engine in enumerate(engines):
        x = left + 150 * i
        out.append(f'<rect class="bar{i % 3}" x="{x}" y="18" width="12" height="12"/><text x="{x + 18}" y="29">{escape(engine)}</text>')
    for row, label in zip(rows, labels(rows)):
        out.append(f'<text x="16" y="{y + 12}">{escape(label)}</text>'
                   f'<text class="what" x="16" y="{y + 28}">{escape(row["model"])}</text>')
        for i, engine in enumerate(engines):
            e = row["engines"].get(engine)
            if e:
                length = full * min(e["share"], 1.25)
                out.append(f'<rect class="bar{i % 3}" x="{left}" y="{y}" width="{length:.0f}" height="{bar}"/>'
                           f'<text class="what" x="{left + length + 6:.0f}" y="{y + 11}">'
                           f'{100 * e["share"]:.0f} %, {number(e["median"])} tokens/s</text>')
            y += bar + 3
        y += max(10, 32 - (bar + 3) * len(engines))
    line = f'<path class="line" d="M{left} 44 V{y} M{left + full} 44 V{y}"/>'
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {y + 30}" font-family="system-ui, \'Segoe UI\', '
            f'Helvetica, Arial, sans-serif" role="img" aria-labelledby="title">\n<title id="title">Share of the machine\'s '
            f'bound, by engine and work</title>\n<style>{STYLE}</style>\n<rect class="ground" width="{width}" '
            f'height="{y + 30}" rx="10"/>\n{line}\n' + "\n".join(out)
            + f'\n<text class="what" x="{left + full}" y="{y + 18}" text-anchor="middle">the bound</text>\n</svg>\n')
