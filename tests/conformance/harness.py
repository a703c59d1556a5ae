"""What the scripts of this folder share: running servers, fetching tools, telling tests apart. Standard library alone.

A script is `NAME.py BUILD_DIR`; its tests are functions, run by main(). A test that cannot get its tool raises Skip."""
import contextlib
import fcntl
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BUILD = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build").resolve()
IBID, FAKE = str(BUILD / "ibid"), str(BUILD / "fake_server")


class Skip(Exception):
    """A tool that is not available here; names it."""


def main(*tests):
    """Runs the tests, one line each; ends with 1 where one failed, with 77 where one had to be skipped."""
    forgotten = [name for name, value in vars(sys.modules["__main__"]).items() if name.startswith("test_") and value not in tests]
    if forgotten:
        sys.exit(f"FAILED  never run: {', '.join(forgotten)}")
    failed = skipped = 0
    for test in tests:
        name, begin = test.__name__.removeprefix("test_").replace("_", " "), time.monotonic()
        try:
            told = test() or ""
            print(f"ok      {name} ({time.monotonic() - begin:.1f} s) {told}".rstrip(), flush=True)
        except Skip as reason:
            skipped += 1
            print(f"skipped {name}: {reason}", flush=True)
        except Exception as error:  # a test that fails must not hide the others
            failed += 1
            place = traceback.extract_tb(error.__traceback__)[-1]
            print(f"FAILED  {name} at {pathlib.Path(place.filename).name}:{place.lineno}: {place.line}\n"
                  f"        {type(error).__name__}: {str(error)[:2000]}", flush=True)
    sys.exit(1 if failed else 77 if skipped else 0)


class Server:
    """A server's process; `command` should ask for port 0. Its log is `log_file`, or what it writes to standard error."""

    def __init__(self, command, seconds=600, ready=True, log_file=None, **popen):
        self.log = tempfile.NamedTemporaryFile("w+", prefix="ibid-log-")
        self.log_path = pathlib.Path(log_file or self.log.name)
        self.process = subprocess.Popen([str(c) for c in command], stderr=self.log, stdout=subprocess.DEVNULL, **popen)
        try:
            told = self.wait_for_log(r"http://[^ ]*?:(\d+)/health", seconds)
            self.port = int(told[1])
            self.url = f"http://127.0.0.1:{self.port}"
            if ready:
                self.wait_for_log(r"Serving ", seconds)
        except BaseException:
            self.kill()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def log_text(self):
        return self.log_path.read_text() if self.log_path.exists() else ""

    def wait_for_log(self, pattern, seconds=600):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if found := re.search(pattern, self.log_text()):
                return found
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        raise AssertionError(f"the server's log does not say {pattern!r}:\n{self.log_text()[-2000:]}")

    def get(self, path, **headers):
        request = urllib.request.Request(self.url + path, headers=headers)
        with urllib.request.urlopen(request, timeout=600) as answer:
            return answer.read().decode()

    def post(self, path, body, **headers):
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=600) as answer:
            return json.load(answer)

    def connect(self, request=b"", receive_buffer=0):
        s = socket.socket()
        if receive_buffer:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        s.settimeout(30)
        s.connect(("127.0.0.1", self.port))
        s.sendall(request)
        return s

    def end(self, *signals, seconds=600):
        """Sends the signals (SIGTERM where none is given); the exit code and the log."""
        for s in signals or (signal.SIGTERM,):
            self.process.send_signal(s)
            time.sleep(0.2 if len(signals) > 1 else 0)
        return self.wait(seconds)

    def wait(self, seconds=600):
        code = self.process.wait(timeout=seconds)
        return code, self.log_text()

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def fake(step_ms=1, load_ms=0, **popen):
    return Server([FAKE, 0, step_ms, load_ms], **popen)


def post_bytes(path, body, headers=""):
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body


GET_HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


def begin_stream(server, max_tokens):
    """A connection on which a stream has begun."""
    s = server.connect(post_bytes("/v1/completions", {"prompt": "x", "max_tokens": max_tokens, "stream": True}))
    assert b"data: " in s.recv(65536) + s.recv(65536)
    return s


def read_all(s, seconds=600):
    """What comes until the other side closes."""
    s.settimeout(seconds)
    text = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := s.recv(65536):
            text += piece
    return text


def eventually(holds, seconds=600):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if value := holds():
            return value
        time.sleep(0.02)
    return holds()


def default_model():
    """The model that IBID_MODEL names or the cache has, as arguments of `ibid serve`; Skip where there is none."""
    if model := os.environ.get("IBID_MODEL"):
        return [model]
    if any(model_cache().glob("**/*.gguf")):
        return []
    raise Skip("the default model is not in the cache (`ibid pull default` fetches it)")


def default_model_file():
    """Its path, where IBID_MODEL names none."""
    default_model()
    return next(model_cache().glob("**/SmolLM2-135M-Instruct.Q4_1.gguf"))


def model_cache():
    return pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "ibid/models"


def venv(name, *requirements, python=sys.executable, options=()):
    """Its folder with the programs of these packages; made once under BUILD_DIR."""
    folder, wanted = BUILD / name, "\n".join(requirements)
    mark = folder / "requirements.txt"
    with open(BUILD / (name + ".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another script may be making it
        if not mark.exists() or mark.read_text() != wanted:
            shutil.rmtree(folder, ignore_errors=True)
            for step in ([python, "-m", "venv", *options, folder],
                         [folder / "bin/pip", "-q", "install", "--disable-pip-version-check", *requirements]):
                done = subprocess.run([str(s) for s in step], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=600)
                if done.returncode != 0:
                    raise Skip(f"{', '.join(requirements)} cannot be installed (no network?)")
            mark.write_text(wanted)
    return folder / "bin"


def run_client(server, environment, requirements, script, *arguments):
    """Runs a program of this folder against the server, in an environment with what it requires, and ends the server."""
    programs = venv(environment, *(HERE / requirements).read_text().split())
    result = subprocess.run([programs / "python", HERE / script, server.url, *arguments], timeout=600)
    code, errors = server.end()
    assert code == 0, errors
    assert result.returncode == 0


def debian_program(package, path):
    """A program of a package of the distribution: the one that is installed, or out of the package, which is not
    installed for it because its services would start."""
    if installed := shutil.which(pathlib.Path(path).name):
        return installed
    folder = BUILD / "packages" / package
    program = folder / path
    if not program.exists():
        folder.mkdir(parents=True, exist_ok=True)
        if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
            raise Skip(f"{package} is fetched on Debian alone")
        # The lists of a machine that has not asked for a while name files that are gone; updating them is the user's.
        done = subprocess.run(["apt-get", "-q", "download", package], cwd=folder, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, timeout=300)
        files = list(folder.glob("*.deb"))
        if done.returncode != 0 or not files:
            raise Skip(f"the package {package} cannot be fetched (no network, or no lists of packages)")
        subprocess.run(["dpkg-deb", "-x", files[0], folder], check=True)
        files[0].unlink()
    return program
