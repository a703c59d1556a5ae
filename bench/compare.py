#!/usr/bin/env python3
"""The machine's limits, ibid, and peers beside it, in one run: bench/compare.py [MODEL.gguf ...] [--peer NAME[=PATH] ...]

    ninja -C build ibid limits_bench serving_bench
    bench/compare.py --peer llama-bench=PATH --peer llama-batched-bench=PATH --page docs/measurements/performance.md --json out.json

Without MODEL: the default model as it is and in the types of --types; `135m`, `1b` and `8b` are random weights of real shapes, made by
tools/make_random_model.py; MODEL:TYPE is a model in another type, made by `ibid quantize`. All lie in the cache folder.
Each repeat takes every model and engine in turn (A B A B ...), each in a process of its own. The page has medians, spread,
ratio and the share of the bound (bench/compare_table.py), the machine, the commit and this command. --minutes ends the run
with the last whole repeat before it. --served starts servers and measures them (build/serving_bench): tokens a second of that many
concurrent streams, with prompts of 220 words and answers of 128 tokens, and their median time to first token in milliseconds (lower is
better). --depth is decode after that many tokens; -p, --depth and --threads take lists, and several numbers of threads give a table of
how ours scales. Peers: llama-bench, llama-batched-bench and llama-server by path, or the package llama-cpp-python:
    CMAKE_ARGS=-DGGML_NATIVE=ON pip install --no-binary llama-cpp-python llama-cpp-python
Exit status 1 where a ratio is below --at-least, 3 where not one repeat was whole in time.
"""
import argparse
import contextlib
import datetime
import json
import os
import platform
import re
import shlex
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import compare_table
from compare_table import Task

ROOT = Path(__file__).resolve().parent.parent
SHAPES = ("135m", "1b", "8b")
WORDS, ANSWER, ROOM = 220, 128, 1024  # of a served request: words of its prompt, tokens of its answer, and room for both
BATCH = 512  # tokens of a prompt's part, as llama-bench has them
BEGIN, END = "<!-- measured -->", "<!-- /measured -->"


def cache_dir() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ibid" / "models"


def default_model() -> Path:
    return Path(os.environ.get("IBID_MODEL") or cache_dir() / "SmolLM2-135M-Instruct.Q4_1.gguf")


def output(command: list, **options) -> str:
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
    if done.returncode != 0:
        raise SystemExit(f"{shlex.join(str(c) for c in command)} failed: {done.stderr[-500:]}")
    return done.stdout


def model_path(name: str, ibid: str) -> Path:
    """The file of MODEL or MODEL:TYPE, made if it is not there."""
    base, _, dtype = name.partition(":")

    def random_model(of: str) -> Path:
        out = cache_dir() / "variants" / f"random-{base}.{of}.gguf"
        if not out.exists():
            out.parent.mkdir(parents=True, exist_ok=True)
            output([sys.executable, ROOT / "tools" / "make_random_model.py", base, out, "--type", of.lower()])
        return out

    if base in SHAPES:
        if dtype.lower().startswith(("iq2", "iq3")):  # of random bits: to quantise into these takes a text
            return random_model(dtype)
        source = random_model("Q8_0" if base == "8b" else "F16")
    else:
        source = default_model() if base == "default" else Path(base)
    if not source.exists():
        raise SystemExit(f"{source} is not there; ./quickstart fetches the default model, IBID_MODEL names another")
    if not dtype:
        return source
    stem = source.name.removesuffix(".gguf").removesuffix(".Q4_1").removesuffix(".F16").removesuffix(".Q8_0")
    out = cache_dir() / "variants" / f"{stem}.{dtype}.gguf"
    if not out.exists():
        out.parent.mkdir(parents=True, exist_ok=True)
        output([ibid, "quantize", source, out, "--type", dtype, "--allow-requantize"])
    return out


class Work:
    """What is measured of a model with so many threads: prompts, tokens of decode, streams, depths, streams of a server."""

    def __init__(self, args: argparse.Namespace, threads: int):
        self.p, self.n, self.streams, self.depths, self.threads = args.p, args.n, args.streams, args.depth, threads
        self.served, self.serving = args.served, args.serving
        self.isa = ["--cpu-isa", args.cpu_isa] if args.cpu_isa else []

    def task(self, kind: str, tokens: int, streams: int = 1, depth: int = 0) -> Task:
        return Task(kind, tokens, streams, depth, self.threads)

    def of_rows(self, rows: list) -> dict:
        """Speeds, from the JSON of llama-bench or `ibid bench`."""
        return {self.task("decode" if r["n_gen"] else "prefill", r["n_gen"] or r["n_prompt"], r.get("n_streams", 1),
                          r.get("n_depth", 0)): r["avg_ts"] for r in rows}  # fmt: skip


