"""Two servers of one model, with other threads and caches: the second goes on with what the first began. resume_test.py
BUILD_DIR."""
import http.client
import http.server
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import urllib.error

import tiny_model
from harness import BUILD, IBID, ROOT, Server, Skip, eventually, main

KINDS = (
    {"temperature": 0.9},
    {"temperature": 1.2, "presence_penalty": 0.5, "frequency_penalty": 0.4, "min_tokens": 60},
    {"temperature": 0.8, "dry_multiplier": 0.8, "no_repeat_ngram_size": 3, "stop": ["q", "zz"]},
    {"temperature": 1, "regex": "[a-z ]{30,90}", "top_k": 40},
    {"temperature": 1, "mirostat": 2, "mirostat_tau": 4},
    {"temperature": 0.7, "xtc_probability": 0.5, "logprobs": 3},
)


def serve(model, *flags):
    return Server([IBID, "serve", model, "--port", 0, *flags])


def replicas(folder):
    model = tiny_model.make(folder + "/tiny")
    return (serve(model, "--threads", 2, "--allow-moves"),
            serve(model, "--threads", 1, "--max-sequences", 2, "--max-tokens-per-step", 32, "--spec", "off", "--allow-moves"))


def body_of(i, stream=True):
    more = KINDS[i % len(KINDS)]
    return {"prompt": f"Number {i} of many: " + "x" * (7 * i), "max_tokens": 90, "seed": 77 + i, "ignore_eos": i % 2 == 0,
            "stream": stream, "return_token_ids": True, **more}


