"""Clients that hold connections by being slow (slowhttptest), while others want answers. slow_attack_test.py BUILD_DIR."""
import json
import re
import subprocess
import tempfile
import threading
import time

import tiny_model
from harness import IBID, Server, debian_program, eventually, main

N_ATTACKERS, TIMEOUT = 300, 2
# For others to be answered, and for an attacker to be gone after its timeout. Seconds.
ANSWER_WITHIN, SLACK = 1.5, 1.5
FLAGS = ["--header-timeout", TIMEOUT, "--body-timeout", TIMEOUT, "--write-timeout", TIMEOUT, "--idle-timeout", TIMEOUT,
         "--send-buffer", "4K", "--log-json"]


class Others:
    """One who asks for an answer ten times a second."""

    def __init__(self, server):
        self.server, self.over, self.times, self.failure = server, threading.Event(), [], None
        self.thread = threading.Thread(target=self.ask)

    def ask(self):
        body = {"prompt": "x", "max_tokens": 5, "seed": 1, "ignore_eos": True}
        wanted = self.server.post("/v1/completions", body)["choices"][0]["text"]
        while not self.over.wait(0.1):
            begin = time.monotonic()
            try:
                assert self.server.post("/v1/completions", body)["choices"][0]["text"] == wanted
            except Exception as error:  # told by the test's own thread
                self.failure = error
                return
            self.times.append(time.monotonic() - begin)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


def n_connections(server):
    return int(re.search(r"^ibid_connections (\d+)$", server.get("/metrics"), re.M)[1])


def attack(*flags, seconds=TIMEOUT + 6):
    """Attacks a server of its own; the tool's output, the attackers' lines in the log, and how long others waited."""
    tool = debian_program("slowhttptest", "usr/bin/slowhttptest")
    with tempfile.TemporaryDirectory() as folder:
        model = tiny_model.make(folder + "/tiny")
        with Server([IBID, "serve", model, "--port", 0, *FLAGS]) as server, Others(server) as others:
            url = server.url + flags[0]
            command = [tool, "-u", url, "-c", N_ATTACKERS, "-r", N_ATTACKERS, "-i", 1, "-p", 2, "-l", seconds, *flags[1:]]
            tool = subprocess.Popen([str(c) for c in command], stdout=subprocess.PIPE, text=True)
            try:
                assert eventually(lambda: n_connections(server) > N_ATTACKERS * 0.9), "the attack did not begin"
                # The tool's own probe, the other's connections, and the one that asks.
                assert eventually(lambda: n_connections(server) < 10, TIMEOUT + SLACK), n_connections(server)
                told = tool.communicate(timeout=seconds + 10)[0]
            finally:
                tool.kill()
                tool.wait()
            others.over.set()
            others.thread.join()
            assert server.end()[0] == 0
            lines = [json.loads(line) for line in server.log_text().splitlines()]
    assert others.failure is None and len(others.times) > 10, (others.failure, len(others.times))
    assert max(others.times) < ANSWER_WITHIN, max(others.times)
    assert "service available:   YES" in re.sub(r"\x1b\[[\d;]*[a-zA-Z]", "", told), told[-1500:]
    return told, [line for line in lines if line["event"] == "request"], max(others.times)


def check_times(lines):
    assert len(lines) == N_ATTACKERS, len(lines)
    times = [line["total_ms"] / 1000 for line in lines]
    assert TIMEOUT - 0.1 <= min(times) and max(times) <= TIMEOUT + SLACK, (min(times), max(times))
    return f"{len(lines)} connections closed after {min(times):.1f} to {max(times):.1f} s"


def test_slow_headers():
    told, lines, slowest = attack("/health", "-H")
    assert "No open connections left" in told, told[-500:]
    return f"{check_times([line for line in lines if line['status'] == 408])}, others answered within {slowest:.2f} s"


def test_slow_bodies():
    told, lines, slowest = attack("/v1/completions", "-B")
    assert "No open connections left" in told, told[-500:]
    return f"{check_times([line for line in lines if line['status'] == 408])}, others answered within {slowest:.2f} s"


def test_slow_readers():
    # A page that is larger than what both kernels hold for a connection; the tool sees its end only after reading it.
    _, lines, slowest = attack("/openapi.json", "-X", "-w", 10, "-y", 20, "-n", 1, "-z", 5, "-k", 1)
    cut = [line for line in lines if line.get("finish") == "slow_reader"]
    return f"{check_times(cut)}, others answered within {slowest:.2f} s"


if __name__ == "__main__":
    main(test_slow_headers, test_slow_bodies, test_slow_readers)
