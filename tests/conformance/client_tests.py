"""Starts servers, runs the OpenAI client's tests against them, and counts what a connection costs.
client_tests.py BUILD_DIR."""
import json
import pathlib
import resource
import tempfile

from harness import GET_HEALTH, IBID, Server, begin_stream, default_model, eventually, fake, main, run_client


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
        s = server.connect(GET_HEALTH)
        assert s.recv(4096).startswith(b"HTTP/1.1 200")
        idle.append(s)
    with_idle = resident(server.process.pid)
    streams = [begin_stream(server, 10**6) for _ in range(200)]
    with_streams = resident(server.process.pid)
    for s in idle[::100]:
        s.sendall(GET_HEALTH)
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


def run_clients(server, script="openai_client_test.py"):
    run_client(server, "venv-conformance", "requirements.txt", script)


def test_other_apis_clients_against_the_scripted_server():
    with fake(0.1) as server:
        run_clients(server, "apis_client_test.py")


def test_the_openai_client_against_the_scripted_server():
    with fake() as server:
        run_clients(server)


def test_the_openai_client_against_the_default_model():
    with tempfile.TemporaryDirectory() as folder:
        with Server([IBID, "serve", *default_model(), "--port", 0, "--files-dir", folder], seconds=600) as server:
            run_clients(server)


if __name__ == "__main__":
    main(test_many_connections_and_streams, test_other_apis_clients_against_the_scripted_server,
         test_the_openai_client_against_the_scripted_server,
         test_the_openai_client_against_the_default_model)
