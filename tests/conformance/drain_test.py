"""A server that ends while it answers: its answers go on on another one (--drain-to), or end with what resumes them there.
drain_test.py BUILD_DIR."""
import http.client
import json
import signal
import tempfile
import threading
import urllib.request

import tiny_model
from harness import IBID, Server, eventually, main
from resume_test import KINDS, joined

CHAT = {"messages": [{"role": "user", "content": "Tell me more."}], "temperature": 0.9, "logprobs": True, "top_logprobs": 2}


def serve(model, *flags):
    return Server([IBID, "serve", model, "--port", 0, "--threads", 1, *flags])


def body_of(i, n_tokens, stream=True):
    """Of completions, with log-probabilities and ids."""
    return {"prompt": f"Number {i} of many: " + "x" * (7 * i), "max_tokens": n_tokens, "seed": 77 + i, "ignore_eos": True,
            "stream": stream, "return_token_ids": True, **({"stream_options": {"include_usage": True}} if stream else {}),
            **KINDS[i % len(KINDS)]}


class Client(threading.Thread):
    """Asks, and reads the answer to its end. `begun` is set with the first event."""

    def __init__(self, server, path, body):
        super().__init__(daemon=True)
        self.server, self.path, self.body, self.begun, self.lines = server, path, body, threading.Event(), []
        self.start()

    def run(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=120)
        connection.request("POST", self.path, json.dumps(self.body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        for line in response:
            self.lines.append(line)
            self.begun.set()
        self.begun.set()

    def text(self):
        self.join(120)
        assert not self.is_alive(), "the answer does not end"
        return b"".join(self.lines).decode()

    def events(self):
        return [json.loads(line[6:]) for line in self.text().splitlines() if line.startswith("data: {")]


def heard(client):
    """What counts of a stream of completions: text, ids, log-probabilities, the end, the usage."""
    assert client.text().endswith("data: [DONE]\n\n"), client.text()[-400:]
    events = client.events()
    (usage,) = [event["usage"] for event in events if event.get("usage")]
    return joined([event["choices"][0] for event in events if event["choices"]]), usage


def same(client, server):
    """The answer is that of a server that went on."""
    (moved, usage), (whole, its_usage) = heard(client), heard(Client(server, client.path, client.body))
    for one, other, what in zip(moved, whole, ("text", "ids", "log-probabilities", "end"), strict=True):
        assert one == other, (client.body, what, one, other)
    for u in (usage, its_usage):  # what a cache had is no part of an answer
        u.pop("prompt_tokens_details")
    assert usage == its_usage, (usage, its_usage)


def without(answer, *names):
    return {name: value for name, value in answer.items() if name not in ("id", "created", *names)}


def log_of_moves(server):
    code, log = server.end()
    assert code == 0, log
    return log


def test_the_answers_of_a_server_that_ends_go_on_on_another():
    with tempfile.TemporaryDirectory() as folder:
        model = tiny_model.make(folder + "/slow", width=512)
        two = serve(model, "--max-tokens-per-step", 64)
        one = serve(model, "--drain-to", two.url + "/", "--spec", "off")
        with one, two:
            streams = [Client(one, "/v1/completions", body_of(i, 160)) for i in range(6)]
            whole = [Client(one, "/v1/completions", body_of(1, 160, stream=False)),
                     Client(one, "/v1/chat/completions", {**CHAT, "max_tokens": 160, "seed": 5}),
                     Client(one, "/v1/messages", {"messages": CHAT["messages"], "max_tokens": 160, "seed": 6, "model": "x"})]
            chat = Client(one, "/api/chat", {"messages": CHAT["messages"], "options": {"num_predict": 160, "seed": 9}})
            assert all(stream.begun.wait(60) for stream in [*streams, chat])
            log = log_of_moves(one)
            assert "went on here" in log and "Moved 0 answers" not in log, log
            for stream in streams:
                same(stream, two)
            for client in whole:
                moved, own = json.loads(client.text()), json.loads(Client(two, client.path, client.body).text())
                for usage in (moved["usage"], own["usage"]):  # what a cache had is no part of an answer
                    for name in ("prompt_tokens_details", "cache_read_input_tokens", "input_tokens", "cache_creation_input_tokens"):
                        usage.pop(name, None)
                assert without(moved) == without(own), (moved, own)
            texts = ["".join(json.loads(line)["message"]["content"] for line in c.text().splitlines())
                     for c in (chat, Client(two, chat.path, chat.body))]
            assert texts[0] == texts[1] and texts[0], texts
            return [line for line in log.splitlines() if "Moved" in line][0].split("Moved ")[1]


def test_a_replica_that_dies_gives_the_answers_back():
    with tempfile.TemporaryDirectory() as folder:
        model = tiny_model.make(folder + "/slow", width=512)
        two = serve(model)
        one = serve(model, "--drain-to", two.url)
        with one, two, serve(model) as three:
            streams = [Client(one, "/v1/completions", body_of(i, 400)) for i in (0, 4, 5)]
            assert all(stream.begun.wait(60) for stream in streams)
            one.process.send_signal(signal.SIGTERM)

            def generated():
                with urllib.request.urlopen(two.url + "/metrics", timeout=600) as answer:
                    text = answer.read().decode()
                return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith("ibid_generated_tokens_total"))

            assert eventually(lambda: generated() >= 6), "nothing was moved"
            two.kill()
            code, log = one.wait()
            assert code == 0 and "goes on here" in log, log
            for stream in streams:
                same(stream, three)


def test_another_model_takes_nothing():
    with tempfile.TemporaryDirectory() as folder:
        two = serve(tiny_model.make(folder + "/other", width=64))
        model = tiny_model.make(folder + "/slow", width=512)
        one = serve(model, "--drain-to", two.url)
        with one, two, serve(model) as three:
            stream = Client(one, "/v1/completions", body_of(0, 300))
            assert stream.begun.wait(60)
            log = log_of_moves(one)
            assert "system_fingerprint" in log and "other bytes" in log or "model_digest" in log, log
            assert "Moved 0 answers" in log, log
            same(stream, three)


def test_a_resumable_answer_ends_with_what_resumes_it():
    with tempfile.TemporaryDirectory() as folder:
        model = tiny_model.make(folder + "/slow", width=512)
        one, two = serve(model), serve(model)
        with one, two:
            body = {**body_of(4, 3000), "resumable": True}
            del body["seed"], body["stream_options"]
            stream, other = Client(one, "/v1/completions", body), Client(one, "/v1/completions", body_of(5, 200))
            assert stream.begun.wait(60) and other.begun.wait(60)
            log = log_of_moves(one)
            assert "Ended 1 answers" in log, log
            *events, last = stream.events()
            assert "resume" in last["error"] and last["error"]["code"] == "shutting_down", last
            ids = [id for event in events for id in event["choices"][0]["token_ids"]]
            assert last["error"]["resume"]["token_ids"] == ids and ids, last
            # What the client sends: its own request, with the two members. The rest of the answer is short here.
            rest = {**body, "max_tokens": len(ids) + 30, "resume": last["error"]["resume"], "seed": last["error"]["seed"]}
            all_of_it = {**rest, "resume": None}
            events += Client(two, "/v1/completions", rest).events()
            expected = Client(two, "/v1/completions", all_of_it).events()
            assert joined([e["choices"][0] for e in events]) == joined([e["choices"][0] for e in expected])
            # Who did not ask for it has its whole answer.
            same(other, two)


if __name__ == "__main__":
    main(test_the_answers_of_a_server_that_ends_go_on_on_another, test_a_replica_that_dies_gives_the_answers_back,
         test_another_model_takes_nothing, test_a_resumable_answer_ends_with_what_resumes_it)
