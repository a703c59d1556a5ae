"""bench/compare.py over a scripted machine, engine and peer: turns, medians, bounds, table, page and picture.

compare_test.py SOURCE_DIR
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import xml.dom.minidom

SOURCE = pathlib.Path(sys.argv[1]).resolve()

# One program for all: what it is called says what it is. Each call's speed is the next of its list.
PROGRAM = """#!/usr/bin/env python3
import json, pathlib, sys
me, folder = pathlib.Path(sys.argv[0]).name, pathlib.Path(sys.argv[0]).parent
calls = folder / "calls"
if me == "limits":
    n = sum(line == "limits" for line in calls.read_text().split()) if calls.exists() else 0
    print(json.dumps([{"threads": t, "read": [8e9, 1e10][n % 2] * t / 2, "int8": 2e10 * t, "bf16": 1e10 * t, "fp32": 5e9 * t} for t in (1, 2)]))
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
speed = {"ibid": [30, 10, 20, 90, 40], "peer": [10, 11, 12, 13, 14]}.get(me, [0] * 5)[turn % 5]
if me == "ibid":
    print(json.dumps([{"n_prompt": 4, "n_gen": 0, "n_streams": 1, "avg_ts": speed},
                      {"n_prompt": 0, "n_gen": 3, "n_streams": 1, "avg_ts": speed / 10},
                      {"n_prompt": 0, "n_gen": 3, "n_streams": 8, "avg_ts": speed / 5}]))
if me == "peer":
    print(json.dumps([{"n_prompt": 4, "n_gen": 0, "avg_ts": speed}, {"n_prompt": 0, "n_gen": 3, "avg_ts": speed / 10}]))
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


def run(folder, *flags):
    command = [sys.executable, SOURCE / "bench" / "compare.py", folder / "model.gguf", "-p", "4", "-n", "3", "--streams", "8", "-t", "2",
               "--ibid", folder / "ibid", "--limits", folder / "limits", "--peer", f"llama-bench={folder / 'peer'}", *flags]
    (folder / "calls").write_text("")
    return subprocess.run([str(c) for c in command], capture_output=True, text=True)


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for program in ("ibid", "limits", "peer", "serving", "server"):
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
        assert report["limits"] == {"threads": 2, "read": 1e10, "int8": 4e10, "bf16": 2e10, "fp32": 1e10}, "the better of two"
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
        assert "10.0 GB/s read, int8 40 G" in text and str(folder / "peer") not in text
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

        assert run(folder, "--at-least", "2.6").returncode == 1
        done = run(folder, "--minutes", "0")
        assert done.returncode == 3 and "not one repeat" in done.stderr
        (folder / "peer").write_text("#!/bin/sh\necho it broke >&2; exit 7\n")
        done = run(folder)
        assert done.returncode != 0 and "it broke" in done.stderr, "a peer that fails is no row"
    print("compared as by hand")


if __name__ == "__main__":
    main()
