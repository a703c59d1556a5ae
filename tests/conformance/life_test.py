"""A server's life and what ends it: exit codes, signals, draining, and what may run out. life_test.py BUILD_DIR."""
import contextlib
import json
import os
import pathlib
import re
import resource
import select
import signal
import socket
import subprocess
import tempfile
import time

import tiny_model
from harness import FAKE, GET_HEALTH, IBID, Server, begin_stream, eventually, fake, main, post_bytes, read_all


def ends_with(code, sentence, *command):
    """The command ends by itself with this code, and the last line of its output is one error message of ours."""
    ended = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=600)
    last = ended.stderr.rstrip("\n").split("\n")[-1]
    assert ended.returncode == code, (command, ended)
    assert re.fullmatch(r"ibid: .*" + sentence + r".*", last), (command, ended)
    assert ended.stderr.count("\n") <= 2 and "terminate" not in ended.stderr, ended


def test_what_cannot_be_served_is_one_sentence_and_a_code():
    with tempfile.TemporaryDirectory() as folder, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        model, port = tiny_model.make(folder + "/tiny"), taken.getsockname()[1]
        serve = [IBID, "serve", model, "--port", 0]
        ends_with(1, "is the disk full", *serve, "--log-file", "/dev/full")
        ends_with(2, "no address", *serve, "--host", "here")
        ends_with(2, "cannot be read", *serve, "--api-key-file", folder + "/none")
        ends_with(2, "is a folder", *serve, "--api-key-file", folder)
        ends_with(2, "is a folder", *serve, "--api-key-file", folder, "--api-key", "secret-key-1")
        ends_with(2, "Lines 1 and 2 .* one key to two tenants", *serve, "--api-key", "a:secret-key-1", "--api-key",
                  "b:secret-key-1")
        # What was to protect the server and has nothing in it.
        for text in ("", "\n\n", "# the team's keys\n  # and others\n\n"):
            keys = pathlib.Path(folder, "keys")
            keys.write_text(text)
            for more in ((), ("--api-key", "secret-key-1")):
                ends_with(2, "--api-key-file names a file without keys", *serve, "--api-key-file", keys, *more)
        ends_with(2, "--api-key-file names a file without keys", *serve, "--api-key-file", "/dev/null")
        ends_with(2, "--api-key is given no key", *serve, "--api-key", "secret-key-1", "--api-key", " ")
        ends_with(2, "at least 8", *serve, "--host", "0.0.0.0", "--api-key", "short")
        ends_with(2, "cannot be opened", *serve, "--log-file", folder + "/none/log")
        ends_with(3, "is in use by another program", IBID, "serve", model, "--port", port)
        ends_with(3, "is in use by another program", FAKE, port)
        ends_with(4, "The model is no model", FAKE, 0, 1, -1)
        broken = tiny_model.make(folder + "/broken")
        (broken / "model.safetensors").write_bytes((model / "model.safetensors").read_bytes()[:-1000])
        ends_with(4, "", IBID, "serve", broken, "--port", 0)
        ends_with(4, "", IBID, "serve", folder + "/none.gguf", "--port", 0)
        ends_with(4, "", IBID, "serve", model, "--port", 0, "--kv-memory", "1K")


def test_an_empty_value_is_no_flag_that_was_left_out():
    with tempfile.TemporaryDirectory() as folder:
        model = tiny_model.make(folder + "/tiny")
        weights = (model / "model.safetensors").read_bytes()
        for words, sentence in (
                (("--api-key-file", ""), "--api-key-file: '' names no file"), (("--api-key-file=",), "--api-key-file= has no"),
                (("--ssl-cert-file", "", "--ssl-key-file", ""), "--ssl-cert-file: '' names no file"),
                (("--log-file=", model / "model.safetensors"), "--log-file= has no value"),
                (("--files-dir", "--slots"), "--files-dir: '--slots' is a flag")):
            ended = subprocess.run([IBID, "serve", model, "--port", "0", *words], capture_output=True, text=True, timeout=600,
                                   cwd=folder)
            assert ended.returncode == 2 and sentence in ended.stderr and ended.stderr.count("\n") == 1, (words, ended)
        ended = subprocess.run([IBID, "serve", model, "--port", "0"], capture_output=True, text=True, timeout=600,
                               env={**os.environ, "IBID_API_KEY": ""})
        assert ended.returncode == 2 and "IBID_API_KEY" in ended.stderr, ended
        assert (model / "model.safetensors").read_bytes() == weights and not pathlib.Path(folder, "--slots").exists()


