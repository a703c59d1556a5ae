"""Starts a server, runs the OpenAI client's tests against it, and tests its life: exit codes, signals, draining.
client_tests.py BUILD_DIR."""
import json
import pathlib
import resource
import signal
import socket
import subprocess

from harness import FAKE, HERE, IBID, Server, default_model, eventually, fake, free_port, main, post_bytes, read_all, venv

GET = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


def begin_stream(server, max_tokens):
    s = server.connect(post_bytes("/v1/completions", {"prompt": "x", "max_tokens": max_tokens, "stream": True}))
    assert b"data: " in s.recv(65536) + s.recv(65536)
    return s


def test_exit_codes_and_signals():
    port = free_port()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        ended = subprocess.run([FAKE, str(port)], capture_output=True, text=True, timeout=20)
        assert ended.returncode == 3 and "is in use by another program" in ended.stderr and ended.stderr.count("\n") == 1, ended
    ended = subprocess.run([FAKE, str(free_port()), "1", "-1"], capture_output=True, text=True, timeout=20)
    assert ended.returncode == 4 and "The model is no model" in ended.stderr, ended

    with fake() as server:
        assert server.end()[0] == 0
    with fake(step_ms=2) as server:  # a short stream ends by itself while the server drains
        stream = begin_stream(server, 200)
        server.process.send_signal(signal.SIGTERM)
        assert b'"length"' in read_all(stream)
        assert server.wait()[0] == 0
    with fake(step_ms=2) as server:  # a long one is cancelled at the deadline, and told
        stream = begin_stream(server, 10**6)
        server.process.send_signal(signal.SIGTERM)
        text = read_all(stream)
        assert b'"cancelled"' in text and b"[DONE]" in text
        assert server.wait()[0] == 0
    with fake(step_ms=2) as server:
        stream = begin_stream(server, 10**6)
        code, errors = server.end(signal.SIGTERM, signal.SIGTERM)
        assert code == 5 and "at once" in errors, (code, errors)
        stream.close()


def resident(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


def many_connections(server):
    warm = [begin_stream(server, 10**6) for _ in range(10)]
    before = resident(server.process.pid)
    idle = []
    for _ in range(2000):
        s = server.connect(GET)
        assert s.recv(4096).startswith(b"HTTP/1.1 200")
        idle.append(s)
    with_idle = resident(server.process.pid)
    streams = [begin_stream(server, 10**6) for _ in range(200)]
    with_streams = resident(server.process.pid)
    for s in idle[::100]:
        s.sendall(GET)
        assert s.recv(4096).startswith(b"HTTP/1.1 200")
    for s in [*idle, *streams, *warm]:
        s.close()
    return (with_idle - before) / 2000 / 1024, (with_streams - with_idle) / 200 / 1024


def test_many_connections_and_streams():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(8192, hard), hard))
    with fake(step_ms=5) as server:
        per_idle, per_stream = many_connections(server)
        assert per_idle <= 24 and per_stream <= 24, (per_idle, per_stream)
        engine = lambda: json.loads(server.get("/engine"))  # noqa: E731
        assert eventually(lambda: engine()["running"] + engine()["waiting"] == 0)
        assert server.end()[0] == 0
    return f"2000 idle connections at {per_idle:.1f} KiB each, 200 streams at {per_stream:.1f} KiB each"


def run_clients(server):
    programs = venv("venv-conformance", *(HERE / "requirements.txt").read_text().split())
    result = subprocess.run([programs / "python", HERE / "openai_client_test.py", server.url], timeout=600)
    code, errors = server.end()
    assert code == 0, errors
    assert result.returncode == 0


def test_the_openai_client_against_the_scripted_server():
    with fake() as server:
        run_clients(server)


def test_the_openai_client_against_the_default_model():
    with Server([IBID, "serve", *default_model(), "--port", 0], seconds=120) as server:
        run_clients(server)


if __name__ == "__main__":
    main(test_exit_codes_and_signals, test_many_connections_and_streams, test_the_openai_client_against_the_scripted_server,
         test_the_openai_client_against_the_default_model)