def listed(numbers: list) -> str:
    return ",".join(str(n) for n in numbers)


def ours(path: Path, work: Work, program: str) -> dict:
    command = [program, "bench", path, "-n", work.n, "-t", work.threads, "-r", 1, "-o", "json", *work.isa]
    found = work.of_rows(json.loads(output([*command, "-p", listed(work.p), "--streams", listed([1, *work.streams])])))
    if work.depths:
        found |= work.of_rows(json.loads(output([*command, "-p", 0, "-d", listed(work.depths)])))
    if work.served:
        found |= served([program, "serve", path, "-t", work.threads, "--no-page", *work.isa], work)
    return found


@contextlib.contextmanager
def server(command: list):
    """Its address, while it runs and is healthy."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen([str(c) for c in [*command, "--port", port]], stdout=log, stderr=log)
        try:
            end = time.monotonic() + 120
            while True:
                with contextlib.suppress(OSError):
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
                    break
                if process.poll() is not None or time.monotonic() > end:
                    log.seek(0)
                    raise SystemExit(f"{command[0]} does not serve: {log.read()[-500:]}")
                time.sleep(0.05)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def served(command: list, work: Work) -> dict:
    found = {}
    with server(command) as url:
        for streams in work.served:
            figures = json.loads(output([work.serving, "--url", url, "--streams", streams, "--words", WORDS, "--max-tokens", ANSWER,
                                         "--seed", streams, "--warm", "-o", "json"]))["runs"][0]["figures"]  # fmt: skip
            found[work.task("served", ANSWER, streams)] = figures["completion_tokens"] / figures["seconds"]
            found[work.task(compare_table.FIRST_TOKEN, ANSWER, streams)] = 1e3 * figures["ttft_seconds"]["p50"]
    return found


def llama_server(path: Path, work: Work, program: str) -> dict:
    if not work.served:
        return {}
    n = max(work.served)
    return served([program, "-m", path, "-t", work.threads, "-np", n, "-c", n * ROOM], work)


def llama_bench(path: Path, work: Work, program: str) -> dict:
    command = [program, "-m", path, "-n", work.n, "-t", work.threads, "-r", 1, "-o", "json"]
    found = work.of_rows(json.loads(output([*command, "-p", listed(work.p)])))
    if work.depths:
        found |= work.of_rows(json.loads(output([*command, "-p", 0, "-d", listed(work.depths)])))
    return found


def llama_batched_bench(path: Path, work: Work, program: str) -> dict:
    if not work.streams:
        return {}
    n_ctx = max(work.streams) * (work.n + 2)
    lines = output([program, "-m", path, "-c", n_ctx, "-b", 2048, "-ub", 512, "-npp", 1, "-ntg", work.n, "-npl",
                    listed(work.streams), "-t", work.threads, "--output-format", "jsonl"])  # fmt: skip
    rows = [json.loads(line) for line in lines.splitlines() if line.startswith("{")]
    return {work.task("decode", r["tg"], r["pl"]): r["speed_tg"] for r in rows}


def llama_cpp_python(path: Path, work: Work, _: str) -> dict:
    rows = json.loads(output([sys.executable, __file__, "--peer-run", path, "-p", listed(work.p), "-n", work.n, "--depth",
                              listed(work.depths or [0]), "--threads", work.threads]))  # fmt: skip
    return {Task(*key): value for key, value in rows}


def run_llama_cpp_python(path: str, work: Work) -> list:
    """One repeat in this process, by the package's low-level calls."""
    import llama_cpp as llama

    llama.llama_backend_init()
    loaded = llama.llama_model_load_from_file(path.encode(), llama.llama_model_default_params())
    if not loaded:
        raise SystemExit(f"llama.cpp cannot load {path}")
    longest = max([*work.p, *(depth + work.n for depth in [0, *work.depths])])
    params = llama.llama_context_default_params()
    params.n_ctx = longest + 64
    params.n_batch = params.n_ubatch = BATCH
    params.n_threads = params.n_threads_batch = work.threads
    context = llama.llama_init_from_model(loaded, params)
    n_vocab = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(loaded))
    tokens = (llama.llama_token * longest)(*[(1000 + 37 * i) % n_vocab for i in range(longest)])

    def decode(first: int, last: int, step: int) -> None:
        for begin in range(first, last, step):
            n = min(step, last - begin)
            part = (llama.llama_token * n)(*tokens[begin : begin + n])
            if llama.llama_decode(context, llama.llama_batch_get_one(part, n)) != 0:
                raise SystemExit("llama_decode failed")
        llama.llama_synchronize(context)

    def speed(depth: int, n: int, step: int) -> float:
        llama.llama_memory_clear(llama.llama_get_memory(context), True)
        decode(0, depth, BATCH)
        begin = time.perf_counter()
        decode(depth, depth + n, step)
        return n / (time.perf_counter() - begin)

    speed(0, max(1, *work.p), BATCH)  # touch the weights once; ours does the same
    found = [(work.task("prefill", p), speed(0, p, BATCH)) for p in work.p if p]
    return found + [(work.task("decode", work.n, depth=d), speed(d, work.n, 1)) for d in [0, *work.depths] if work.n]