def events_of(server, body, most=None):
    """The first choice of each event of a stream, as far as it is read."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    assert response.status == 200, response.read()
    events = []
    for line in response:
        if line.startswith(b"data: {"):
            events.append(json.loads(line[6:]))
        if most is not None and len(events) >= most:
            break
    return [{**event["choices"][0], "system_fingerprint": event["system_fingerprint"]} for event in events], connection


def joined(events):
    """Text, ids, log-probabilities and the end."""
    logprobs = [x for event in events if event["logprobs"] for x in event["logprobs"]["token_logprobs"]]
    return ("".join(event["text"] for event in events), [id for event in events for id in event["token_ids"]], logprobs,
            [(event["finish_reason"], event["stop_reason"]) for event in events if event["finish_reason"]])


def resume(events):
    """The member of a body that resumes the answer of these events."""
    out = {"token_ids": [id for event in events for id in event["token_ids"]],
           "system_fingerprint": events[-1]["system_fingerprint"]}
    mus = [event["mirostat_mu"] for event in events if "mirostat_mu" in event]
    return {"resume": {**out, "mirostat_mu": mus[-1]} if mus else out}


def test_a_killed_servers_answers_go_on_on_another():
    draw = random.Random(5)
    with tempfile.TemporaryDirectory() as folder:
        one, two = replicas(folder)
        with one, two:
            whole = [joined(events_of(two, body_of(i))[0]) for i in range(24)]
            heard, connections = [], []
            for i in range(24):  # each client has read some of its answer, all of which may have been made
                events, connection = events_of(one, body_of(i), most=draw.randrange(1, 12))
                heard.append(events)
                connections.append(connection)
            one.process.send_signal(signal.SIGKILL)
            one.wait()
            n_cut = 0
            for i, events in enumerate(heard):
                if events[-1]["finish_reason"]:
                    continue
                rest, _ = events_of(two, {**body_of(i), **resume(events)})
                assert joined(events + rest) == whole[i], (i, joined(events), joined(rest), whole[i])
                n_cut += 1
            assert n_cut > 0, "all answers came whole"
            return f"{n_cut} answers cut"


def test_another_model_or_arithmetic_refuses_by_name():
    with tempfile.TemporaryDirectory() as folder:
        one, two = serve(tiny_model.make(folder + "/tiny")), serve(tiny_model.make(folder + "/wide", width=64))
        with one, two:
            events, _ = events_of(one, body_of(0), most=5)
            for server, wrong in ((two, resume(events)), (one, {"resume": {"token_ids": [1], "system_fingerprint": "ibid-9"}}),
                                  (one, {"resume": {"token_ids": [1], "model_digest": "00"}})):
                try:
                    server.post("/v1/completions", {**body_of(0, stream=False), **wrong})
                    raise AssertionError("it went on")
                except urllib.error.HTTPError as error:
                    told = json.load(error)["error"]
                    assert error.code == 400 and told["param"].startswith("resume."), told
                    assert "other bytes" in told["message"], told


def test_a_moved_request_goes_on_on_another():
    with tempfile.TemporaryDirectory() as folder:
        model = tiny_model.make(folder + "/slow", width=512)
        one, two = serve(model, "--allow-moves"), serve(model)
        with one, two:
            body = {**body_of(0), "max_tokens": 3000}
            del body["seed"]
            connection = http.client.HTTPConnection("127.0.0.1", one.port, timeout=600)
            connection.request("POST", "/v1/completions", json.dumps(body), {"X-Request-Id": "this-one"})
            response = connection.getresponse()
            first = json.loads(response.readline().removeprefix(b"data: "))
            snapshot = one.post(f"/v1/requests/{first['id']}/move", {})
            rest = response.read().decode()
            assert "was moved" in rest, rest[-300:]
            heard = [first, *(json.loads(line[6:]) for line in rest.splitlines() if line.startswith("data: {"))]
            events = [event["choices"][0] for event in heard if "choices" in event]
            so_far = snapshot["request"]["resume"]["token_ids"]
            assert [id for event in events for id in event["token_ids"]] == so_far
            moved = {**snapshot["request"], "stream": False, "max_tokens": len(so_far) + 20}
            whole = {**moved, "resume": None}
            assert snapshot["path"] == "/v1/completions" and moved["seed"] == first["seed"]
            told, expected = two.post(snapshot["path"], moved)["choices"][0], two.post(snapshot["path"], whole)["choices"][0]
            assert so_far + told["token_ids"] == expected["token_ids"] and len(told["token_ids"]) == 20
            assert "".join(event["text"] for event in events) + told["text"] == expected["text"]


def test_the_demonstration():
    with tempfile.TemporaryDirectory() as folder:
        model = tiny_model.make(folder + "/slow", width=512)
        ran = subprocess.run([sys.executable, ROOT / "bench/kill_a_replica.py", model, "--ibid", IBID, "--max-tokens", "400"],
                             capture_output=True, text=True, timeout=300)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert "8 have the bytes of an undisturbed run" in ran.stdout, ran.stdout


def resuming():
    """ibid.resume of the Python package."""
    library = BUILD / "libibid.so.1"
    if not library.exists():
        raise Skip("libibid.so is not built")
    os.environ["IBID_LIBRARY"] = str(library)
    if str(ROOT / "python") not in sys.path:
        sys.path.insert(0, str(ROOT / "python"))
    import ibid.resume
    return ibid.resume


def test_the_librarys_streams_outlive_their_server():
    package = resuming()
    with tempfile.TemporaryDirectory() as folder:
        model = tiny_model.make(folder + "/slow", width=512)
        one, two = serve(model, "--threads", 2), serve(model, "--threads", 1)
        with one, two:
            for path, said in (("/v1/chat/completions", lambda choice: choice["delta"].get("content") or ""),
                               ("/v1/completions", lambda choice: choice["text"])):
                def body(i):
                    prompt = {"prompt": f"Number {i}"} if path == "/v1/completions" else {"messages": [{"role": "user", "content": f"Number {i}"}]}
                    return {**prompt, "temperature": 0.9, "seed": 400 + i, "max_tokens": 300, "ignore_eos": True}

                heard = [[] for _ in range(8)]

                def client(i):
                    for event in package.stream([one.url, two.url], body(i), path):
                        heard[i].append(event)

                clients = [threading.Thread(target=client, args=(i,)) for i in range(len(heard))]
                for thread in clients:
                    thread.start()
                assert eventually(lambda: all(len(events) > 4 for events in heard))
                one.process.send_signal(signal.SIGKILL)
                for thread in clients:
                    thread.join()
                for i, events in enumerate(heard):
                    whole = list(package.stream([two.url], body(i), path))
                    choices, wanted = ([choice for event in stream for choice in event["choices"]] for stream in (events, whole))
                    assert "".join(map(said, choices)) == "".join(map(said, wanted)), i
                    ids = [id for choice in choices for id in choice.get("token_ids") or []]
                    assert len(ids) == 300 and ids == [id for choice in wanted for id in choice.get("token_ids") or []], i
                    assert len({event["id"] for event in events}) == 1, events
                    assert sum("role" in choice.get("delta", {}) for choice in choices) == sum("role" in choice.get("delta", {}) for choice in wanted)
                    assert [choice["finish_reason"] for choice in choices if choice["finish_reason"]] == ["length"]
                one.process.wait()
                one = serve(model, "--threads", 2)
            one.kill()


class Forgetful(http.server.BaseHTTPRequestHandler):
    """A router that drops return_token_ids."""

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'data: {"id":"x","choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":null}]}\n\n')

    def log_message(self, *_):
        pass


def test_the_librarys_streams_end_with_the_reason():
    package = resuming()
    from ibid import InvalidError, UnavailableError, UnsupportedError
    router = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Forgetful)
    threading.Thread(target=router.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder, serve(tiny_model.make(folder + "/tiny")) as server:
        gone = serve(folder + "/tiny")
        gone.kill()
        for urls, body, error, named in (
                ([server.url], {"prompt": "x", "temperature": "hot"}, InvalidError, "temperature"),
                ([gone.url], {"prompt": "x"}, UnavailableError, "0 tokens and 2 tries"),
                ([f"http://127.0.0.1:{router.server_port}"], {"prompt": "x"}, UnsupportedError, "return_token_ids")):
            try:
                list(package.stream(urls, body, "/v1/completions", tries=2))
                raise AssertionError(f"{error.__name__} was not raised")
            except error as raised:
                assert named in str(raised) + raised.field, raised
        # One that is not there is passed over.
        assert len(list(package.stream([gone.url, server.url], {"prompt": "x", "max_tokens": 4}, "/v1/completions"))) >= 1
    router.shutdown()


if __name__ == "__main__":
    main(test_a_killed_servers_answers_go_on_on_another, test_another_model_or_arithmetic_refuses_by_name,
         test_a_moved_request_goes_on_on_another, test_the_librarys_streams_outlive_their_server,
         test_the_librarys_streams_end_with_the_reason, test_the_demonstration)
