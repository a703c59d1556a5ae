"""bench/compare.py over a scripted machine, engine and peer: turns, medians, bounds, table, page and picture.

compare_test.py SOURCE_DIR
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import xml.dom.minidom

SOURCE = pathlib.Path(sys.argv[1]).resolve()

# One program for all: its name determines its role. Each call's speed is the next of its list.
PROGRAM = """#!/usr/bin/env python3
import json, pathlib, sys
me, folder = pathlib.Path(sys.argv[0]).name, pathlib.Path(sys.argv[0]).parent
calls = folder / "calls"
if me == "limits":
    n = sum(line == "limits" for line in calls.read_text().split()) if calls.exists() else 0
    print(json.dumps([{"threads": t, "isa": (sys.argv[2:] or ["best"])[0], "read": [8e9, 1e10][n % 2] * t / 2, "int8": 2e10 * t, "bf16": 1e10 * t, "fp32": 5e9 * t} for t in range(1, int(sys.argv[1]) + 1)]))
elif me == "serving":
    import urllib.request
    words = dict(zip(sys.argv[1::2], sys.argv[2::2]))
    who = urllib.request.urlopen(words["--url"] + "/who").read().decode()
    seconds, first = {"ibid": (0.5, 0.02), "server": (4, 0.5)}[who]
    n = int(words["--streams"])
    print(json.dumps({"runs": [{"figures": {"completion_tokens": 128 * n, "seconds": seconds, "ttft_seconds": {"p50": first * n}}}]}))
    sys.exit()
elif "--port" in sys.argv:
    import http.server
    class Who(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200), self.end_headers(), self.wfile.write(me.encode())
        def log_message(self, *what): pass
    with open(calls, "a") as f: f.write(me + "-serves\\n")
    http.server.HTTPServer(("127.0.0.1", int(sys.argv[-1])), Who).serve_forever()
elif sys.argv[1] == "inspect":
    print((folder / "tensors").read_text())
    sys.exit()
with open(calls, "a") as f: f.write(me + "\\n")
turn = calls.read_text().split().count(me) - 1
words = dict(zip(sys.argv, sys.argv[1:]))
speed = {"ibid": [30, 10, 20, 90, 40], "peer": [10, 11, 12, 13, 14]}.get(me, [0] * 5)[turn % 5] * int(words.get("-t", 2)) / 2
if me in ("ibid", "peer"):
    streams = [int(s) for s in words.get("--streams", "1").split(",")] if me == "ibid" else [1]
    rows = [{"n_prompt": int(p), "n_gen": 0, "avg_ts": speed} for p in words["-p"].split(",") if int(p)]
    for depth in words.get("-d", "0").split(","):
        rows += [{"n_prompt": 0, "n_gen": int(words["-n"]), "n_streams": s, "n_depth": int(depth), "avg_ts": speed / (5 if s > 1 else 10)}
                 for s in streams]
    print(json.dumps(rows))
if me == "batched":
    assert words["-npp"] == "1" and int(words["-c"]) >= 8 * 4, sys.argv
    print("a line that is no JSON")
    for pl in words["-npl"].split(","):
        print(json.dumps({"pp": 1, "tg": int(words["-ntg"]), "pl": int(pl), "speed_tg": int(pl) / 2, "speed": 99.0}))
"""
# The package llama-cpp-python with a clock of its own: a call of llama_decode takes 0.1 s, and 0.01 s more a token.
PACKAGE = """
import ctypes, time
llama_token, clock, context = ctypes.c_int32, [0.0], []
time.perf_counter = lambda: clock[0]
class Params: pass
llama_backend_init = lambda: None
llama_model_default_params = llama_context_default_params = Params
llama_model_load_from_file = lambda path, params: path.endswith(b".gguf")
llama_init_from_model = lambda model, params: params
llama_model_get_vocab = lambda model: model
llama_vocab_n_tokens = lambda vocab: 50
llama_get_memory = lambda params: params
llama_memory_clear = lambda memory, data: context.clear()
llama_batch_get_one = lambda tokens, n: list(tokens[:n])
llama_synchronize = lambda params: None
def llama_decode(params, batch):
    assert len(batch) <= params.n_batch and params.n_threads == params.n_threads_batch == 2
    context.extend(batch)
    assert len(context) <= params.n_ctx and all(0 <= t < 50 for t in batch)
    clock[0] += 0.1 + 0.01 * len(batch)
    return 0
