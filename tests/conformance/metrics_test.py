"""/metrics against the log of requests, against what clients saw, and against promtool; the dashboard and the page
against /metrics. metrics_test.py BUILD_DIR."""
import collections
import functools
import http.client
import json
import pathlib
import queue
import random
import re
import select
import subprocess
import tempfile
import threading
import time

import tiny_model
from harness import BUILD, IBID, ROOT, Server, debian_program, eventually, main, post_bytes, read_all

KEYS = {"alpha": "alpha-key-1", "beta": "beta-key-22"}
MAX_CONNECTIONS, CONTEXT, KV_TOKENS = 60, 2048, 4096
STEP_TOKENS = 128
FLAGS = ["--ctx", CONTEXT, "--max-tokens-per-step", STEP_TOKENS, "--kv-memory", KV_TOKENS * 2048, "--max-sequences", 16, "--max-waiting", 60,
         "--max-connections-per-address", MAX_CONNECTIONS, "--max-header-bytes", "4K", "--max-body-bytes", "64K",
         "--header-timeout", 1, "--body-timeout", 1, "--max-stream-backlog", "1K", "--send-buffer", "4K", "--log-json"]
ABORTS = ("client_gone", "slow_reader", "shutdown", "no_memory")
# The statuses of docs/users/api.md, as kinds of errors.
KINDS = {400: "bad_request", 401: "forbidden", 403: "forbidden", 404: "not_found", 405: "not_found", 408: "timeout",
         413: "too_large", 431: "too_large", 429: "too_many", 503: "unavailable", 500: "internal", 501: "bad_request",
         499: "client_gone", 415: "bad_request"}
# Sums of some hundred doubles, each within half a unit of its last place.
TOLERANCE = 1e-9


class Users:
    """Sends requests, each with an id of its own, and remembers what came of them."""

    def __init__(self, server):
        self.server, self.lock, self.n = server, threading.Lock(), 0
        self.seen = {}  # id: (status or None where the client went, seconds)
        self.ledgers = {}  # id: what its answer reports of its time
        self.several = set()  # ids of requests for several choices

    def new_id(self):
        with self.lock:
            self.n += 1
            return f"user-{self.n}"

    def note(self, request_id, status, seconds=None):
        with self.lock:
            self.seen[request_id] = (status, seconds)

    def headers(self, request_id, key="alpha"):
        return f"Connection: close\r\nX-Request-Id: {request_id}\r\n" + (f"X-Api-Key: {KEYS[key]}\r\n" if key else "")

    def ask(self, path, body=None, key="alpha", method=None):
        """A whole exchange; the answer's text."""
        request_id, begin = self.new_id(), time.monotonic()
        head = self.headers(request_id, key)
        if body is None:
            data = f"{method or 'GET'} {path} HTTP/1.1\r\nHost: localhost\r\n{head}\r\n".encode()
        else:
            data = post_bytes(path, body, head)
        with self.server.connect(data) as s:
            text = read_all(s, 60)
        assert text.startswith(b"HTTP/1.1 "), (path, body, text[:200])
        self.note(request_id, int(text[9:12]), time.monotonic() - begin)
        if told := re.search(rb'"ledger":(\{"queue_ms[^}]*\})', text):
            self.ledgers[request_id] = json.loads(told[1])
            self.several |= {request_id} if body.get("n", 1) > 1 else set()
        return text

    def raw(self, data, statuses):
        """Bytes that HTTP itself refuses: such a request has the id that the server gives it."""
        with self.server.connect(data) as s:
            text = read_all(s)
        status = int(text[9:12]) if text else 408
        assert status in statuses, (data[:100], text[:200])
        given = re.search(rb"X-Request-Id: (\S+)", text)
        self.note(given[1].decode() if given else self.new_id() + "-untold", status)

    def leave(self, path, body, after):
        """Goes away: `after` some bytes of the answer have come, or after so many seconds."""
        request_id = self.new_id()
        with self.server.connect(post_bytes(path, body, self.headers(request_id))) as s:
            if isinstance(after, bytes):
                text = b""
                while after not in text:
                    piece = s.recv(4096)
                    assert piece, text
                    text += piece
            else:
                time.sleep(after)
        self.note(request_id, None)