PEERS = {"llama-bench": llama_bench, "llama-batched-bench": llama_batched_bench, "llama-server": llama_server,
         "llama-cpp-python": llama_cpp_python}
LABELS = dict.fromkeys(PEERS, "llama.cpp")  # one column: they measure different work of the same engine


def command_line(argv: list[str]) -> str:
    """To be typed again: peers without their paths, and without where this machine keeps things."""
    words, here = ["bench/compare.py"], ("--json", "--ibid", "--limits", "--serving")
    for before, word in zip(["", *argv], argv):
        if word.split("=")[0] not in here and before not in here:
            words.append(re.sub(rf"({'|'.join(PEERS)})=.*", r"\1=PATH", word))
    return shlex.join(words)


def limits_of(program: str, threads: int, isa: str | None, known: list | None) -> list[dict]:
    """The machine's limits at 1 to `threads` threads, the best of those known and those measured now."""
    now = json.loads(output([program, threads, *([isa] if isa else [])]))
    better = [{key: value if isinstance(value, str) else max(value, before[key]) for key, value in row.items()}
              for row, before in zip(now, known or now)]  # fmt: skip
    return better


def measure(models: dict, engines: list, works: list, repeats: int, end: float) -> tuple[dict, int]:
    """samples[model, task][engine], of whole repeats alone, and how many those were."""
    samples: dict = {}
    longest = 0.0
    for repeat in range(repeats):
        begin = time.monotonic()
        if begin + longest > end:
            return samples, repeat
        found = []
        for name, path in models.items():
            for work in works:
                for label, run, program in engines:
                    found += [((name, key), label, value) for key, value in run(path, work, program).items()]
        for key, label, value in found:
            samples.setdefault(key, {}).setdefault(label, []).append(value)
        longest = max(longest, time.monotonic() - begin)
        print(f"repeat {repeat + 1} of {repeats}: {time.monotonic() - begin:.0f} s", file=sys.stderr)
    return samples, repeats


