#!/usr/bin/env python3
"""Eight streams, one server killed in the midst of them, no byte lost.

    ninja -C build ibid && python3 bench/kill_a_replica.py [MODEL]

Starts two servers of the same model with different numbers of threads. Eight clients ask the first one, at temperature
0.9, each with a seed of its own. When all have had some tokens, the first server gets SIGKILL; each client sends its
request to the second one with the ids that it has (docs/users/replicas.md). Prints how many tokens came from where and
whether each answer has the bytes of an undisturbed run. Exit status 1 where one has not.
"""
import argparse
import hashlib
import http.client
import json
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROMPTS = ["Tell me about the sea.", "Write a short story about a clock.", "What is a prime number?", "Describe a forest in autumn.",
           "How does a bicycle stay upright?", "List ten uses of a paper clip.", "Why is the sky blue?", "Explain rain to a child."]


class Replica:
    def __init__(self, ibid, model, *flags):
        self.log = tempfile.NamedTemporaryFile("r", prefix="replica-")
        command = [ibid, "serve", *([model] if model else []), "--port", "0", *flags]
        self.process = subprocess.Popen(command, stderr=open(self.log.name, "w"), stdout=subprocess.DEVNULL)
        while not (found := re.search(r"http://[^ ]*?:(\d+)/health", self.text())) or "Serving " not in self.text():
            if self.process.poll() is not None:
                sys.exit(f"the server ended:\n{self.text()}")
            time.sleep(0.05)
        self.port = int(found[1])

    def text(self):
        return pathlib.Path(self.log.name).read_text()


class Answer:
    """What one client has heard."""

    def __init__(self, number, max_tokens):
        self.body = {"messages": [{"role": "user", "content": PROMPTS[number]}], "max_tokens": max_tokens, "temperature": 0.9,
                     "seed": 1000 + number, "stream": True, "return_token_ids": True}
        self.text, self.ids, self.fingerprint, self.is_over, self.n_first = "", [], None, False, 0

    def read(self, port):
        """Reads the stream until its end; false if it broke off."""
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
            connection.request("POST", "/v1/chat/completions", json.dumps(self.body), {"Content-Type": "application/json"})
            response = connection.getresponse()
            if response.status != 200:
                sys.exit(response.read().decode())
            event = b""
            for line in response:
                event += line
                if not event.endswith(b"\n\n"):  # an event that is cut counts for nothing
                    continue
                data, event = event.strip().removeprefix(b"data: "), b""
                if data == b"[DONE]":
                    self.is_over = True
                    return True
                if data.startswith(b"{"):
                    self.hear(json.loads(data))
        except (OSError, http.client.HTTPException):
            pass
        return False

    def hear(self, event):
        self.fingerprint = event["system_fingerprint"]
        for choice in event["choices"]:
            self.text += choice["delta"].get("content") or choice["delta"].get("reasoning") or ""
            self.ids += choice.get("token_ids", [])

    def resume(self, port):
        self.n_first = len(self.ids)
        self.body["resume"] = {"token_ids": list(self.ids), "system_fingerprint": self.fingerprint}
        return self.read(port)

    def digest(self):
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]


def in_parallel(answers, do):
    threads = [threading.Thread(target=do, args=(answer,)) for answer in answers]
    for thread in threads:
        thread.start()
    return threads


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", help="as of ibid serve; default: its own default")
    parser.add_argument("--ibid", default=ROOT / "build/ibid", type=pathlib.Path)
    parser.add_argument("--max-tokens", default=128, type=int)
    parser.add_argument("--before", default=24, type=int, help="tokens that each client has before the server is killed")
    args = parser.parse_args()
    replicas = [Replica(args.ibid, args.model, "--threads", str(threads)) for threads in (2, 1)]
    try:
        cut = [Answer(i, args.max_tokens) for i in range(len(PROMPTS))]
        threads = in_parallel(cut, lambda answer: answer.read(replicas[0].port))
        while any(len(answer.ids) < args.before and not answer.is_over for answer in cut):
            time.sleep(0.005)
        replicas[0].process.send_signal(signal.SIGKILL)
        for thread in threads:
            thread.join()
        for thread in in_parallel([a for a in cut if not a.is_over], lambda answer: answer.resume(replicas[1].port)):
            thread.join()
        whole = [Answer(i, args.max_tokens) for i in range(len(PROMPTS))]
        for answer in whole:
            answer.read(replicas[1].port)
    finally:
        for replica in replicas:
            replica.process.kill()
            replica.process.wait()
    n_cut = n_equal = 0
    print("stream  tokens from the first  from the second  bytes  SHA-256           undisturbed")
    for i, (one, other) in enumerate(zip(cut, whole)):
        equal = one.text == other.text and one.ids == other.ids and one.is_over and other.is_over
        n_first = one.n_first or len(one.ids)
        n_cut, n_equal = n_cut + (one.n_first > 0), n_equal + equal
        print(f"{i:6}  {n_first:21}  {len(one.ids) - n_first:15}  {len(one.text.encode()):5}  {one.digest()}  "
              f"{other.digest()} {'equal' if equal else 'DIFFERENT'}")
    print(f"{n_cut} of {len(cut)} streams were cut; {n_equal} have the bytes of an undisturbed run")
    sys.exit(0 if n_equal == len(cut) and n_cut > 0 else 1)


if __name__ == "__main__":
    main()