def test_a_load_that_fails_at_once_ends_no_server_by_a_signal():
    # The loader wakes its waiter by a signal, which may come when there is no waiter any more: in one of 40 starts.
    for _ in range(30):
        ended = [subprocess.Popen([FAKE, "0", "1", "-1"], stderr=subprocess.DEVNULL) for _ in range(8)]
        codes = [process.wait(timeout=600) for process in ended]
        assert codes == [4] * 8, codes


def test_signals_drain_and_end():
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
        with begin_stream(server, 10**6):
            code, errors = server.end(signal.SIGTERM, signal.SIGTERM)
        assert code == 5 and "at once" in errors, (code, errors)
    with fake(load_ms=600_000, ready=False) as server:  # nothing to drain before the model is there
        assert server.end()[0] == 0


def test_a_hang_up_begins_a_new_log_file_and_ends_nothing():
    with tempfile.TemporaryDirectory() as folder:
        log, old = pathlib.Path(folder, "log"), pathlib.Path(folder, "log.1")
        command = [IBID, "serve", tiny_model.make(folder + "/tiny"), "--port", 0, "--log-file", log]
        with Server(command, log_file=log, stdin=subprocess.DEVNULL) as server:
            log.rename(old)
            server.get("/version")
            assert eventually(lambda: "route=other" in old.read_text())
            server.process.send_signal(signal.SIGHUP)
            assert eventually(log.exists)
            server.get("/health")
            server.wait_for_log("route=health")
            log.unlink()
            log.mkdir()  # nowhere to begin
            server.process.send_signal(signal.SIGHUP)
            server.get("/health")
            log.rmdir()
            server.process.send_signal(signal.SIGHUP)
            assert eventually(log.exists)
            code, text = server.end()
        assert code == 0 and "Ended." in text, (code, text)
        assert "route=health" not in old.read_text()
    with fake(stdin=subprocess.DEVNULL) as server:  # a log on standard error has nothing to rotate
        server.process.send_signal(signal.SIGHUP)
        server.get("/health")
        assert server.end()[0] == 0
    with fake(load_ms=500, ready=False, stdin=subprocess.DEVNULL) as server:  # nor does it end one that loads
        server.process.send_signal(signal.SIGHUP)
        server.wait_for_log("Serving ")
        assert server.end()[0] == 0
    server_side, terminal = os.openpty()
    with fake(stdin=terminal) as server:  # whose terminal has gone
        server.process.send_signal(signal.SIGHUP)
        assert server.wait()[0] == 0
    os.close(server_side), os.close(terminal)


def limited(which, n):
    return lambda: resource.setrlimit(which, (n, n))


def test_exhausted_descriptors_stop_no_open_connection():
    n_limit = 48
    with fake(preexec_fn=limited(resource.RLIMIT_NOFILE, n_limit)) as server:
        known = server.connect(GET_HEALTH)
        assert known.recv(4096).startswith(b"HTTP/1.1 200")
        idle = [server.connect() for _ in range(2 * n_limit)]  # the system takes those that the server cannot
        for s in idle:
            s.sendall(GET_HEALTH)
        assert eventually(lambda: "no descriptor" in server.log_text())
        eventually(lambda: len(select.select(idle, [], [], 0)[0]) > n_limit / 2)
        answered = select.select(idle, [], [], 0)[0]
        waiting = [s for s in idle if s not in answered]
        assert n_limit / 2 < len(answered) < n_limit, len(answered)
        for _ in range(20):  # those that are connected go on, streams too
            known.sendall(GET_HEALTH)
            assert known.recv(4096).startswith(b"HTTP/1.1 200")
        body = {"prompt": "x", "max_tokens": 20, "seed": 1, "stream": True}
        known.sendall(post_bytes("/v1/completions", body, "Connection: close\r\n"))
        assert b"[DONE]" in read_all(known)
        for s in answered:
            s.close()
        for s in waiting:  # room is taken up as it comes
            assert s.recv(4096).startswith(b"HTTP/1.1 200")
            s.close()
        code, log = server.end()
        assert code == 0 and log.count("no descriptor") == 1, log[-2000:]
        return f"{len(answered)} of {len(idle)} connections at {n_limit} descriptors"