"""
TENSORS = """layers         2, 64 wide, feed-forward 128
attention      4 query and 2 key/value heads of 16

token_embd.weight                                F16              1000000 x 64     128.0 MB
output.weight                                    Q8_0             1000000 x 64      68.0 MB
blk.0.attn_norm.weight                           F32                       64      256 B
blk.0.ffn_up.weight                              Q4_0             500000 x 64       18.0 MB
blk.1.ffn_up.weight                              F16              500000 x 64       64.0 MB
"""


def close(a, b):
    assert abs(a - b) <= 1e-9 * abs(b), (a, b)


def table_rows(folder, *flags, package=None):
    done = run(folder, "--repeats", "1", "--json", folder / "out.json", *flags, package=package)
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads((folder / "out.json").read_text())


def run(folder, *flags, package=None):
    command = [sys.executable, SOURCE / "bench" / "compare.py", folder / "model.gguf", "-p", "4", "-n", "3", "--streams", "8", "-t", "2",
               "--ibid", folder / "ibid", "--limits", folder / "limits", "--peer", f"llama-bench={folder / 'peer'}", *flags]
    (folder / "calls").write_text("")
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(package or "")})


def check_bounds():
    """By hand: a model whose products take 3 s to read and 2 s to multiply a row, and whose attention takes 1 s a pair."""
    sys.path.insert(0, str(SOURCE / "bench"))
    import compare_table

    facts = compare_table.Facts(TENSORS)
    step, cell = facts.bytes_a_step(), facts.bytes_a_position()
    assert step == 150e6 and cell == 2 * 2 * 2 * 16 * 2
    limits = {"read": step / 3, "int8": 96e6, "bf16": 0, "fp32": 32e6}  # a row: 1 + 1 s; no BF16 is in it
    pair = 2 * 2 * 4 * 16 / 32e6  # s
    read = cell / limits["read"]
    task = compare_table.Task
    close(compare_table.bound(facts, task("decode", 1), limits), 1 / (3 + max(pair, read)))
    close(compare_table.bound(facts, task("decode", 1, 2), limits), 2 / (4 + 2 * max(pair, read)))  # now multiply-adds
    seen = 10**7 * 4 + 10  # pairs of four tokens after ten million; each position is read once
    close(compare_table.bound(facts, task("prefill", 4, depth=10**7), limits), 4 / ((4 * 32e6 + 64e6) / 96e6 + 4 + seen * pair))
    slow = {**limits, "read": 1.0}  # then all is bytes, and the two parts add up
    close(compare_table.bound(facts, task("prefill", 4, depth=6), slow), 4 / (step + 10 * cell))
    bytes_alone = {"read": limits["read"], "int8": 0, "bf16": 0, "fp32": 0}
    close(compare_table.bound(facts, task("decode", 1, 2), bytes_alone), 2 / (3 + 2 * read))
    assert compare_table.bound(facts, task("prefill", 4), bytes_alone) is None
    assert compare_table.bound(facts, task("decode", 1), {**bytes_alone, "read": 0}) is None
    assert compare_table.bound(facts, task("served", 128), limits) is None


def main():
    check_bounds()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for program in ("ibid", "limits", "peer", "serving", "server", "batched"):
            (folder / program).write_text(PROGRAM)
            (folder / program).chmod(0o755)
        (folder / "tensors").write_text(TENSORS)
        (folder / "model.gguf").write_text("")
        page = folder / "page.md"
        page.write_text("# Before\n<!-- measured -->\nold\n<!-- /measured -->\nAfter\n")
        done = run(folder, "--json", folder / "out.json", "--page", page, "--repeats", "5")
        assert done.returncode == 0, done.stderr
        assert (folder / "calls").read_text().split() == ["limits"] + ["ibid", "peer"] * 5 + ["limits"], "in turn"

        report = json.loads((folder / "out.json").read_text())
        one, two = report["limits"]
        assert two == {"threads": 2, "isa": "best", "read": 1e10, "int8": 4e10, "bf16": 2e10, "fp32": 1e10}, "the better of two"
        assert one["threads"] == 1 and one["read"] == 5e9
        prefill, decode, streams = report["rows"]
        assert [r["work"] for r in report["rows"]] == ["prefill 4", "decode 3", "decode 3 x 8"]
        assert prefill["engines"]["ibid"]["median"] == 30 and prefill["engines"]["llama.cpp"]["median"] == 12
        assert prefill["engines"]["ibid"]["spread"] == 9 and prefill["engines"]["ibid"]["samples"] == [30, 10, 20, 90, 40]
        assert prefill["ratio"] == {"llama.cpp": 2.5} and streams["ratio"] == {}
        # By hand. A step reads output, Q4_0 and F16: 68 + 18 + 64 MB in 15 ms; the embedding is not the output.
        # Prefill: 4 rows of 32 M int8 and 32 M fp32 each, one of 64 M int8, and 10 pairs of 2 layers x 4 heads x 16, twice.
        arithmetic = (4 * 32e6 + 64e6) / 4e10 + 4 * 32e6 / 1e10 + 2 * 10 * 2 * 4 * 16 / 1e10
        close(prefill["bound"], 4 / arithmetic)
        close(prefill["engines"]["ibid"]["share"], 30 * arithmetic / 4)
        close(decode["bound"], 1 / (0.015 + 2 * 2 * 2 * 2 * 16 * 2 / 1e10))  # bytes, and of two keys and values on average
        close(streams["bound"], 8 / (8 * 96e6 / 4e10 + 8 * 32e6 / 1e10 + 2 * 16 * 2 * 4 * 16 / 1e10))

        text = page.read_text()
        assert text.startswith("# Before\n<!-- measured -->\n") and text.endswith("<!-- /measured -->\nAfter\n") and "old" not in text
        assert "| prefill 4 | 30.0 (9.00) | 12.0 (1.40) | 2.50 |" in text and "| decode 3 x 8 | 6.0 (9.00) | – | – |" in text
        assert "1 thread 5.0 GB/s read, int8 20, bf16 10, fp32 5 G multiply-adds/s; 2 threads 10.0 GB/s read, int8 40," in text and str(folder / "peer") not in text
        assert text.split("```")[1].strip() == (f"bench/compare.py {folder / 'model.gguf'} -p 4 -n 3 --streams 8 -t 2 --peer "
                                                f"llama-bench=PATH --page {page} --repeats 5")
        svg = (folder / "pictures" / "performance.svg").read_text()
        bars = [r for r in xml.dom.minidom.parseString(svg).getElementsByTagName("rect") if r.getAttribute("height") == "14"]
        assert len(bars) == 5 and "prefers-color-scheme: dark" in svg
        widths = sorted(float(b.getAttribute("width")) for b in bars)
        assert widths[-1] == round(400 * min(1.25, max(e["share"] for r in report["rows"] for e in r["engines"].values())))

        done = run(folder, "--repeats", "1", "--streams", "0", "--served", "1,16", "--serving", folder / "serving", "--peer",
                   f"llama-server={folder / 'server'}", "--json", folder / "out.json")
        assert done.returncode == 0, done.stderr
        assert (folder / "calls").read_text().split() == ["limits", "ibid", "ibid-serves", "peer", "server-serves", "limits"]
        rows = {r["work"]: r for r in json.loads((folder / "out.json").read_text())["rows"]}
        assert rows["served 128"]["engines"]["ibid"]["median"] == 256 and rows["served 128 x 16"]["ratio"] == {"llama.cpp": 8}
        first = rows["first token, ms 128 x 16"]
        close(first["engines"]["ibid"]["median"], 320)
        close(first["ratio"]["llama.cpp"], 25)
        assert first["bound"] is None and "llama-server=PATH" in done.stdout
        done = run(folder, "--served", "1", "--serving", folder / "serving", "--peer", "llama-server=/bin/false")
        assert done.returncode != 0 and "does not serve" in done.stderr

        # Depths, long prompts and threads. 4 tokens of a prompt are as above at 2 threads; a decode of 3 after 1000 sees 1002 on average.
        text, report = table_rows(folder, "-p", "4,9", "--depth", "0,1000", "--streams", "0", "-t", "1,2,4", "--cpu-isa", "avx2")
        assert (folder / "calls").read_text().split() == ["limits"] + ["ibid"] * 2 + ["peer"] * 2 + (["ibid"] * 2 + ["peer"] * 2) * 2 + [
            "limits"]
        rows = {(r["work"], r["threads"]): r for r in report["rows"]}
        assert {w for w, _ in rows} == {"prefill 4", "prefill 9", "decode 3", "decode 3 after 1,000"} and len(rows) == 12
        assert [row["isa"] for row in report["limits"]] == ["avx2"] * 4
        close(rows["prefill 4", 2]["bound"], prefill["bound"])
        close(rows["prefill 9", 2]["bound"], 9 / ((9 * 32e6 + 64e6) / 4e10 + 9 * 32e6 / 1e10 + 2 * 45 * 2 * 4 * 16 / 1e10))
        close(rows["decode 3 after 1,000", 2]["bound"], 1 / (0.015 + 1002 * 2 * 2 * 2 * 16 * 2 / 1e10))
        close(rows["decode 3 after 1,000", 4]["bound"], 1 / (0.0075 + 1002 * 2 * 2 * 2 * 16 * 2 / 2e10))
        assert "| prefill 4, 4 threads |" in text and "| model | work | 1 thread | 2 threads | 4 threads |" in text

        # Peers of streams, and by the package: 4 tokens in a call of 0.14 s, then one at a time of 0.11 s, after 600 in two calls.
        _, report = table_rows(folder, "--peer", f"llama-batched-bench={folder / 'batched'}", "--streams", "4,8")
        rows = {r["work"]: r for r in report["rows"]}
        assert rows["decode 3 x 8"]["engines"]["llama.cpp"]["median"] == 4 and rows["decode 3 x 4"]["ratio"] == {"llama.cpp": 3}
        (folder / "package").mkdir()
        (folder / "package" / "llama_cpp.py").write_text(PACKAGE)
        _, report = table_rows(folder, "--peer", "llama-cpp-python", "-p", "4,600", "--depth", "600", package=folder / "package")
        speeds = {r["work"]: r["engines"]["llama.cpp"]["samples"][1:] for r in report["rows"] if len(r["engines"]) > 1}
        for work, speed in {"prefill 4": 4 / 0.14, "prefill 600": 600 / 6.2, "decode 3": 1 / 0.11, "decode 3 after 600": 1 / 0.11}.items():
            close(speeds[work][0], speed)

        assert run(folder, "--at-least", "2.6").returncode == 1
        done = run(folder, "--minutes", "0")
        assert done.returncode == 3 and "not one repeat" in done.stderr
        (folder / "peer").write_text("#!/bin/sh\necho it broke >&2; exit 7\n")
        done = run(folder)
        assert done.returncode != 0 and "it broke" in done.stderr, "a peer that fails is no row"

        done = run(folder, "--limits", folder / "limits_bench", "--served", "2", "--serving", folder / "serving_bench")
        assert done.returncode == 2 and "ninja -C build limits_bench serving_bench" in done.stderr, done.stderr
    print("compared as by hand")


if __name__ == "__main__":
    main()
