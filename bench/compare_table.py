"""What bench/compare.py makes of its samples: bounds of a model's work on a machine, medians, the table and the picture.

Work is (kind, tokens, streams): ("prefill", 512, 1) reads a prompt, ("decode", 128, 8) writes 128 tokens in each of eight
streams. Its bound is the speed at which either all its bytes or all its multiply-adds could go by at the limits that the
same run measured: weights are read once a step, keys and values once a row; products of quantised weights go at the int8
rate, of BF16 at the bf16 rate, others and attention at the fp32 rate. Weights that a cache holds can be read faster. What a
server gives ("served", and FIRST_TOKEN) has no bound here.
"""
import re
import statistics
from html import escape

# Bytes of so many weights.
BLOCKS = {
    "F32": (4, 1), "F16": (2, 1), "BF16": (2, 1), "Q4_0": (18, 32), "Q4_1": (20, 32), "Q5_0": (22, 32), "Q5_1": (24, 32),
    "Q8_0": (34, 32), "IQ4_NL": (18, 32), "MXFP4": (17, 32), "Q2_K": (84, 256), "Q3_K": (110, 256), "Q4_K": (144, 256),
    "Q5_K": (176, 256), "Q6_K": (210, 256), "IQ4_XS": (136, 256),
}  # fmt: skip
FIRST_TOKEN = "first token, ms"  # a kind of work of which less is better
KV_BYTES = 2  # F16, in all engines


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

    def seconds(self, rows: int, n_logits: int, pairs: int, limits: dict) -> float | None:
        """The least that multiply-adds of a step take: `pairs` of queries and keys. None without a limit."""
        total = 2.0 * pairs * self.layers * self.heads * self.head_len / limits["fp32"]
        for name, dtype, n in self.matrices:
            times = n_logits if name == self.output else 0 if name == "token_embd.weight" else rows
            if times and not limits[unit(dtype)]:
                return None
            total += times * n / limits[unit(dtype)] if times else 0.0
        return total


def bound(facts: Facts, kind: str, tokens: int, streams: int, limits: dict) -> float | None:
    """Tokens a second; None where the machine has no limit for it."""
    if kind not in ("prefill", "decode"):
        return None
    if not limits["read"] or not limits["fp32"]:
        return None
    weights = facts.bytes_a_step() / limits["read"]
    if kind == "prefill":
        arithmetic = facts.seconds(tokens, 1, tokens * (tokens + 1) // 2, limits)
        return None if arithmetic is None else tokens / max(weights, arithmetic)
    behind = (tokens + 1) / 2  # a stream's mean length
    kv = streams * behind * 2 * facts.layers * facts.kv_heads * facts.head_len * KV_BYTES / limits["read"]
    arithmetic = facts.seconds(streams, streams, int(streams * behind), limits)
    return None if arithmetic is None else streams / max(weights + kv, arithmetic)


def work_name(kind: str, tokens: int, streams: int) -> str:
    return f"{kind} {tokens}" + (f" x {streams}" if streams > 1 else "")


def rows_of(samples: dict, bounds: dict) -> list[dict]:
    """samples[model, work][engine]: tokens a second, or milliseconds, of each repeat; bounds[model, work]. The first engine is ours."""
    rows = []
    for (model, work), engines in samples.items():
        row = {"model": model, "work": work_name(*work), "bound": bounds.get((model, work)), "engines": {}}
        for engine, values in engines.items():
            middle = statistics.median(values)
            row["engines"][engine] = {"median": middle, "spread": max(values) / min(values), "samples": values,
                                      "share": middle / row["bound"] if row["bound"] else None}
        names = list(engines)
        ours = row["engines"][names[0]]["median"]
        row["ratio"] = {n: ours / row["engines"][n]["median"] for n in names[1:]}
        if work[0] == FIRST_TOKEN:
            row["ratio"] = {n: 1 / ratio for n, ratio in row["ratio"].items()}
        rows.append(row)
    return rows


def number(x: float) -> str:
    return f"{x:,.0f}" if x >= 100 else f"{x:.1f}"


def table(rows: list[dict]) -> str:
    """In Markdown: medians with their spread (largest over smallest), ratios, and the share of the bound that ours has."""
    peers = list(dict.fromkeys(p for row in rows for p in row["ratio"]))
    ours = next(iter(rows[0]["engines"]))
    lines = ["| model | work | " + " | ".join([ours] + [f"{p} | ratio" for p in peers]) + " | bound | share |",
             "|---|---|" + "--:|" * (1 + 2 * len(peers)) + "--:|--:|"]
    for row in rows:
        def cell(engine):
            e = row["engines"].get(engine)
            return f"{number(e['median'])} ({e['spread']:.2f})" if e else "–"

        cells = [row["model"], row["work"], cell(ours)]
        for p in peers:
            cells += [cell(p), f"{row['ratio'][p]:.2f}" if p in row["ratio"] else "–"]
        share = row["engines"][ours]["share"]
        cells += [number(row["bound"]) if row["bound"] else "–", f"{100 * share:.0f} %" if share else "–"]
        lines.append("| " + " | ".join(cells) + " |")
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
    """Bars of each engine's share of the bound; a longer one than 125 % is cut there, its number tells."""
    rows = [r for r in rows if r["bound"]]
    engines = list(dict.fromkeys(e for r in rows for e in r["engines"]))
    left, width, full, bar = 300, 860, 400, 14
    out, y = [], 56
    for i, engine in enumerate(engines):
        x = left + 150 * i
        out.append(f'<rect class="bar{i % 3}" x="{x}" y="18" width="12" height="12"/><text x="{x + 18}" y="29">{escape(engine)}</text>')
    for row in rows:
        out.append(f'<text x="16" y="{y + 12}">{escape(row["work"])}</text>'
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