def loader_fails(code, kib):
    """Whether it was the system's loader that ended so, with so much address space: then so does what needs next to none."""
    if code not in (127, -signal.SIGSEGV):
        return False
    done = subprocess.run([str(IBID), "--version"], capture_output=True, timeout=600,
                          preexec_fn=limited(resource.RLIMIT_AS, kib << 10))
    return done.returncode in (127, -signal.SIGSEGV)


def starts_within(mib, *command):
    """Starts the command with so much address space. Whether it did its work; else it must have reported why not."""
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen([str(c) for c in command], stdout=subprocess.DEVNULL, stderr=said,
                                   preexec_fn=limited(resource.RLIMIT_AS, mib << 20))

        def text():
            said.seek(0)
            return said.read()

        eventually(lambda: process.poll() is not None or " Serving " in text())
        process.poll() is None and process.send_signal(signal.SIGTERM)
        code, told = process.wait(timeout=600), text()
    if loader_fails(code, mib << 10):
        return False
    last = told.rstrip("\n").split("\n")[-1]
    case = f"{' '.join(map(str, command[1:]))} with {mib} MiB: {code}, {told[-600:]}"
    assert code in (0, 1, 4) and "terminate called" not in told and "CHECK" not in told, case
    assert code != 4 or command[1] == "serve", case
    assert code == 0 or re.fullmatch(r"(ibid|error): [A-Z].+\.", last), case
    return code == 0


def test_a_machine_that_is_too_small_gets_a_clear_error():
    n_refused = 0
    with tempfile.TemporaryDirectory() as folder:
        model = tiny_model.make(folder + "/tiny")
        serve = ["serve", model, "--port", 0]
        for command in (serve, [*serve, "--threads", 40], [*serve, "--max-tokens-per-step", 65536],
                        [*serve, "--max-sequences", 4000, "--max-tokens-per-step", 4000],
                        ["run", model, "-p", "x", "--max-tokens", 4], ["run", model, "-p", "x", "--threads", 40],
                        ["bench", model, "-p", 16, "-n", 4, "-r", 1, "--streams", 500],
                        ["perplexity", model, "-f", __file__]):
            sizes = iter([20, 26, 34, 44, 57, 74, 90, 120, 160, 220, 300, 500, 1000, 4000])
            while not starts_within(next(sizes), IBID, *command):
                n_refused += 1
    assert n_refused > 20, n_refused
    return f"{n_refused} starts refused"


def test_flags_for_which_there_is_no_memory_end_in_a_sentence_too():
    """In steps finer than what any one thing takes. What crashes is the system's loader, before any of ours."""
    n_told = 0
    for kib in range(24 << 10, 44 << 10, 128):
        done = subprocess.run([str(IBID), "serve", "/no/such/model", "--port", "0"], capture_output=True, text=True, timeout=600,
                              preexec_fn=limited(resource.RLIMIT_AS, kib << 10))
        if loader_fails(done.returncode, kib):
            continue
        assert done.returncode in (1, 3, 4), (kib, done)
        assert re.fullmatch(r"(ibid|error): [A-Z].+\.", done.stderr.rstrip("\n").split("\n")[-1]), (kib, done)
        n_told += 1
    assert n_told > 20, n_told
    return f"{n_told} starts told why"


