#!/usr/bin/env python3
"""How good `ibid_predicted_first_token_seconds` is: what /metrics predicts, beside what a request then waits.

    ninja -C build ibid && python3 bench/predicted_first_token.py [MODEL] [--looks 60]

Starts a server. Clients keep it busy with prompts and answers of random lengths, in bursts, so that there are times with and
without a queue. Now and then all of them pause, /metrics is read, and a streamed request with as many tokens as the mean of the
last ones is sent; its time to the first token is measured here, socket included. With --arrivals the others do not pause. Prints
the quantiles of |predicted - measured| / measured.
"""
import argparse
import http.client
import json
import pathlib
import random
import re
import sys
import threading
import time

from kill_a_replica import Replica

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORDS = "sea clock prime forest bicycle paper sky rain river stone bridge window garden market letter winter".split()


class Server(Replica):
    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)

    def gauges(self):
        connection = self.connect()
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        return [float(re.search(rf"^ibid_{name} (\S+)$", text, re.M)[1]) for name in ("predicted_first_token_seconds", "queue_tokens")]

    def ask(self, n_words, n_answer, chance):
        """Streams an answer; seconds to its first token."""
        words = [f"{chance.randrange(10**6)}"] + [chance.choice(WORDS) for _ in range(n_words)]
        body = {"prompt": " ".join(words), "max_tokens": n_answer, "stream": True, "ignore_eos": True}
        connection = self.connect()
        begin = time.monotonic()
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        response, first = connection.getresponse(), None
        for line in response:
            if first is None and b'"choices"' in line:
                first = time.monotonic() - begin
        return first


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", help="as of ibid serve; default: its own default")
    parser.add_argument("--ibid", default=ROOT / "build/ibid", type=pathlib.Path)
    parser.add_argument("--looks", default=60, type=int)
    parser.add_argument("--words", default=200, type=int, help="of the prompts that are asked about; the others have up to twice as many")
    parser.add_argument("--clients", default=12, type=int)
    parser.add_argument("--arrivals", action="store_true", help="further requests arrive while one waits")
    parser.add_argument("--flag", action="append", default=[], help="of ibid serve, as --flag=--max-sequences=4")
    args = parser.parse_args()
    flags = [part for flag in args.flag for part in flag.split("=", 1)]
    server = Server(args.ibid, args.model, "--no-request-log", *flags)
    may_ask, is_over = threading.Event(), threading.Event()

    def client(number):
        chance = random.Random(number)
        while not is_over.is_set():
            if not may_ask.wait(0.2):
                continue
            try:
                server.ask(chance.randrange(2 * args.words), chance.randrange(1, 80), chance)
            except (OSError, http.client.HTTPException):
                return  # the server has ended
            is_over.wait(chance.random() * 2)

    threads = [threading.Thread(target=client, args=(number,), daemon=True) for number in range(args.clients)]
    for thread in threads:
        thread.start()
    chance, rows = random.Random(7), []
    try:
        for _ in range(16):  # what requests are like is learned of these
            server.ask(args.words, 4, chance)
        for _ in range(args.looks):
            may_ask.set()
            time.sleep(0.2 + chance.random() * 2)
            if not args.arrivals:
                may_ask.clear()
            time.sleep(0.15)  # the gauges are up to 50 ms or a step old
            predicted, queued = server.gauges()
            rows.append((predicted, server.ask(args.words, 2, chance), queued))
            print(f"queue {queued:6.0f} tokens  predicted {predicted:7.3f} s  measured {rows[-1][1]:7.3f} s", flush=True)
    finally:
        is_over.set()
        server.process.kill()
        server.process.wait()
    errors = sorted(abs(predicted - measured) / measured for predicted, measured, _ in rows)
    n_queued = sum(queued > 0 for _, _, queued in rows)
    print(f"{len(rows)} looks, {n_queued} of them at a queue: error p50 {100 * errors[len(errors) // 2]:.0f} %, "
          f"p95 {100 * errors[len(errors) * 95 // 100]:.0f} %")


if __name__ == "__main__":
    main()