def machine() -> str:
    try:
        cpu = next(line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name"))
    except (OSError, StopIteration):
        cpu = platform.processor()
    return f"{cpu}, {os.cpu_count()} cores, {platform.system()} {platform.release().split('-')[0]}"


def commit() -> str:
    try:
        name = output(["git", "-C", ROOT, "rev-parse", "--short=12", "HEAD"]).strip()
        return name + (" with changes" if output(["git", "-C", ROOT, "status", "--porcelain", "-uno"]).strip() else "")
    except (SystemExit, OSError):
        return "unknown"


def limits_text(limit: dict) -> str:
    units = ("int8", "bf16", "fp32")
    rates = [f"{unit} {limit[unit] / 1e9:,.0f}" for unit in units if limit[unit]]
    missing = [unit for unit in units if not limit[unit]]
    return (f"{limit['threads']} thread{'s' if limit['threads'] > 1 else ''} {limit['read'] / 1e9:.1f} GB/s read"
            + (f", {', '.join(rates)} G multiply-adds/s" if rates else "")
            + (f" ({', '.join(missing)} not measured)" if missing else ""))  # fmt: skip


def section(report: dict) -> str:
    threads = ", ".join(str(n) for n in report["threads"])
    parts = [
        f"{report['machine']}; commit {report['commit']}, {report['date']}; {threads} threads, {report['repeats']} repeats, "
        f"load before and after {report['load'][0]:.1f} and {report['load'][1]:.1f}.",
        f"Limits of the same run ({report['limits'][0]['isa']}): {'; '.join(limits_text(row) for row in report['limits'])}.", "",
        compare_table.table(report["rows"]), ""]  # fmt: skip
    if len(report["threads"]) > 1:
        parts += [compare_table.scaling(report["rows"]), ""]
    return "\n".join([*parts, "```", report["command"], "```"])


def write_page(page: Path, report: dict) -> None:
    text = page.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    page.write_text(f"{before}{BEGIN}\n{section(report)}\n{END}{rest.split(END)[1]}", encoding="utf-8")
    (page.parent / "pictures").mkdir(exist_ok=True)
    (page.parent / "pictures" / "performance.svg").write_text(compare_table.picture(report["rows"]), encoding="utf-8")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", metavar="MODEL", help="a file, default, 135m, 1b or 8b; with :TYPE in that type")
    parser.add_argument("--types", default="Q4_0,Q8_0,F16", help="types of the default model, where no MODEL is named")
    parser.add_argument("-p", default="512", help="tokens of prompts, comma-separated")
    parser.add_argument("-n", type=int, default=64, help="tokens of decode, of each stream")
    parser.add_argument("--streams", default="8,32", help="streams of batched decode, comma-separated; 0: none")
    parser.add_argument("--depth", default="0", help="tokens that decode of one stream has before it, comma-separated")
    parser.add_argument("--served", default="0", help="concurrent streams on servers, comma-separated; 0: no servers")
    parser.add_argument("--threads", "-t", default="2", help="comma-separated")
    parser.add_argument("--cpu-isa", help="ibid's kernels, as avx2 beside a peer that was built without more")
    parser.add_argument("--repeats", "-r", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=1e9, help="no repeat begins that would end later")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME[=PATH]", help=", ".join(PEERS))
    parser.add_argument("--ibid", default=str(ROOT / "build" / "ibid"))
    parser.add_argument("--limits", default=str(ROOT / "build" / "limits_bench"))
    parser.add_argument("--serving", default=str(ROOT / "build" / "serving_bench"))
    parser.add_argument("--json", type=Path, help="write everything, every sample included, to this file")
    parser.add_argument("--page", type=Path, help="put the table into this page, and the picture beside it")
    parser.add_argument("--at-least", type=float, default=0.0, help="the smallest ratio that passes")
    parser.add_argument("--peer-run", metavar="MODEL", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.p = [int(p) for p in args.p.split(",")]
    args.depth = [int(d) for d in args.depth.split(",") if int(d) > 0]
    args.threads = [int(t) for t in args.threads.split(",")]
    args.streams = [int(s) for s in args.streams.split(",") if int(s) > 1]
    args.served = [int(s) for s in args.served.split(",") if int(s) > 0]
    for peer in args.peer:
        if peer.split("=")[0] not in PEERS:
            parser.error(f"no peer is called {peer.split('=')[0]}; there are {', '.join(PEERS)}")
    return args


def needed(args: argparse.Namespace) -> list[str]:
    """The programs of this repository that the run will start."""
    return [args.ibid, args.limits] + ([args.serving] if args.served else [])


def main() -> int:
    args = parse()
    begin = time.monotonic()
    if args.peer_run:
        print(json.dumps(run_llama_cpp_python(args.peer_run, Work(args, args.threads[0]))))
        return 0
    if missing := [path for path in needed(args) if not os.access(path, os.X_OK)]:
        builds = " ".join(Path(path).name for path in missing)
        print(f"missing: {', '.join(missing)}; build with: ninja -C build {builds}", file=sys.stderr)
        return 2
    works = [Work(args, threads) for threads in args.threads]
    names = args.models or ["default"] + [f"default:{t}" for t in args.types.split(",") if t]
    models = {name: model_path(name, args.ibid) for name in names}
    facts = {name: compare_table.Facts(output([args.ibid, "inspect", "--tensors", path])) for name, path in models.items()}
    engines = [("ibid", ours, args.ibid)]
    engines += [(LABELS[p.split("=")[0]], PEERS[p.split("=")[0]], p.partition("=")[2]) for p in args.peer]
    load = os.getloadavg()[0]
    limits = limits_of(args.limits, max(args.threads), args.cpu_isa, None)
    samples, repeats = measure(models, engines, works, args.repeats, begin + 60 * args.minutes)
    if repeats == 0:
        print("not one repeat was whole in time", file=sys.stderr)
        return 3
    limits = limits_of(args.limits, max(args.threads), args.cpu_isa, limits)
    bounds = {(name, task): compare_table.bound(facts[name], task, limits[task.threads - 1]) for name, task in samples}
    report = {
        "machine": machine(), "commit": commit(), "date": datetime.date.today().isoformat(), "threads": args.threads,
        "repeats": repeats, "load": [load, os.getloadavg()[0]], "limits": limits, "command": command_line(sys.argv[1:]),
        "rows": compare_table.rows_of(samples, bounds),
    }  # fmt: skip
    print(section(report))
    if args.json:
        args.json.write_text(json.dumps(report, indent=1) + "\n")
    if args.page:
        write_page(args.page, report)
    return 0 if all(ratio >= args.at_least for row in report["rows"] for ratio in row["ratio"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
