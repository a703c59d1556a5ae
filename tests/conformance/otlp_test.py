"""Spans of requests (--otlp) against a receiver that the test starts. otlp_test.py BUILD_DIR."""
import contextlib
import http.server
import json
import tempfile
import threading
import time

import tiny_model
from harness import IBID, Server, eventually, main

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SECRET = "a secret that nobody else reads"


class Receiver:
    """Takes spans, answers with the next of `statuses` (the last one for ever), or not at all where that is 0."""

    def __init__(self, *statuses):
        receiver, self.statuses, self.bodies, self.hangs = self, list(statuses or [200]), [], threading.Event()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = receiver.statuses[0] if len(receiver.statuses) == 1 else receiver.statuses.pop(0)
                receiver.bodies.append((status, self.path, self.headers["Content-Type"], body))
                if status == 0:
                    receiver.hangs.wait(60)
                    return
                self.send_response(status)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.hangs.set()
        self.server.shutdown()

    def spans(self):
        out = []
        for status, path, kind, body in list(self.bodies):
            assert path == "/v1/traces" and kind == "application/json", (path, kind)
            if status != 200:
                continue
            for resource in json.loads(body)["resourceSpans"]:
                assert {"key": "service.name", "value": {"stringValue": "ibid"}} in resource["resource"]["attributes"]
                out += [span for scope in resource["scopeSpans"] for span in scope["spans"]]
        return out


@contextlib.contextmanager
def serving(receiver):
    with tempfile.TemporaryDirectory() as folder:
        model = tiny_model.make(folder + "/tiny")
        with Server([IBID, "serve", model, "--port", 0, "--ctx", 512, "--otlp", receiver.url]) as server:
            yield server


def ask(server, **headers):
    return server.post("/v1/completions", {"prompt": SECRET, "max_tokens": 20, "ignore_eos": True, "ledger": True}, **headers)


def outcomes(server):
    lines = [line for line in server.get("/metrics").splitlines() if line.startswith("ibid_spans_total")]
    return [int(line.rsplit(" ", 1)[1]) for line in lines]


def attributes(span):
    return {a["key"]: next(iter(a["value"].values())) for a in span["attributes"]}


def test_a_request_is_a_span_of_its_callers_trace_with_its_phases_as_children():
    with Receiver() as receiver, serving(receiver) as server:
        before = time.time_ns()
        answer = ask(server, traceparent=f"00-{TRACE}-{PARENT}-01", **{"X-Request-Id": "mine"})
        assert eventually(lambda: outcomes(server) == [1, 0]), outcomes(server)
        spans = receiver.spans()
        root = next(s for s in spans if s.get("parentSpanId") == PARENT)
        children = [s for s in spans if s.get("parentSpanId") == root["spanId"]]
        assert {s["traceId"] for s in spans} == {TRACE} and len(children) == len(spans) - 1
        assert len({s["spanId"] for s in spans}) == len(spans)
        assert [s["name"] for s in children] == ["read", "queue", "prefill", "decode", "write"]
        ends = [(int(s["startTimeUnixNano"]), int(s["endTimeUnixNano"])) for s in children]
        assert before - 10**7 <= int(root["startTimeUnixNano"]) == ends[0][0] and ends[-1][1] == int(root["endTimeUnixNano"])
        assert all(begin <= end for begin, end in ends) and all(a[1] == b[0] for a, b in zip(ends, ends[1:])), ends
        told = attributes(root)
        assert told["http.response.status_code"] == "200" and told["gen_ai.usage.output_tokens"] == "20"
        assert told["gen_ai.request.model"] == answer["model"] and told["ibid.request_id"] == "mine"
        for phase in ("prefill", "decode", "queue"):
            assert abs(told[f"ibid.ledger.{phase}"] * 1000 - answer["ledger"][phase + "_ms"]) < 0.01, (told, answer)
        assert SECRET.encode() not in b"".join(body for *_, body in receiver.bodies)
        assert answer["choices"][0]["text"].encode() not in b"".join(body for *_, body in receiver.bodies)


def test_what_is_not_sampled_is_not_sent_and_what_has_no_trace_begins_one():
    with Receiver() as receiver, serving(receiver) as server:
        ask(server, traceparent=f"00-{TRACE}-{PARENT}-00")
        ask(server, traceparent="00-" + "0" * 32 + f"-{PARENT}-01")
        ask(server)
        assert eventually(lambda: outcomes(server) == [2, 0]), outcomes(server)
        roots = [s for s in receiver.spans() if s["kind"] == 2]
        assert len(roots) == 2 and all("parentSpanId" not in s and s["traceId"] != TRACE for s in roots)
        assert len({s["traceId"] for s in roots}) == 2


def test_a_receiver_that_is_busy_is_asked_again_and_one_that_refuses_is_not():
    with Receiver(503, 503, 200) as receiver, serving(receiver) as server:
        ask(server)
        assert eventually(lambda: outcomes(server) == [1, 0]), outcomes(server)
        assert len(receiver.bodies) == 3
    with Receiver(400) as receiver, serving(receiver) as server:
        ask(server)
        assert eventually(lambda: outcomes(server) == [0, 1]), outcomes(server)


def test_a_receiver_that_hangs_delays_no_request():
    with Receiver(0) as receiver, serving(receiver) as server:
        ask(server)
        assert eventually(lambda: len(receiver.bodies) > 0)
        for _ in range(10):
            ask(server)
        assert sum(outcomes(server)) < 10, "each request has waited for its trace to be sent or given up"
        code, log = server.end()
        assert code == 0, (code, log)


if __name__ == "__main__":
    main(test_a_request_is_a_span_of_its_callers_trace_with_its_phases_as_children,
         test_what_is_not_sampled_is_not_sent_and_what_has_no_trace_begins_one,
         test_a_receiver_that_is_busy_is_asked_again_and_one_that_refuses_is_not,
         test_a_receiver_that_hangs_delays_no_request)
