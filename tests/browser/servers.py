"""`ibid serve` on the default model, and clients beside the browser."""
import json
import pathlib
import socket
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "conformance"))
import harness  # noqa: E402


class Server(harness.Server):
    """`model`: another one than the default."""

    def __init__(self, *options, port=0, key=None, model=None):
        self.headers = {"X-Api-Key": key} if key else {}
        super().__init__([harness.IBID, "serve", *([model] if model else harness.default_model()), "--port", port, "--log-json", *options,
                          *(["--api-key", key] if key else [])], seconds=600)

    def engine(self):
        return json.loads(self.get("/engine", **self.headers))

    def metric(self, name):
        lines = self.get("/metrics", **self.headers).splitlines()
        value, = [line.rsplit(" ", 1)[1] for line in lines if line.startswith(name + " ")]
        return float(value)

    def lines(self, route):
        """The log's lines of a route's requests, as objects."""
        lines = [json.loads(line) for line in self.log_text().splitlines() if line.endswith("}")]
        return [line for line in lines if line.get("route") == route]

    def until(self, holds, what, seconds=600):
        if value := harness.eventually(holds, seconds):
            return value
        raise AssertionError(f"{what}: not within {seconds} s")


class Streams:
    """Requests that run until the end of the block; then their clients are gone."""

    def __init__(self, server, n, prompt, max_tokens=1500):
        self.sockets, self.threads = [], []
        for i in range(n):
            body = {"messages": [{"role": "user", "content": f"{prompt} {i}"}], "stream": True, "ignore_eos": True,
                    "max_tokens": max_tokens, "seed": i}
            self.sockets.append(server.connect(harness.post_bytes("/v1/chat/completions", body)))
            self.threads.append(threading.Thread(target=harness.read_all, args=(self.sockets[-1], 120), daemon=True))
            self.threads[-1].start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for s in self.sockets:
            s.shutdown(socket.SHUT_RDWR)
        for s, thread in zip(self.sockets, self.threads):
            thread.join(10)
            s.close()