def mix(users, draw):
    """One of each kind of request that there is, as functions."""
    chat, complete = "/v1/chat/completions", "/v1/completions"
    def talk(**more):
        return {"messages": [{"role": "user", "content": f"Question {draw.randrange(10**6)}"}], "max_tokens": 40, **more}
    common = "A beginning that many prompts share, long enough for some blocks of the cache. "
    none_left = {"allowed_token_ids": [65], "logit_bias": [[65, False]]}
    ask, both = users.ask, draw.choice(["alpha", "beta"])
    return [functools.partial(*call) for call in [
        (ask, chat, talk()), (ask, chat, talk(), "beta"), (ask, chat, talk(stream=True)),
        (ask, chat, talk(n=3, ignore_eos=True, max_tokens=draw.randrange(1, 30))),
        (ask, chat, talk(n=2, stream=True, stream_options={"include_usage": True})),
        (ask, chat, talk(n=2, stream=True, ledger=True)), (ask, chat, talk(ledger=True)),
        (ask, chat, talk(logprobs=True, top_logprobs=3, max_tokens=9)), (ask, chat, talk(min_tokens=20)),
        (ask, complete, {"prompt": common + "and goes on", "max_tokens": 5, "cache_salt": "s"}),
        (ask, complete, {"prompt": common + "and ends", "max_tokens": 40, "stop": ["e", "a", "\n"]}, both),
        (ask, complete, {"prompt": ["one", "two", [65, 66, 67]], "n": 2, "max_tokens": 20}),
        (ask, complete, {"prompt": ["one", "two"], "n": 3, "max_tokens": 20, "stream": True}),
        (ask, complete, {"prompt": common, "echo": True, "logprobs": 2, "max_tokens": 0}),
        (ask, complete, {"prompt": "x", "max_tokens": 7, **none_left}),
        (ask, complete, {"prompt": ["x", "y"], "max_tokens": 7, "stream": True, **none_left}),
        (ask, complete, {"prompt": "x" * (CONTEXT + 1)}), (ask, complete, {"prompt": 3}), (ask, complete, b"{no json"),
        (ask, chat, talk(temperature=-1)), (ask, chat, talk(model="another")), (ask, chat, talk(tools=[{}])),
        (ask, chat, talk(), None), (ask, "/metrics", None, None), (ask, "/nowhere"), (ask, chat), (ask, "/health"),
        (ask, "/version", None, "alpha", "DELETE"), (ask, "/health", None, None), (ask, "/v1/models"),
        (ask, "/v1/models/another"), (ask, "/metrics"), (ask, "/engine"), (ask, "/openapi.json"), (ask, "/"),
        (ask, "/tokenize", {"content": "some text"}), (ask, "/detokenize", {"tokens": [1, 10**6]}),
        (ask, "/apply-template", {"messages": [{"role": "user", "content": "x"}]}),
        (users.leave, chat, talk(stream=True, ignore_eos=True), b"data: "),
        (users.leave, complete, {"prompt": "x", "n": 4, "max_tokens": 40, "ignore_eos": True}, draw.random() * 0.05),
        (users.leave, complete, {"prompt": "x", "max_tokens": 40, "stream": True, "ignore_eos": True}, draw.random() * 0.02),
        (users.raw, b"NO HTTP\r\n\r\n", [400]), (users.raw, b"GET / HTTP/1.1\r\n\r\n", [400]),
        (users.raw, b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 9000 + b"\r\n\r\n", [431]),
        (users.raw, post_bytes(chat, b" " * 70000), [413]),
    ]]


