"""Records of a real server, run again by ibid replay. replay_test.py BUILD_DIR."""
import json
import pathlib
import random
import re
import subprocess
import tempfile
import threading

import tiny_model
from harness import IBID, Server, main

WORDS = "A beginning that many prompts share, longer than some blocks of the cache. "
SECRET = "nobody-else-reads-this"


def replay(*arguments):
    done = subprocess.run([IBID, "replay", *map(str, arguments)], capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout, done.stderr


def serve_a_while(folder, record, *flags):
    """A busy server with too little memory: streams, choices, stops, cancels. Its model."""
    model = tiny_model.make(str(folder / "tiny"))
    keys = ["--api-key", f"{SECRET}-tenant:alpha-key-1"]
    with Server([IBID, "serve", model, "--port", 0, "--ctx", 512, "--max-sequences", 6, "--max-tokens-per-step", 48,
                 "--kv-memory", 640 * 2048, "--record", record, *keys, *flags]) as server:
        def client(i):
            draw = random.Random(i)
            for _ in range(4):
                body = {"prompt": WORDS * draw.randrange(4) + SECRET + str(draw.randrange(9)), "n": draw.randrange(1, 4),
                        "max_tokens": draw.randrange(1, 60), "temperature": 0.8, "stop": ["ab", "q"],
                        "cache_salt": draw.choice(["", SECRET])}
                if draw.randrange(4) == 0:  # goes away
                    data = {**body, "stream": True, "ignore_eos": True, "max_tokens": 200}
                    text = json.dumps(data).encode()
                    head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nX-Api-Key: alpha-key-1\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
                    with server.connect(head.encode() + text) as s:
                        s.recv(2000)
                elif draw.randrange(4) == 0:  # of a grammar that the server makes
                    lazy = {"grammar": 'root ::= "ab" [a-z ]{1,9}', "grammar_lazy": True,
                            "grammar_triggers": [{"type": 2, "value": "[^a]*?(ab)"}]}
                    call = {"messages": [{"role": "user", "content": SECRET}], "max_tokens": 20, "tool_choice": "required",
                            "tools": [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]}
                    for path, asked in (("/v1/completions", {**body, **lazy}), ("/v1/chat/completions", call)):
                        server.post(path, asked, **{"X-Api-Key": "alpha-key-1"})
                else:
                    server.post("/v1/completions", body, **{"X-Api-Key": "alpha-key-1"})

        threads = [threading.Thread(target=client, args=(i,)) for i in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert server.end()[0] == 0
    return model


def test_a_record_of_a_busy_server_runs_again_with_other_threads_and_kernels():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        record = folder / "record"
        model = serve_a_while(folder, record)
        assert record.stat().st_mode & 0o777 == 0o600
        told = []
        for arguments in ([], ["--model", model], ["--model", model, "--threads", 1]):
            code, _, log = replay(record, *arguments)
            assert code == 0 and "every step is the same" in log, log
            told.append(re.search(r"(\d+) requests, (\d+) steps, (\d+) tokens", log).groups())
        assert len(set(told)) == 1 and int(told[0][2]) > 300, told
        code, text, log = replay(record, "--request", 5, "--svg", folder / "life.svg")
        assert code == 0 and re.match(r"request 5: a prompt of \d+ tokens", text) and "ends as" in text, text
        for i in range(1, 16):  # those that went away among them
            _, text, _ = replay(record, "--request", i)
            assert "ends as" in text and "ends before" not in text, text
        assert (folder / "life.svg").read_text().startswith("<svg") and (folder / "life.svg").read_text().rstrip().endswith("</svg>")
        code, text, _ = replay(record, "--request", 10**6)
        assert code == 1 and "is not in the record" in text
        other = tiny_model.make(str(folder / "other"), width=64)
        code, _, log = replay(record, "--model", other)
        assert code == 1 and "another model" in log, log
        return " ".join(told[0])


def test_a_redacted_record_has_nothing_that_users_wrote_and_the_same_schedule():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        model = serve_a_while(folder, folder / "record", "--redact")
        code, _, log = replay(folder / "record")
        assert code == 0 and "every step is the same" in log and "(redacted)" in log, log
        assert SECRET.encode() not in (folder / "record").read_bytes()
        code, _, log = replay(folder / "record", "--model", model)
        assert code == 1 and "redacted" in log, log


def test_what_is_no_record_is_refused_with_a_sentence():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "text").write_text("no record of anything")
        for file, sentence in ((folder / "text", "is no record"), (folder / "missing", "missing"), (folder, "folder|directory")):
            code, _, log = replay(file)
            assert code == 1 and log.startswith("error: ") and re.search(sentence, log), log
        model = tiny_model.make(str(folder / "tiny"))
        done = subprocess.run([IBID, "serve", model, "--port", "0", "--record", str(folder / "text")], capture_output=True, text=True, timeout=600)
        assert done.returncode == 4 and "is there already" in done.stderr, (done.returncode, done.stderr)


if __name__ == "__main__":
    main(test_a_record_of_a_busy_server_runs_again_with_other_threads_and_kernels,
         test_a_redacted_record_has_nothing_that_users_wrote_and_the_same_schedule,
         test_what_is_no_record_is_refused_with_a_sentence)