def test_a_benchmark_runs_what_it_is_asked_for():
    with tempfile.TemporaryDirectory() as folder:
        bench = [IBID, "bench", str(tiny_model.make(folder + "/tiny")), "-r", "1", "-o", "json"]

        def tests(*flags):
            done = subprocess.run([*bench, *flags], capture_output=True, text=True, timeout=600)
            assert done.returncode == 0, done
            return [(t["n_prompt"], t["n_gen"], t["n_streams"]) for t in json.loads(done.stdout)]

        # A context of more than the measured tokens.
        assert tests("-c", "2048", "-p", "16", "-n", "4") == [(16, 0, 1), (0, 4, 1)]
        assert tests("-c", "2048", "-p", "0", "-n", "4", "--streams", "1,8") == [(0, 4, 1), (0, 4, 8)]
        assert tests("-p", "0", "-n", "0", "--streams", "8") == [(0, 128, 8)]  # the streams alone
        nothing = subprocess.run([*bench, "-p", "0", "-n", "0"], capture_output=True, text=True, timeout=600)
        assert nothing.returncode == 2 and "nothing to measure" in nothing.stderr, nothing


def test_a_log_that_cannot_grow_loses_lines_and_nothing_else():
    with tempfile.TemporaryDirectory() as folder:
        command = [IBID, "serve", tiny_model.make(folder + "/tiny"), "--port", 0]
        with Server(command, preexec_fn=limited(resource.RLIMIT_FSIZE, 2000)) as server:  # of its standard error, a file
            for _ in range(40):
                answer = server.post("/v1/completions", {"prompt": "x", "max_tokens": 3, "ignore_eos": True})
                assert answer["usage"]["completion_tokens"] == 3
            lost = int(re.search(r"^ibid_log_lines_lost_total (\d+)", server.get("/metrics"), re.M)[1])
            code, log = server.end()
            assert code == 0 and 20 < lost < 40 and len(log) <= 2000, (code, lost, log)
    return f"{lost} lines lost"


def test_health_is_asked_from_the_command_line():
    def health(url, code, sentence):
        done = subprocess.run([IBID, "health", url, "--timeout", "30"], capture_output=True, text=True, timeout=600)
        assert done.returncode == code and re.search(sentence, done.stdout if code == 0 else done.stderr), (url, done)
        assert (done.stdout + done.stderr).count("\n") == 1, done

    with fake() as server:
        for url in (server.url, server.url + "/"):
            health(url, 0, r"^ready$")
        health(server.url + "/none", 1, r"^error: .*/none/health answers 404: .*\.$")
    health(server.url, 1, r"^error: ")  # it has ended
    with Server([FAKE, 0, 1, 600_000], ready=False) as loading:
        health(loading.url, 1, r"^error: .* answers 503: loading\.$")
    # What no server of ours says: another protocol, a text without an end, control characters.
    head = b"HTTP/1.1 503 Busy\r\nContent-Length: "
    for said, sentence in ((b"SSH-2.0-x\r\n", r"^error: "), (head + b"100000\r\n\r\n" + b"x" * 100_000, "more than 4096 bytes"),
                           (head + b"9\r\n\r\n\x1b[31m\xff\n\n\n", r"answers 503: \\x1B\[31m\\xFF(\\n)*\.$")):
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            listening.listen()
            asked = subprocess.Popen([IBID, "health", f"http://127.0.0.1:{listening.getsockname()[1]}"], stdout=subprocess.PIPE,
                                     stderr=subprocess.PIPE, text=True)
            with listening.accept()[0] as client:
                client.recv(65536)
                with contextlib.suppress(ConnectionError):
                    client.sendall(said)
            _, told = asked.communicate(timeout=600)
            assert asked.returncode == 1 and re.search(sentence, told) and told.count("\n") == 1, (said[:50], told)
    for words in (("not a url",), ("ftp://127.0.0.1/",), ("--timeout", "0")):
        assert subprocess.run([IBID, "health", *words], capture_output=True, timeout=600).returncode in (1, 2), words


if __name__ == "__main__":
    main(test_health_is_asked_from_the_command_line, test_what_cannot_be_served_is_one_sentence_and_a_code, test_an_empty_value_is_no_flag_that_was_left_out,
         test_a_load_that_fails_at_once_ends_no_server_by_a_signal, test_signals_drain_and_end,
         test_a_hang_up_begins_a_new_log_file_and_ends_nothing,
         test_exhausted_descriptors_stop_no_open_connection,
         test_a_machine_that_is_too_small_gets_a_clear_error,
         test_flags_for_which_there_is_no_memory_end_in_a_sentence_too, test_a_benchmark_runs_what_it_is_asked_for,
         test_a_log_that_cannot_grow_loses_lines_and_nothing_else)
