"""`python -m ibid.ray`: two servers as a deployment of Ray Serve, of which one is killed in the midst of eight streams.
ray_test.py BUILD_DIR. By hand: it fetches Ray."""
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request

import tiny_model
from harness import BUILD, IBID, ROOT, Skip, eventually, main, venv

N_TOKENS = 400
ENVIRONMENT = {"IBID_PROGRAM": IBID, "IBID_LIBRARY": str(BUILD / "libibid.so.1"), "PYTHONPATH": str(ROOT / "python"),
               "RAY_USAGE_STATS_ENABLED": "0"}


def servers_of(model):
    """Process ids of the servers of this model."""
    out = []
    for entry in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().split(b"\0")
        except OSError:
            continue
        if words[1:3] == [b"serve", str(model).encode()]:
            out.append(int(entry.parent.name))
    return out


def ids_of(events):
    return [token for event in events for choice in event["choices"] for token in choice.get("token_ids") or []]


def test_a_killed_server_is_replaced_and_its_answers_go_on():
    if not (BUILD / "libibid.so.1").exists():
        raise Skip("libibid.so is not built")
    python = venv("venv-ray", "ray[serve]==2.60.0", "aiohttp") / "python"
    os.environ.update(ENVIRONMENT)
    sys.path.insert(0, str(ROOT / "python"))
    from ibid.resume import stream
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory() as folder, tempfile.NamedTemporaryFile("r") as log:
        model = tiny_model.make(folder + "/tiny", width=512)
        with open(log.name, "w") as out:
            process = subprocess.Popen([python, "-m", "ibid.ray", model, "--replicas", "2", "--port", str(port), "--cpus", "0.5", "--",
                                        "--threads", "1", "--ctx", "2048"], stdout=out, stderr=out)
        try:
            def is_ready():
                assert process.poll() is None, log.read()[-2000:]
                return "Serving " in pathlib.Path(log.name).read_text()

            assert eventually(is_ready, seconds=300), log.read()[-2000:]
            assert len(json.load(urllib.request.urlopen(url + "/v1/models", timeout=600))["data"]) == 1
            try:
                urllib.request.urlopen(urllib.request.Request(url + "/v1/completions", b'{"prompt": "a", "temperature": "hot"}'), timeout=600)
                raise AssertionError("it was not refused")
            except urllib.error.HTTPError as error:
                assert error.code == 400 and json.load(error)["error"]["param"] == "temperature"

            def body(i):
                return {"messages": [{"role": "user", "content": f"Number {i}"}], "temperature": 0.9, "seed": i, "max_tokens": N_TOKENS,
                        "ignore_eos": True}

            heard = [[] for _ in range(8)]

            def client(i):
                for event in stream([url], body(i), tries=40):
                    heard[i].append(event)

            clients = [threading.Thread(target=client, args=(i,)) for i in range(len(heard))]
            for thread in clients:
                thread.start()
            assert eventually(lambda: all(len(ids_of(events)) > 20 for events in heard), seconds=300)
            before = servers_of(model)
            assert len(before) == 2, before
            os.kill(before[0], signal.SIGKILL)
            for thread in clients:
                thread.join()
            for i, events in enumerate(heard):
                assert len(ids_of(events)) == N_TOKENS and ids_of(events) == ids_of(list(stream([url], body(i)))), i
            assert eventually(lambda: len(servers_of(model)) == 2 and before[0] not in servers_of(model), seconds=300), servers_of(model)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout=600)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        assert eventually(lambda: not servers_of(model), seconds=600), servers_of(model)


if __name__ == "__main__":
    main(test_a_killed_server_is_replaced_and_its_answers_go_on)
