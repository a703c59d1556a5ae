"""`python -m ibid.dynamo`: two workers of Dynamo answer as a server does, also where one of them or its server is killed in the
midst of eight streams. dynamo_test.py BUILD_DIR. By hand: it fetches Dynamo."""
import concurrent.futures
import contextlib
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import urllib.error
import urllib.request

import tiny_model
from harness import BUILD, IBID, ROOT, Server, Skip, eventually, main, venv
from ray_test import servers_of

# Without dependencies: one of them, of the planner, is not on the index.
PACKAGES = ["--no-deps", "ai-dynamo==1.6.1", "ai-dynamo-runtime==1.6.1", "pydantic==2.13.5", "pydantic-core==2.46.5",
            *"aiohappyeyeballs aiohttp aiosignal annotated-types attrs frozenlist idna msgspec multidict packaging propcache "
             "typing-extensions typing-inspection pyyaml uvloop yarl".split()]
N_TOKENS = 300
FLAGS = ["--threads", "1", "--ctx", "2048"]
WORKER = ["-m", "ibid.dynamo"]
# Workers that end an answer with penalties after its first event, twice.
CUTS = ["-c", """
import os, pathlib
from ibid.dynamo import EngineShutdown, Worker, run
class Cuts(Worker):
    async def ask(self, body, put):
        marks = [pathlib.Path(os.environ["HOME"], f"cut-{i}") for i in range(2)]
        mark = next((mark for mark in marks if "frequency_penalty" in body and not mark.exists()), None)
        def first(chunk):
            if mark.exists():
                raise EngineShutdown("cut")
            mark.touch()
            put(chunk)
        await super().ask(body, first if mark else put)
run(Cuts)
"""]
PLANES = ["--discovery-backend", "file", "--request-plane", "tcp", "--event-plane", "zmq"]