def at_once(jobs, n_threads):
    waiting, errors = queue.SimpleQueue(), []
    for job in jobs:
        waiting.put(job)

    def work():
        while not errors:
            try:
                waiting.get_nowait()()
            except queue.Empty:
                return
            except Exception as error:  # told by the test's own thread
                errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(n_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def read_slowly(users):
    """A stream whose client reads nothing until it is ended."""
    request_id = users.new_id()
    body = {"prompt": "x", "max_tokens": 1900, "ignore_eos": True, "stream": True, "logprobs": 5}
    with users.server.connect(post_bytes("/v1/completions", body, users.headers(request_id)), receive_buffer=2048) as s:
        eventually(lambda: f'"{request_id}"' in users.server.log_text())
        users.note(request_id, None)
        read_all(s)


def fill_connections(users):
    """Connections beyond the bound; how many were refused."""
    held = [users.server.connect() for _ in range(MAX_CONNECTIONS + 7)]
    assert select.select(held[-1:], [], [], 60)[0]  # they are taken in turn, and the last one is beyond the bound
    answered, _, _ = select.select(held, [], [], 0)
    n_refused = sum(s.recv(100).startswith(b"HTTP/1.1 503") for s in answered)
    for s in held:
        s.close()
    return n_refused


def follow_steps(users, line):
    """Some requests one after another; all steps meanwhile, as /engine reports them."""
    steps = []
    for i in range(6):
        users.ask("/v1/completions", {"prompt": f"{i} " + "step " * 50 * i, "n": 1 + i % 3, "max_tokens": 60, "ignore_eos": True})
        for _ in range(100):  # an answer may be there a moment before its last step is
            told = json.loads(line.get(f"/engine?since={steps[-1]['n'] if steps else -1}"))
            steps += told["steps"]
            if steps[-1]["n"] == told["steps_total"]:
                break
            time.sleep(0.01)
    return steps


class Line:
    """One connection that stays: its requests are finished, for log and metrics too, before the next is read."""

    def __init__(self, server):
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)

    def get(self, path, request_id="line"):
        self.connection.request("GET", path, headers={"X-Api-Key": KEYS["alpha"], "X-Request-Id": request_id})
        return self.connection.getresponse().read().decode()


def samples_of(text):
    """{name with labels: value} of Prometheus's text form."""
    found = re.findall(r"^(\w+(?:\{[^}]*\})?) (\S+)$", text, re.M)
    values = {name: float(value) for name, value in found}
    assert len(found) == len(values), "a sample stands twice"
    return values


def add_histogram(values, name, times, bounds):
    for bound in bounds:
        values[f'ibid_{name}_bucket{{le="{bound}"}}'] = sum(t <= float(bound.replace("+Inf", "inf")) for t in times)
    values[f"ibid_{name}_sum"], values[f"ibid_{name}_count"] = sum(times), len(times)


def recomputed(lines, bounds):
    """Every sample of /metrics that the log's lines imply."""
    values = collections.Counter()
    answers = [line for line in lines if "prompt_tokens" in line]
    in_seconds = lambda line, key: round(line[key] * 1000) / 1e6  # noqa: E731
    add_histogram(values, "request_seconds", [in_seconds(line, "total_ms") for line in answers], bounds["request_seconds"])
    for line in answers:
        phases = 0
        for phase, ms in line["ledger_ms"].items():
            values[f'ibid_request_phase_seconds_total{{phase="{phase}"}}'] += round(ms * 1000) / 1e6
            phases += round(ms * 1000) / 1e6
        assert abs(phases - in_seconds(line, "total_ms")) < 1e-3, (phases, line)
    for name, key in (("request_prompt_tokens", "prompt_tokens"), ("request_generated_tokens", "completion_tokens")):
        add_histogram(values, name, [line[key] for line in answers], bounds[name])
    for name, key in (("time_to_first_token_seconds", "ttft_ms"), ("queue_seconds", "queue_ms"),
                      ("prefill_seconds", "prefill_ms"), ("decode_seconds", "decode_ms")):
        add_histogram(values, name, [in_seconds(line, key) for line in answers if key in line], bounds[name])
    name = "inter_token_latency_seconds"
    for line in answers:
        assert sum(line.get("itl_buckets", {}).values()) == line.get("itl_count", 0), line
        for bound in bounds[name]:
            below = [n for le, n in line.get("itl_buckets", {}).items() if float(le) <= float(bound)]
            values[f'ibid_{name}_bucket{{le="{bound}"}}'] += sum(below)
        values[f"ibid_{name}_sum"] += line.get("itl_sum_ms", 0) / 1000
        values[f"ibid_{name}_count"] += line.get("itl_count", 0)
        for reason, n in line["choices"].items():
            values[f'ibid_choices_finished_total{{reason="{reason}"}}'] += n
        values["ibid_prompt_tokens_total"] += line["prompt_tokens"]
        values["ibid_cached_tokens_total"] += line["cached_tokens"]
        values["ibid_generated_tokens_total"] += line["completion_tokens"]
        values["ibid_preemptions_total"] += line["preemptions"]
        values[f'ibid_tenant_tokens_total{{tenant="{line["tenant"]}"}}'] += line["prompt_tokens"] + line["completion_tokens"]
    for line in lines:
        values[f'ibid_responses_total{{route="{line["route"]}",status="{line["status"] // 100}xx"}}'] += 1
        if line["status"] >= 400:
            values[f'ibid_errors_total{{kind="{KINDS[line["status"]]}"}}'] += 1
        if line["status"] == 429:  # each by its tenant's part of the queue
            values[f'ibid_tenant_refused_total{{tenant="{line["tenant"]}"}}'] += 1
        if line.get("finish") in ABORTS:
            values[f'ibid_aborts_total{{cause="{line["finish"]}"}}'] += 1
    return values


