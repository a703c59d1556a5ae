"""openapi.json against its validator, and the server against openapi.json: schemathesis sends what the description allows
and what it forbids. openapi_test.py BUILD_DIR."""
import collections
import json
import os
import random
import re
import subprocess
import tempfile

import tiny_model
from harness import HERE, IBID, Server, main, venv

TOOLS = ("schemathesis==4.32.5", "hypothesis==6.170.15", "openapi-spec-validator==0.9.0")


def tools():
    return venv("venv-openapi", *TOOLS)


def serve():
    folder = tempfile.TemporaryDirectory()
    model = tiny_model.make(folder.name + "/tiny")
    server = Server([IBID, "serve", model, "--port", 0, "--ctx", 1024, "--log-json", "--slots"])
    server.folder = folder  # lives as long
    return server


def cases():
    seed = os.environ.get("IBID_SEED")
    if seed == "random":
        seed = str(random.SystemRandom().randrange(1 << 32))
        print(f"IBID_SEED={seed} repeats this", flush=True)
    return ["--seed", seed, "--generation-database", "none"] if seed else ["--seed", 1, "--generation-deterministic"]


def explore(server, *flags, all_served=False):
    """A run of schemathesis with the same cases each time, or with those of the seed that IBID_SEED names (by hand); how many
    cases it made, and what was answered."""
    # One worker: hypothesis shares caches between threads that it does not guard.
    command = [tools() / "schemathesis", "run", server.url + "/openapi.json", "--workers", 1, *cases(),
               "--continue-on-failure", "--no-color", *flags]
    environment = {**os.environ, "SCHEMATHESIS_HOOKS": "openapi_hooks", "PYTHONPATH": str(HERE),
                   **({"IBID_ALL_SERVED": "1"} if all_served else {})}
    with tempfile.TemporaryDirectory() as empty:
        done = subprocess.run([str(c) for c in command], cwd=empty, env=environment, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    answers = collections.Counter()
    for line in server.log_text().splitlines():
        if (entry := json.loads(line))["event"] == "request":
            kind = "stream" if entry.get("stream") else entry["route"]
            answers[kind, entry["status"]] += 1
    assert all(status < 500 for _, status in answers), answers
    n_cases = int(re.search(r"(\d+) generated", done.stdout)[1])
    return n_cases, answers


def test_the_validator_accepts_the_description():
    with serve() as server:
        text = server.get("/openapi.json")
    check = "import json, sys; from openapi_spec_validator import validate; validate(json.load(sys.stdin))"
    done = subprocess.run([tools() / "python", "-c", check], input=text, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]


def test_what_is_allowed_and_what_is_forbidden_is_answered_as_described():
    # Without the check that all valid data is accepted: what a schema cannot say is in openapi_hooks.py.
    with serve() as server:
        n, answers = explore(server, "--max-examples", 15, "--exclude-checks", "positive_data_acceptance")
    assert answers["chat", 400] > 100 and answers["completions", 400] > 100, answers
    return f"{n} requests"


def test_valid_requests_are_served_as_described():
    with serve() as server:
        n, answers = explore(server, "--mode", "positive", "--phases", "fuzzing", "--max-examples", 120,
                             "--include-method", "POST",
                             "--exclude-path-regex", "^/(v1/messages|v1/chat/completions/|invocations|v2/embed|models/|v1/responses|v1/embeddings|pooling|predict|v1/rerank|v2/rerank|rerank|v1/score|score|v1/files|v1/batches|api/|completion|embedding|infill)", all_served=True)
    served = sum(n for (kind, status), n in answers.items() if kind in ("chat", "completions", "stream") and status == 200)
    refused = sum(n for (kind, status), n in answers.items() if kind in ("chat", "completions") and status >= 400)
    assert served > 50 * refused and answers["stream", 200] > 50, answers
    return f"{n} requests, {answers['stream', 200]} of them streams"


if __name__ == "__main__":
    main(test_the_validator_accepts_the_description, test_what_is_allowed_and_what_is_forbidden_is_answered_as_described,
         test_valid_requests_are_served_as_described)
