"""Starts a server, runs the OpenAI client's tests against it, and tests its life: exit codes, signals, draining.
client_tests.py BUILD_DIR. Makes its own venv under BUILD_DIR (exit code 77: the packages cannot be had, so skipped)."""
import json
import os
import pathlib
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

BUILD = pathlib.Path(sys.argv[1]).resolve()
HERE = pathlib.Path(__file__).resolve().parent
VENV = BUILD / "venv-conformance"
FAKE = str(BUILD / "fake_server")


def python():
    mark = VENV / "requirements.txt"
    wanted = (HERE / "requirements.txt").read_text()
    if not mark.exists() or mark.read_text() != wanted:
        steps = [[sys.executable, "-m", "venv", str(VENV)],
                 [str(VENV / "bin/pip"), "-q", "install", "--disable-pip-version-check", "-r", str(HERE / "requirements.txt")]]
        for step in steps:
            if subprocess.run(step, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=600).returncode != 0:
                print("skipped: the packages of tests/conformance/requirements.txt cannot be installed (no network?)")
                sys.exit(77)
        mark.write_text(wanted)
    return str(VENV / "bin/python")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    def __init__(self, command, port, seconds=60):
        self.port, self.url = port, f"http://127.0.0.1:{port}"
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(command, stderr=self.log)
        for _ in range(int(seconds / 0.05)):
            try:
                urllib.request.urlopen(self.url + "/health", timeout=5)
                return
            except OSError:
                time.sleep(0.05)
        raise AssertionError("the server did not become ready")

    def end(self, *signals):
        for s in signals:
            self.process.send_signal(s)
            time.sleep(0.2)
        code = self.process.wait(timeout=20)
        self.log.seek(0)
        return code, self.log.read()


def fake(step_ms=1, load_ms=0):
    port = free_port()
    return Server([FAKE, str(port), str(step_ms), str(load_ms)], port)


def begin_stream(server, max_tokens):
    body = json.dumps({"prompt": "x", "max_tokens": max_tokens, "stream": True}).encode()
    s = socket.create_connection(("127.0.0.1", server.port))
    s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    assert b"data: " in s.recv(65536) + s.recv(65536)
    return s


def rest(s):
    s.settimeout(10)
    text = b""
    while piece := s.recv(65536):
        text += piece
    return text


def test_life():
    port = free_port()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        ended = subprocess.run([FAKE, str(port)], capture_output=True, text=True, timeout=20)
        assert ended.returncode == 3 and "is in use by another program" in ended.stderr and ended.stderr.count("\n") == 1, ended
    ended = subprocess.run([FAKE, str(free_port()), "1", "-1"], capture_output=True, text=True, timeout=20)
    assert ended.returncode == 4 and "The model is no model" in ended.stderr, ended

    server = fake()
    assert server.end(signal.SIGTERM)[0] == 0

    server = fake(step_ms=2)  # a short stream ends by itself while the server drains
    stream = begin_stream(server, 200)
    server.process.send_signal(signal.SIGTERM)
    assert b'"length"' in rest(stream)
    assert server.end()[0] == 0

    server = fake(step_ms=2)  # a long one is cancelled at the deadline, and told
    stream = begin_stream(server, 10**6)
    server.process.send_signal(signal.SIGTERM)
    text = rest(stream)
    assert b'"cancelled"' in text and b"[DONE]" in text
    assert server.end()[0] == 0

    server = fake(step_ms=2)
    stream = begin_stream(server, 10**6)
    code, errors = server.end(signal.SIGTERM, signal.SIGTERM)
    assert code == 5 and "at once" in errors, (code, errors)
    stream.close()
    print("ok     exit codes and signals")


def resident(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


def test_many():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(8192, hard), hard))
    server = fake(step_ms=5)
    get = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    warm = [begin_stream(server, 10**6) for _ in range(10)]
    before = resident(server.process.pid)
    idle = []
    for _ in range(2000):
        s = socket.create_connection(("127.0.0.1", server.port))
        s.sendall(get)
        assert s.recv(4096).startswith(b"HTTP/1.1 200")
        idle.append(s)
    with_idle = resident(server.process.pid)
    streams = [begin_stream(server, 10**6) for _ in range(200)]
    with_streams = resident(server.process.pid)
    for s in idle[::100]:
        s.sendall(get)
        assert s.recv(4096).startswith(b"HTTP/1.1 200")
    per_idle, per_stream = (with_idle - before) / 2000 / 1024, (with_streams - with_idle) / 200 / 1024
    print(f"ok     2000 idle connections at {per_idle:.1f} KiB each, 200 streams at {per_stream:.1f} KiB each")
    assert per_idle <= 24 and per_stream <= 24
    for s in [*idle, *streams, *warm]:
        s.close()
    for _ in range(200):
        engine = json.load(urllib.request.urlopen(server.url + "/engine"))
        if engine["running"] + engine["waiting"] == 0:
            break
        time.sleep(0.02)
    assert engine["running"] + engine["waiting"] == 0
    assert server.end(signal.SIGTERM)[0] == 0


def test_clients(server):
    result = subprocess.run([python(), str(HERE / "openai_client_test.py"), server.url], timeout=600)
    code, errors = server.end(signal.SIGTERM)
    assert code == 0, errors
    assert result.returncode == 0


test_life()
test_many()
test_clients(fake())
ibid, model = BUILD / "ibid", os.environ.get("IBID_MODEL")
cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "ibid/models"
if ibid.exists() and (model or any(cache.glob("**/*.gguf"))):
    port = free_port()
    test_clients(Server([str(ibid), "serve", *([model] if model else []), "--port", str(port)], port, seconds=120))
else:
    print("the real binary is not tested: there is no model in the cache")
