"""Two replicas behind the routers that can be installed here, each of a pinned version: whether a client sees what it sees of a
server, how many prefixes of a trace are found, and what becomes of eight streams where one replica is killed.
fronts_test.py BUILD_DIR [NAME...]. By hand: it fetches the routers. Prints the table of docs/users/replicas.md."""
import contextlib
import http.client
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error

import tiny_model
from harness import BUILD, IBID, ROOT, Server, Skip, debian_program, default_model, eventually, main, venv

os.environ.setdefault("IBID_LIBRARY", str(BUILD / "libibid.so.1"))
sys.path.insert(0, str(ROOT / "python"))

PROMPTS = ["Tell me about the sea.", "Write a short story about a clock.", "What is a prime number?", "Describe a forest in autumn.",
           "How does a bicycle stay upright?", "List ten uses of a paper clip.", "Why is the sky blue?", "Explain rain to a child."]
N_TOKENS, N_BEFORE = 160, 16  # of each stream, and those that all have when a replica is killed


def free_ports(n):
    sockets = [socket.socket() for _ in range(n)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


class Replicas:
    """Two servers of one model; with KV events where a router reads them."""

    def __init__(self, with_events):
        self.folder = tempfile.TemporaryDirectory()
        try:
            model = default_model()
        except Skip:
            model = [tiny_model.make(self.folder.name + "/tiny", width=512)]
        self.event_ports = free_ports(4) if with_events else []
        self.servers = []
        for i in range(2):
            events = ["--kv-events", f"tcp://127.0.0.1:{self.event_ports[2 * i]}", "--kv-events-replay",
                      f"tcp://127.0.0.1:{self.event_ports[2 * i + 1]}"] if with_events else []
            self.servers.append(Server([IBID, "serve", *model, "--port", 0, "--threads", 1, "--ctx", 2048, "--kv-memory", "400M",
                                        "--metrics-names", "vllm", *events]))
        self.urls = [server.url for server in self.servers]
        self.model = json.loads(self.servers[0].get("/v1/models"))["data"][0]["id"]

    def n_running(self, i):
        text = self.servers[i].get("/metrics")
        return sum(float(re.search(rf"^vllm:num_requests_{kind}\{{[^}}]*\}} (\S+)$", text, re.M)[1]) for kind in ("running", "waiting"))

    def close(self):
        for server in self.servers:
            server.kill()
        self.folder.cleanup()


class Front:
    """A router's process in front of the replicas, once it answers."""

    def __init__(self, command, port):
        self.url, self.port = f"http://127.0.0.1:{port}", port
        self.log = tempfile.NamedTemporaryFile("w+", prefix="front-")
        self.process = subprocess.Popen([str(word) for word in command], stdout=self.log, stderr=self.log)

    def wait(self, model):
        def answers():
            if self.process.poll() is not None:
                raise AssertionError(f"the router ended:\n{pathlib.Path(self.log.name).read_text()[-2000:]}")
            with contextlib.suppress(OSError, urllib.error.URLError, http.client.HTTPException):
                return ask(self, "/v1/completions", {"model": model, "prompt": "a", "max_tokens": 1})[0] == 200
            return False

        if not eventually(answers, seconds=90):
            raise AssertionError(f"the router does not answer:\n{pathlib.Path(self.log.name).read_text()[-2000:]}")

    def close(self):
        self.process.kill()
        self.process.wait()


def vllm_router(policy, with_events=False):
    def start(replicas, port):
        words = [venv("venv-vllm-router", "vllm-router==0.1.17") / "vllm-router", "--host", "127.0.0.1", "--port", port, "--worker-urls",
                 *replicas.urls, "--policy", policy, "--prometheus-port", free_ports(1)[0], "--log-level", "warning",
                 "--health-check-interval-secs", 1]
        for url, port_of_events, port_of_replay in zip(replicas.urls, replicas.event_ports[::2], replicas.event_ports[1::2]):
            words += ["--kv-event-source", f"{url}=tcp://127.0.0.1:{port_of_events}",
                      "--kv-event-replay-source", f"{url}=tcp://127.0.0.1:{port_of_replay}"]
        return Front([*words, *(["--kv-event-block-size", 16, "--kv-event-model", replicas.model] if with_events else [])], port)
    start.with_events = with_events
    return start


def smg(policy):
    def start(replicas, port):
        return Front([venv("venv-smg", "smg==1.13.0") / "smg", "launch", "--host", "127.0.0.1", "--port", port, "--worker-urls", *replicas.urls,
                      "--policy", policy, "--prometheus-port", free_ports(1)[0], "--log-level", "warn"], port)
    return start


def sglang_router(policy):
    def start(replicas, port):
        return Front([venv("venv-sglang-router", "sglang-router==0.3.2") / "sglang-router", "launch", "--host", "127.0.0.1", "--port", port, "--worker-urls",
                      *replicas.urls, "--policy", policy, "--prometheus-port", free_ports(1)[0]], port)
    return start


def nginx(replicas, port):
    folder = pathlib.Path(replicas.folder.name)
    (folder / "nginx.conf").write_text(f"""
daemon off; master_process off; pid {folder}/pid; error_log stderr warn; worker_processes 1;
events {{ worker_connections 256; }}
http {{
  access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  upstream ibid {{ hash $http_x_session_id consistent; {" ".join(f"server {url[7:]} max_fails=1 fail_timeout=5s;" for url in replicas.urls)} }}
  server {{
    listen 127.0.0.1:{port};
    location / {{ proxy_pass http://ibid; proxy_http_version 1.1; proxy_buffering off; proxy_read_timeout 600s;
                  proxy_next_upstream error timeout http_503 non_idempotent; proxy_set_header Host $host; }}
  }}
}}
""")
    return Front([debian_program("nginx", "usr/sbin/nginx"), "-p", folder, "-c", folder / "nginx.conf"], port)


FRONTS = {
    "vllm-router 0.1.17, cache_aware": vllm_router("cache_aware"),
    "vllm-router 0.1.17, kv_aware": vllm_router("kv_aware", with_events=True),
    "smg 1.13.0, cache_aware": smg("cache_aware"),
    "sglang-router 0.3.2, cache_aware": sglang_router("cache_aware"),
    "nginx 1.22, by session": nginx,
}


def ask(server, path, body=None, headers=None):
    """The status and the text; `server` has a port."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
    connection.request("GET" if body is None else "POST", path, None if body is None else json.dumps(body),
                       {"Content-Type": "application/json", **(headers or {})})
    response = connection.getresponse()
    return response.status, response.read().decode()


def smoke(replicas, front):
    """Models, a chat and a stream of it, as from a replica itself."""
    status, text = ask(front, "/v1/models")
    assert status == 200 and replicas.model in [model["id"] for model in json.loads(text)["data"]], text
    body = {"model": replicas.model, "messages": [{"role": "user", "content": PROMPTS[0]}], "temperature": 0.9, "seed": 3, "max_tokens": 24,
            "logprobs": True}

    def choice(server):
        status, text = ask(server, "/v1/chat/completions", body)
        assert status == 200, text
        return json.loads(text)["choices"]

    assert choice(front) == choice(replicas.servers[0]), (choice(front), choice(replicas.servers[0]))

    def told(server):
        status, text = ask(server, "/v1/chat/completions", {**body, "stream": True})
        assert status == 200 and text.rstrip().endswith("data: [DONE]"), text[-200:]
        choices = [choice for event in map(json.loads, re.findall(r"^data: (\{.*)$", text, re.M)) for choice in event["choices"]]
        tokens = [token for choice in choices for token in (choice["logprobs"] or {}).get("content", [])]  # events have one or several
        return "".join(choice["delta"].get("content") or "" for choice in choices), tokens, choices[-1]["finish_reason"]

    assert told(front) == told(replicas.servers[0]), (told(front), told(replicas.servers[0]))
    status, text = ask(front, "/v1/chat/completions", {**body, "temperature": "hot"})
    assert status in (400, 422) and "temperature" in text, (status, text)
    return "same bytes"


def hits(replicas, front):
    """Requests of two conversations in turns, each with its prefix; how many of those that could found it."""
    prefixes = [" ".join(f"{name} {i}" for i in range(120)) for name in ("red", "blue")]
    n_found = n = 0
    for turn in range(7):
        for number, prefix in enumerate(prefixes):
            status, text = ask(front, "/v1/completions", {"model": replicas.model, "prompt": f"{prefix} question {turn}", "max_tokens": 4},
                               {"X-Session-Id": f"conversation-{number}"})
            assert status == 200, text
            usage = json.loads(text)["usage"]
            n += turn > 0
            n_found += turn > 0 and usage["prompt_tokens_details"]["cached_tokens"] > usage["prompt_tokens"] // 2
    return f"{n_found} of {n}"


def kill(replicas, front):
    """SIGKILL for one replica in the midst of eight streams: what the front shows, and what a client that resumes has."""
    from ibid.resume import stream

    def body(i):
        return {"model": replicas.model, "messages": [{"role": "user", "content": PROMPTS[i]}], "temperature": 0.9, "seed": 70 + i,
                "max_tokens": N_TOKENS, "ignore_eos": True}

    heard, errors = [[] for _ in PROMPTS], []

    def client(i, urls, events):
        try:
            for event in stream(urls, body(i), headers={"X-Session-Id": f"client-{i}"}):
                events.append(event)
        except Exception as error:
            errors.append(f"stream {i}: {error}")

    def ids_of(events):
        return [token for event in events for choice in event["choices"] for token in choice.get("token_ids") or []]

    def text_of(events):
        return "".join(choice["delta"].get("content") or "" for event in events for choice in event["choices"])

    threads = [threading.Thread(target=client, args=(i, [front.url], heard[i])) for i in range(len(PROMPTS))]
    for thread in threads:
        thread.start()
    assert eventually(lambda: errors or all(len(ids_of(events)) >= N_BEFORE for events in heard), seconds=300)
    if errors and all("return_token_ids" in error for error in errors):
        for thread in threads:
            thread.join()
        return "drops return_token_ids"
    assert not errors, errors
    running = [replicas.n_running(i) for i in range(2)]
    victim = running.index(max(running))
    replicas.servers[victim].kill()
    killed_at = time.monotonic()
    for thread in threads:
        thread.join()
    seconds = time.monotonic() - killed_at
    assert not errors, errors
    n_equal = 0
    for i, events in enumerate(heard):
        whole = list(stream([replicas.urls[1 - victim]], body(i)))
        n_equal += (ids_of(events), text_of(events)) == (ids_of(whole), text_of(whole)) and len(ids_of(whole)) == N_TOKENS
    assert n_equal == len(PROMPTS), f"{n_equal} of {len(PROMPTS)} have the bytes of an undisturbed run"
    assert running[victim] > 0
    return f"{running[victim]:.0f} cut, {n_equal} equal ({seconds:.0f} s)"


def try_front(name):
    row, replicas = [], Replicas(getattr(FRONTS[name], "with_events", False))
    try:
        front = FRONTS[name](replicas, free_ports(1)[0])
        try:
            front.wait(replicas.model)
            for part in (smoke, hits, kill):
                try:
                    row.append(part(replicas, front))
                except Exception as error:
                    row.append(f"FAILED: {str(error)[:300]}")
        finally:
            front.close()
    finally:
        replicas.close()
    print(f"| {name} | {' | '.join(row)} |", flush=True)
    assert not any(cell.startswith("FAILED") for cell in row), row
    return ""


if __name__ == "__main__":
    tests = []
    for name in FRONTS:
        if len(sys.argv) > 2 and not any(wanted in name for wanted in sys.argv[2:]):
            continue
        test = lambda name=name: try_front(name)
        test.__name__ = name
        tests.append(test)
    main(*tests)