def add_steps(values, steps, bounds):
    """Those of the steps, from /engine. Only what `steps` covers: a difference of two readings."""
    parts = ("plan", "forward", "sample", "settle")
    of = lambda step, part: round(step[part + "_ms"] * 1000) / 1e6  # noqa: E731
    add_histogram(values, "step_seconds", [round(sum(of(s, p) for p in parts), 6) for s in steps], bounds)
    for part in parts:
        values[f'ibid_step_part_seconds_total{{part="{part}"}}'] = sum(of(s, part) for s in steps)
    for kind in ("prefill", "decode"):
        values[f'ibid_step_tokens_total{{kind="{kind}"}}'] = sum(s[kind] for s in steps)
    values["ibid_steps_total"] = len(steps)


def differences(got, wanted, names):
    return [f"{name}: /metrics has {got.get(name)}, recomputed is {wanted[name]}" for name in sorted(names)
            if abs(got.get(name, 0) - wanted[name]) > TOLERANCE * max(1, abs(wanted[name]))]


def run_everything(server):
    """Serves all kinds of requests; what there is to know afterwards."""
    users, line, draw = Users(server), Line(server), random.Random(7)
    before = samples_of(line.get("/metrics"))
    steps = follow_steps(users, line)
    after = samples_of(line.get("/metrics"))
    jobs = [job for _ in range(8) for job in mix(users, draw)]
    draw.shuffle(jobs)
    at_once(jobs, 12)
    users.raw(b"GET / HTTP/1.1\r\nHo", [408])
    users.raw(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{", [408])
    burst = {"prompt": "burst", "n": 4, "max_tokens": 30, "ignore_eos": True}
    at_once([functools.partial(users.ask, "/v1/completions", burst)] * 50, 50)  # beyond the queue
    long = {"prompt": "long", "max_tokens": 700, "ignore_eos": True}
    at_once([functools.partial(users.ask, "/v1/completions", long)] * 12, 12)  # beyond the memory
    read_slowly(users)
    n_refused = fill_connections(users)
    quiet = lambda: samples_of(line.get("/metrics"))["ibid_connections"] == 1  # noqa: E731
    assert eventually(quiet), "connections stay open"
    engine = json.loads(line.get("/engine"))
    text = line.get("/metrics", "the-last")
    server.wait_for_log("the-last")
    lines = [json.loads(entry) for entry in server.log_text().splitlines()]
    lines = [entry for entry in lines if entry["event"] == "request" and entry["id"] != "the-last"]
    return {"text": text, "lines": lines, "users": users, "engine": engine, "n_refused": n_refused,
            "steps": steps, "before": before, "after": after}


@functools.cache
def facts():
    with tempfile.TemporaryDirectory() as folder:
        model = tiny_model.make(folder + "/tiny", width=512)
        keys = [flag for tenant, key in KEYS.items() for flag in ("--api-key", f"{tenant}:{key}")]
        with Server([IBID, "serve", model, "--port", 0, *FLAGS, *keys]) as server:
            found = run_everything(server)
            assert server.end()[0] == 0
            return found


def bounds_of(got):
    bounds = collections.defaultdict(list)
    for name in got:
        if found := re.fullmatch(r'ibid_(\w+)_bucket\{le="([^"]+)"\}', name):
            bounds[found[1]].append(found[2])
    return bounds


def test_the_log_has_a_line_for_each_request_as_its_client_saw_it():
    lines, seen = facts()["lines"], facts()["users"].seen
    by_id = {line["id"]: line for line in lines if line["id"] != "line"}
    told = {i: s for i, s in seen.items() if not i.endswith("-untold")}
    untold = sorted(s for i, (s, _) in seen.items() if i.endswith("-untold"))
    assert set(told) <= set(by_id), set(told) - set(by_id)
    assert sorted(by_id[i]["status"] for i in set(by_id) - set(told)) == untold
    for request_id, (status, seconds) in told.items():
        line = by_id[request_id]
        assert status is None or status == line["status"], (status, line)
        assert seconds is None or line["total_ms"] <= seconds * 1000 + 1, (seconds, line)
        if "ttft_ms" in line:
            assert 0 <= line["queue_ms"] <= line["ttft_ms"] <= line["total_ms"], line
    return f"{len(seen)} requests"


def test_a_ledger_adds_up_to_its_answers_time():
    users = facts()["users"]
    assert len(users.ledgers) > 10
    for request_id, ledger in users.ledgers.items():
        seconds = users.seen[request_id][1]
        total = ledger.pop("total_ms")
        assert abs(sum(ledger.values()) - total) < 1 and min(ledger.values()) > -1e-3, (ledger, total)
        assert 0 < total <= seconds * 1000 + 1, (total, seconds)
        assert ledger["decode_ms"] > 0 and ledger["sampling_ms"] > 0, ledger
        # A further choice computes nothing of the prompt.
        assert ledger["prefill_ms"] > 0 or request_id in users.several, ledger
    return f"{len(users.ledgers)} ledgers"


def kernels():
    flags = set(re.search(r"^(?:flags|Features)\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)[1].split())
    wide = {"avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl"}
    sets = {"avx512_bf16": wide | {"avx512_vnni", "avx512_bf16"}, "avx512_vnni": wide | {"avx512_vnni"}, "avx512": wide,
            "avx2_vnni": {"avx2", "fma", "f16c", "avx_vnni"}, "avx2": {"avx2", "fma", "f16c"},
            "neon_i8mm": {"asimddp", "i8mm"}, "neon_dotprod": {"asimddp"}, "neon": {"asimd"}, "baseline": set()}
    return next(name for name, needs in sets.items() if needs <= flags)


def test_metrics_equal_the_log():
    f = facts()
    got = samples_of(f["text"])
    bounds = bounds_of(got)
    wanted = recomputed(f["lines"], bounds)
    wanted["ibid_connections_refused_total"] = f["n_refused"]
    shown = {t["tenant"]: t for t in f["engine"]["tenants"]}
    assert set(shown) == set(KEYS), shown
    for tenant, figures in shown.items():
        for key, name in (("sequences", "sequences"), ("tokens", "tokens_total"), ("refused", "refused_total")):
            assert figures[key] == got[f'ibid_tenant_{name}{{tenant="{tenant}"}}'], (tenant, key)
    blocks = f["engine"]["blocks"]
    for state in ("free", "cached", "in_use"):
        wanted[f'ibid_cache_blocks{{state="{state}"}}'] = blocks[state]
    wanted.update({"ibid_cache_blocks_shared": blocks["shared"], "ibid_steps_total": f["engine"]["steps_total"],
                   "ibid_draft_tokens_total": f["engine"]["tokens"]["drafted"],
                   "ibid_accepted_draft_tokens_total": f["engine"]["tokens"]["accepted"],
                   "ibid_cache_use_ratio": blocks["in_use"] / blocks["total"], "ibid_connections": 1, "ibid_body_bytes": 0, "ibid_ready": 1,
                   f'ibid_kernels{{isa="{kernels()}"}}': 1})
    of_steps = {name for name in got if name.startswith(("ibid_step_seconds", "ibid_step_part", "ibid_step_tokens", "ibid_step_prediction",
                                                          "ibid_drafts", "ibid_accepted_draft_tokens_at"))}
    by_place = [value for name, value in got.items() if name.startswith("ibid_accepted_draft_tokens_at_total")]
    assert sum(by_place) == f["engine"]["tokens"]["accepted"] and by_place == sorted(by_place, reverse=True), by_place
    # A line is written when its client goes; until the engine hears of that it may preempt the request once more.
    late = got["ibid_preemptions_total"] - wanted["ibid_preemptions_total"]
    assert 0 <= late <= sum(wanted[f'ibid_aborts_total{{cause="{cause}"}}'] for cause in ("client_gone", "slow_reader")), late
    wanted["ibid_preemptions_total"] += late
    missing = set(wanted) - set(got)
    assert not missing, missing
    # A sample that nothing recomputes must be 0: nothing of its kind happened.
    names = set(got) - of_steps - {"ibid_uptime_seconds", "ibid_predicted_first_token_seconds"}
    wrong = differences(got, wanted, names)
    assert not wrong, "\n".join(wrong)
    happened = [wanted[name] > 0 for name in (
        "ibid_preemptions_total", "ibid_cached_tokens_total", 'ibid_aborts_total{cause="client_gone"}',
        'ibid_aborts_total{cause="slow_reader"}', 'ibid_choices_finished_total{reason="error"}',
        'ibid_choices_finished_total{reason="eos"}', 'ibid_choices_finished_total{reason="stop"}',
        'ibid_choices_finished_total{reason="length"}', "ibid_connections_refused_total",
        *(f'ibid_errors_total{{kind="{k}"}}' for k in set(KINDS.values()) - {"internal", "unavailable"}))]
    assert all(happened), (happened, wanted)
    return f"{len(names)} samples from {len(f['lines'])} lines, {int(wanted['ibid_preemptions_total'])} preemptions"


def test_step_times_equal_those_of_the_engine_view():
    f = facts()
    got = {name: value - f["before"][name] for name, value in f["after"].items()}
    wanted = collections.Counter()
    add_steps(wanted, f["steps"], bounds_of(got)["step_seconds"])
    wrong = differences(got, wanted, wanted)
    assert not wrong and len(f["steps"]) > 100, "\n".join(wrong)
    # Both could be blind to the same steps: the engine numbers them, and prompts longer than a step need several.
    assert [s["n"] for s in f["steps"]] == list(range(1, len(f["steps"]) + 1)), "a step is left out"
    chunks = [s["prefill"] for s in f["steps"] if s["prefill"] > 0]  # how large depends on how fast steps are
    assert len(chunks) > 25 and max(chunks) <= STEP_TOKENS, chunks
    assert sum(s["prefill"] for s in f["steps"]) > 0.9 * sum(2 + 250 * i for i in range(6)), "prompts are missing"
    return f"{len(f['steps'])} steps"


def dashboard():
    board = json.loads((ROOT / "packaging/grafana-dashboard.json").read_text())
    return [(panel["title"], target) for panel in board["panels"] for target in panel["targets"]]


def names_of(text):
    return set(re.findall(r"^(\w+)(?:\{| )", text, re.M))


def test_the_dashboard_asks_for_metrics_and_labels_that_exist():
    text = facts()["text"]
    names, n = names_of(text), 0
    for title, target in dashboard():
        used = set(re.findall(r"\bibid_\w+", target["expr"]))
        assert used and used <= names, (title, used - names)
        labels = {label for sample in re.findall(r"^(\w+)\{([^}]*)\}", text, re.M) if sample[0] in used
                  for label in re.findall(r"(\w+)=", sample[1])}
        asked = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        for grouping in re.findall(r"\bby \(([^)]*)\)", target["expr"]):
            asked |= set(re.findall(r"\w+", grouping))
        assert asked <= labels, (title, asked - labels)
        n += 1
    assert n > 15
    return f"{n} expressions"


def test_the_page_for_operators_lists_every_metric():
    page = (ROOT / "docs/users/metrics.md").read_text()
    # Those by model are reported if several models are served (ServerFleet).
    listed = {name for name in re.findall(r"`(ibid_\w+)", page) if not name.startswith("ibid_model_")}
    kinds = dict(re.findall(r"^# TYPE (\w+) (\w+)$", facts()["text"], re.M))
    assert kinds and set(kinds) == listed, (set(kinds) ^ listed)


# What vLLM's own dashboard and llama.cpp's page name, and our names of the same: the values must be equal.
SAME = {
    "vllm": {"num_requests_running": "sequences_running", "num_requests_waiting": "sequences_waiting",
             "kv_cache_usage_perc": "cache_use_ratio", "prompt_tokens_total": "prompt_tokens_total",
             "generation_tokens_total": "generated_tokens_total", "num_preemptions_total": "preemptions_total",
             "prefix_cache_queries_total": "prompt_tokens_total", "prefix_cache_hits_total": "cached_tokens_total",
             "e2e_request_latency_seconds_count": "request_seconds_count",
             "time_to_first_token_seconds_count": "time_to_first_token_seconds_count",
             "inter_token_latency_seconds_count": "inter_token_latency_seconds_count",
             "request_prompt_tokens_sum": "request_prompt_tokens_sum",
             "request_generation_tokens_sum": "request_generated_tokens_sum",
             "request_success_total": "choices_finished_total"},
    "llama.cpp": {"tokens_predicted_total": "generated_tokens_total", "n_decode_total": "steps_total",
                  "requests_processing": "sequences_running", "requests_deferred": "sequences_waiting",
                  "prompt_tokens_total": 'step_tokens_total{kind="prefill"}', "prompt_seconds_total": "prefill_seconds_sum",
                  "tokens_predicted_seconds_total": "decode_seconds_sum"}}


@functools.cache
def under_the_names_of(names):
    """/metrics of a server that answers the same few requests, whatever it calls them."""
    with tempfile.TemporaryDirectory() as folder:
        model = tiny_model.make(folder + "/tiny")
        with Server([IBID, "serve", model, "--port", 0, "--ctx", 512, "--metrics-names", names]) as server:
            for i in range(5):
                server.post("/v1/completions", {"prompt": "one after the other " * i + "x", "max_tokens": 9, "n": 2, "temperature": 0})
            assert eventually(lambda: samples_of(server.get("/metrics")).get("ibid_requests_active") == 0)
            return server.get("/metrics")


def test_the_queues_gauges_rise_and_fall_with_it():
    # One place, and requests as long as any: all but one wait with what no step has computed, until they are done.
    with tempfile.TemporaryDirectory() as folder:
        model = tiny_model.make(folder + "/tiny")
        with Server([IBID, "serve", model, "--port", 0, "--ctx", 1024, "--max-sequences", 1]) as server:
            def queue():
                values = samples_of(server.get("/metrics"))
                return values["ibid_queue_tokens"], values["ibid_predicted_first_token_seconds"]

            def ask(i, max_tokens=800):  # no prompt begins like another
                return server.post("/v1/completions", {"prompt": f"{i:02} " + "x" * 200, "max_tokens": max_tokens,
                                                       "temperature": 0, "ignore_eos": True})

            n_prompt = ask(99, 1)["usage"]["prompt_tokens"]
            assert eventually(lambda: queue()[0] == 0), queue()
            alone = queue()[1]
            clients = [threading.Thread(target=ask, args=(i,)) for i in range(24)]
            for client in clients:
                client.start()
            seen = []
            while any(client.is_alive() for client in clients):
                seen.append(queue())
            waited = [(tokens, seconds) for tokens, seconds in seen if tokens >= 2 * n_prompt]
            assert waited and alone > 0, seen
            assert all(tokens <= 24 * n_prompt for tokens, _ in seen), seen
            assert max(seconds for _, seconds in waited) > 3 * alone, (alone, waited)
            assert eventually(lambda: queue()[0] == 0), queue()
            return f"{len(waited)} of {len(seen)} looks met a queue"


def sum_of(values, name):
    return sum(value for sample, value in values.items() if sample == name or sample.startswith(name + "{"))


def test_other_engines_names_have_our_values():
    ours = samples_of(under_the_names_of("ibid"))
    for names, same in SAME.items():
        text = under_the_names_of(names).replace("vllm:", "vllm_").replace("llamacpp:", "llamacpp_")
        theirs, prefix = samples_of(text), {"vllm": "vllm_", "llama.cpp": "llamacpp_"}[names]
        assert prefix + next(iter(same)) in names_of(text), text
        for name, our_name in same.items():
            got, wanted = sum_of(theirs, prefix + name), sum_of(ours, "ibid_" + our_name)
            close = got > 0 and wanted > 0 if "seconds" in name and "count" not in name else got == wanted
            assert close, (names, name, got, our_name, wanted)
    return f"{sum(map(len, SAME.values()))} names"


def promtool(*arguments, lint=None, **more):
    """`lint`: an expression that each complaint about names must fit; without it there must be none."""
    program = debian_program("prometheus", "usr/bin/promtool")
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=600, **more)
    if lint and done.returncode == 3:
        assert all(re.search(lint, line) for line in done.stderr.splitlines() if line), done.stderr
    else:
        assert done.returncode == 0 and not done.stderr.strip(), (arguments, done.stdout, done.stderr)


def test_promtool_accepts_metrics_configuration_and_expressions():
    # Of vLLM's own names the colon alone is complained of.
    promtool("check", "metrics", input=facts()["text"], lint="^vllm:.* should not contain ':'$")
    # Others' names are what they are: the form must be right, and the names may have what promtool would not choose.
    allowed = r"should not contain ':'|vllm:iteration_tokens_total .*should not have|llamacpp:\w+ .*(base unit|plural)"
    for names in SAME:
        promtool("check", "metrics", input=under_the_names_of(names), lint=allowed)
    promtool("check", "config", "--syntax-only", ROOT / "packaging/prometheus.yml")
    rules = [{"record": f"dashboard:{i}", "expr": target["expr"].replace("$__rate_interval", "1m")}
             for i, (_, target) in enumerate(dashboard())]
    file = BUILD / "dashboard-rules.yml"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    promtool("check", "rules", file)
    promtool("check", "rules", ROOT / "packaging/prometheus-rules.yml")


def test_alerts_ask_for_what_there_is_and_fire():
    rules = (ROOT / "packaging/prometheus-rules.yml").read_text()
    there = names_of(facts()["text"])
    asked = set(re.findall(r"\b(ibid_\w+)", rules))
    assert asked and asked <= there, asked - there
    alerts = re.findall(r"alert: (\w+)", rules)
    series = [  # the metric, its value at each minute, the alert that it raises after 20 minutes
        ('ibid_ready{instance="a"}', "0x30", "IbidIsNotReady"),
        ('ibid_time_to_first_token_seconds_bucket{instance="a",le="10"}', "0x30", None),
        ('ibid_time_to_first_token_seconds_bucket{instance="a",le="20"}', "0+9x30", "IbidWaitsLong"),
        ('ibid_time_to_first_token_seconds_bucket{instance="a",le="+Inf"}', "0+9x30", None),
        ('ibid_predicted_first_token_seconds{instance="a"}', "12x30", "IbidHasALongQueue"),
        ('ibid_inter_token_latency_seconds_bucket{instance="a",le="0.5"}', "0x30", None),
        ('ibid_inter_token_latency_seconds_bucket{instance="a",le="1"}', "0+9x30", "IbidTokensAreSlow"),
        ('ibid_inter_token_latency_seconds_bucket{instance="a",le="+Inf"}', "0+9x30", None),
        ('ibid_errors_total{instance="a",kind="too_many"}', "0+60x30", "IbidRefusesRequests"),
        ('ibid_choices_finished_total{instance="a",reason="error"}', "0+1x30", "IbidFails"),
        ('ibid_preemptions_total{instance="a"}', "0+60x30", "IbidPreempts"),
        ('ibid_log_lines_lost_total{instance="a"}', "0+1x30", "IbidLosesLogLines"),
        ('ibid_recording{instance="a"}', "1x17 0x13", "IbidStoppedRecording")]
    assert sorted(alert for _, _, alert in series if alert) == sorted(alerts)
    # Each has its labels, whatever they are: as many as one expects alone are a test that it fires.
    file, test = BUILD / "alerts.yml", BUILD / "alerts-test.yml"
    file.write_text(rules)
    expected = [{"expr": "sum by (alertname) (ALERTS{alertstate='firing'})", "eval_time": "20m",
                 "exp_samples": [{"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in sorted(alerts)]},
                {"expr": "ALERTS{instance='b'}", "eval_time": "20m", "exp_samples": []}]
    calm = [(name.replace('"a"', '"b"'), "1x30" if "ready" in name or "recording" in name else "0x30") for name, _, _ in series]
    test.write_text(json.dumps({"rule_files": [str(file)], "evaluation_interval": "1m", "tests": [
        {"interval": "1m", "promql_expr_test": expected,
         "input_series": [{"series": name, "values": values} for name, values, *_ in [*series, *calm]]}]}))
    promtool("test", "rules", test)
    return f"{len(alerts)} alerts"


if __name__ == "__main__":
    main(test_a_ledger_adds_up_to_its_answers_time, test_the_log_has_a_line_for_each_request_as_its_client_saw_it, test_metrics_equal_the_log,
         test_step_times_equal_those_of_the_engine_view, test_the_dashboard_asks_for_metrics_and_labels_that_exist,
         test_the_page_for_operators_lists_every_metric, test_the_queues_gauges_rise_and_fall_with_it, test_other_engines_names_have_our_values,
         test_promtool_accepts_metrics_configuration_and_expressions, test_alerts_ask_for_what_there_is_and_fire)