class Dynamo:
    """A frontend that migrates requests, and workers of a model, with a server of the same model beside them."""

    def __init__(self, python, folder, worker, n_workers, environment):
        self.folder, self.model = folder, tiny_model.make(folder + "/tiny", width=512)
        self.environment = {**os.environ, "IBID_PROGRAM": IBID, "IBID_LIBRARY": str(BUILD / "libibid.so.1"),
                            "PYTHONPATH": str(ROOT / "python"), "DYN_FILE_KV": folder + "/discovery", "HOME": folder, **environment}
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.processes, self.logs, self.alone = [], [], None
        try:
            self.begin([python, "-m", "dynamo.frontend", *PLANES, "--http-host", "127.0.0.1", "--http-port", self.port,
                        "--migration-limit", 3])
            for _ in range(n_workers):
                self.begin([python, *worker, self.model, *PLANES, "--", *FLAGS])
            assert eventually(lambda: all(self.asked(i) for i in range(1, n_workers + 1)), seconds=300), self.logs[0].read_text()[-2000:]
            self.alone = Server([IBID, "serve", self.model, "--port", 0, *FLAGS])
        except BaseException:
            self.close()
            raise

    def begin(self, command):
        self.logs.append(pathlib.Path(self.folder, f"log-{len(self.logs)}"))
        with open(self.logs[-1], "w") as log:
            self.processes.append(subprocess.Popen([str(word) for word in command], stdout=log, stderr=log, env=self.environment))

    def asked(self, i):
        """Whether the frontend knows worker i, which answers a request of this call or of an earlier one."""
        for process, log in zip(self.processes, self.logs):
            assert process.poll() is None, log.read_text()[-2000:]
        with contextlib.suppress(OSError, urllib.error.URLError, http.client.HTTPException):
            self.ask("/v1/completions", {"prompt": "a", "max_tokens": 1})
        return "request completed" in self.logs[i].read_text()

    def ask(self, path, body, alone=False):
        url = self.alone.url if alone else f"http://127.0.0.1:{self.port}"
        request = urllib.request.Request(url + path, json.dumps({"model": "tiny", **body}).encode(), {"Content-Type": "application/json"})
        return json.load(urllib.request.urlopen(request, timeout=300))

    def refusal(self, body):
        try:
            raise AssertionError(self.ask("/v1/chat/completions", body))
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)["message"]

    def stream(self, body, alone=False, heard=None):
        """The choices of a stream's events, also put into `heard` as they come."""
        heard = [] if heard is None else heard
        connection = http.client.HTTPConnection("127.0.0.1", self.alone.port if alone else self.port, timeout=300)
        connection.request("POST", "/v1/chat/completions", json.dumps({"model": "tiny", "stream": True, **body}),
                           {"Content-Type": "application/json"})
        for line in connection.getresponse():
            if line.startswith(b"data: {"):
                event = json.loads(line[6:])
                assert not event.get("error"), event
                heard += event["choices"]
        return heard

    def server_of(self, i):
        """The process id of worker i's server, and its address, which its log has."""
        for pid in servers_of(self.model):
            parent = re.search(r"^PPid:\s*(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M)[1]
            if int(parent) == self.processes[i].pid:
                return pid, re.search(r"http://[^ ]*:\d+", pathlib.Path(f"/proc/{pid}/fd/2").read_text())[0]
        raise AssertionError(f"worker {i} has no server")

    def metric(self, i, name):
        text = urllib.request.urlopen(self.server_of(i)[1] + "/metrics", timeout=600).read().decode()
        return int(re.search(rf"^{name}(?:\{{[^}}]*\}})? (\d+)", text, re.M)[1])

    def n_running(self):
        return [self.metric(i, "ibid_sequences_running") for i in (1, 2)]

    def close(self):
        for process in self.processes:
            process.send_signal(signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(timeout=600)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self.alone:
            self.alone.kill()


@contextlib.contextmanager
def dynamo(worker=WORKER, n_workers=2, **environment):
    if not (BUILD / "libibid.so.1").exists():
        raise Skip("libibid.so is not built")
    python = venv("venv-dynamo", *PACKAGES) / "python"
    with tempfile.TemporaryDirectory() as folder:
        one = Dynamo(python, folder, worker, n_workers, environment)
        try:
            yield one
        finally:
            one.close()
        assert eventually(lambda: not servers_of(one.model)), servers_of(one.model)


def told(choices):
    """Text, log-probabilities with those of the two most likely tokens, and reason of a choice in one piece or in many."""
    parts = [choice.get("message") or choice.get("delta") for choice in choices]
    tokens = [(token["logprob"], [top["logprob"] for top in token["top_logprobs"][:2]]) for choice in choices
              if choice.get("logprobs") for token in choice["logprobs"]["content"]]
    return "".join(part.get("content") or "" for part in parts), tokens, choices[-1]["finish_reason"]


def body_of(i, **more):
    return {"messages": [{"role": "user", "content": f"Number {i}"}], "temperature": 0.9, "seed": i, "max_tokens": N_TOKENS,
            "logprobs": True, "top_logprobs": 2, **more}


def same(dynamo, body):
    """What Dynamo tells, whole and streamed, once it has been held against the server's own."""
    alone = told(dynamo.ask("/v1/chat/completions", body, alone=True)["choices"])
    whole, streamed = told(dynamo.ask("/v1/chat/completions", body)["choices"]), told(dynamo.stream(body))
    assert whole == streamed, (whole, streamed)
    assert whole == alone, (whole, alone)
    return whole


def test_answers_are_those_of_the_server():
    with dynamo() as one:
        text = same(one, body_of(1, max_tokens=40, ignore_eos=True))[0]
        same(one, body_of(1, max_tokens=40, min_tokens=30, top_k=20, top_p=0.9, min_p=0.01))
        same(one, body_of(2, max_tokens=40, frequency_penalty=1.5, presence_penalty=0.5, repetition_penalty=1.2))
        letter = next(c for c in text[5:] if c.isascii() and c.isprintable())
        assert letter not in same(one, body_of(1, max_tokens=40, stop=[letter]))[0]
        assert one.refusal(body_of(1, n=2)) == (400, "n is not served through Dynamo; leave it out.")
        assert one.refusal(body_of(1, nvext={"max_thinking_tokens": 5})) == (
            400, "thinking_token_budget is not served yet; leave it out.")


def test_a_client_that_goes_ends_its_request():
    with dynamo() as one, socket.create_connection(("127.0.0.1", one.port)) as client:
        body = json.dumps({"model": "tiny", "stream": True, **body_of(1, max_tokens=1900, ignore_eos=True)}).encode()
        client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (
            len(body), body))
        assert client.recv(1)
        assert eventually(lambda: sum(one.n_running()) == 1)
        client.close()
        assert eventually(lambda: sum(one.n_running()) == 0)
        n_made = sum(one.metric(i, "ibid_generated_tokens_total") for i in (1, 2))
        assert n_made < 1900, n_made
        return f"after {n_made} of 1900 tokens"


def streams_outlive(kill):
    """Eight streams, half of them with penalties. `kill` is called with the front when all have begun; it ends worker 1."""
    penalties = {"frequency_penalty": 0.8, "presence_penalty": 0.4, "repetition_penalty": 1.1}
    bodies = [body_of(i, ignore_eos=True, **(penalties if i % 2 else {})) for i in range(8)]
    with dynamo() as one, concurrent.futures.ThreadPoolExecutor(len(bodies)) as clients:
        heard = [[] for _ in bodies]
        streams = [clients.submit(one.stream, body, heard=choices) for body, choices in zip(bodies, heard)]
        assert eventually(lambda: all(choices and len(told(choices)[1]) > 20 for choices in heard), seconds=300)
        n_cut = one.n_running()[0]
        kill(one)
        for i, stream in enumerate(streams):
            whole = told(stream.result())
            assert whole == told(one.stream(bodies[i], alone=True)) and len(whole[1]) == N_TOKENS and n_cut > 0, (i, n_cut, whole)
        code = one.processes[1].wait(timeout=600)
        return f"{n_cut} cut, the worker ended with {code}"


def test_streams_outlive_a_server():
    return streams_outlive(lambda one: os.kill(one.server_of(1)[0], signal.SIGKILL))


def test_streams_outlive_a_worker():
    return streams_outlive(lambda one: one.processes[1].kill())


def test_answers_are_resumed_from_their_first_event():
    """Also where Dynamo traces, and where it is cut twice."""
    body = body_of(1, max_tokens=60, ignore_eos=True, frequency_penalty=-2, presence_penalty=-2)
    for traces in ({}, {"DYN_LOGGING_JSONL": "1"}):
        with dynamo(CUTS, n_workers=3, **traces) as one:
            cut, alone = one.ask("/v1/chat/completions", body), one.ask("/v1/chat/completions", body, alone=True)
            assert pathlib.Path(one.folder, "cut-1").exists()
            assert told(cut["choices"]) == told(alone["choices"]), (traces, cut, alone)
            assert all(cut["usage"][name] == alone["usage"][name] for name in ("prompt_tokens", "completion_tokens")), (traces, cut, alone)


if __name__ == "__main__":
    main(test_answers_are_those_of_the_server, test_a_client_that_goes_ends_its_request, test_streams_outlive_a_server,
         test_streams_outlive_a_worker, test_answers_are_resumed_from_their_first_event)
