#!/usr/bin/env python3
"""Lets a served model write the text that draft heads are trained on: its own questions and its own answers to them.

    ibid serve --port 8711 --max-sequences 48 --no-page &
    tools/write_head_text.py --port 8711 --tokens 600000 --out text.jsonl     # goes on where it stopped

Questions are the model's own continuations of an opened turn of the user (Xu et al., "Magpie: Alignment Data Synthesis
from Scratch by Prompting Aligned LLMs with Nothing", 2024): some free, some after the first words of a task, some about
a passage that it wrote before. A line is {"prompt": ids, "answer": ids, "kind", "temperature"}; ids as they were sampled,
never tokenised again. Everything follows from --seed but the order of the lines. What shares eight tokens in a row with a
prompt of bench/prompts is left out, so that what is measured there was never seen.
"""
import argparse
import concurrent.futures
import json
import random
import threading
import urllib.request
from pathlib import Path

BENCH = Path(__file__).resolve().parent.parent / "bench" / "prompts" / "speculation.txt"
SHARED = 8  # tokens in a row that no question may share with a prompt of the bench

OPENINGS = {  # first words of a user's turn, which the model goes on from
    "code": ["Write a Python function that", "Write a Python script to", "Implement a class in Python for", "Write a Java method that",
             "Create a JavaScript function", "Here is my code:\n```python\n", "Fix the bug in this function:\n```python\ndef ", "Write a C program that",
             "Write an SQL query that", "Write a bash script that", "Write a C++ function that", "Write an HTML page with", "Explain what this code does:\n```"],
    "chat": ["", "", "", "", "How do I", "What is", "Why do", "Can you explain", "Give me advice on", "I feel", "Tell me about", "Write a poem about",
             "Write an email to", "What are the steps to", "Compare", "Help me plan", "Who was", "Is it true that"],
    "passage": ["Write a short report about", "Write a news item about", "Write a paragraph with many facts about", "Describe a day at",
                "Write the minutes of a meeting of", "Write a product description of", "Write a short biography of", "Write a page of a diary about",
                "Write instructions for", "Write a letter to"],
}
TASKS = {  # about a passage, which stands before or after
    "summary": ["Give me the main points of the passage above.", "What is the passage about? Answer briefly.", "Write a summary.", "TL;DR",
                "Sum up the key ideas in your own words.", "Condense the above to half of its length.", "Make a short abstract of it."],
    "edit": ["Improve the grammar and keep everything else.", "Rewrite it in a more formal tone.", "Turn it into the first person.",
             "Make every sentence shorter.", "Proofread the passage above and print it again.", "Print the passage once more, with the first word of each sentence in capitals.",
             "Simplify the language for a child.", "Put it into the future tense.", "Replace every adjective."],
    "json": ["Turn the facts above into JSON.", "Give me a JSON list of all people, places and dates.", "Convert this into a JSON document with sensible field names.",
             "Which numbers are named? Answer in JSON.", "Make a JSON array with one entry for each sentence, with subject and verb."],
}
KINDS = [("chat", 40), ("code", 22), ("summary", 14), ("edit", 14), ("json", 10)]
TEMPERATURES = [0.8, 0.8, 0.8, 0.0, 0.0, 1.0]  # of answers


class Client:
    def __init__(self, port):
        self.base = f"http://127.0.0.1:{port}"

    def post(self, path, body):
        request = urllib.request.Request(self.base + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=600) as answer:
            return json.load(answer)

    def tokens_of(self, text):
        return self.post("/tokenize", {"content": text, "add_special": False, "parse_special": True})["tokens"]

    def chat(self, text):
        return self.post("/tokenize", {"messages": [{"role": "user", "content": text}]})["tokens"]

    def complete(self, ids, max_tokens, temperature, seed):
        """The answer's ids, its text and whether it ended by itself."""
        choice = self.post("/v1/completions", {"prompt": ids, "max_tokens": max_tokens, "temperature": temperature, "seed": seed,
                                               "top_p": 1, "return_token_ids": True})["choices"][0]
        return choice["token_ids"], choice["text"], choice["finish_reason"] == "stop"


def eights(ids):
    return {tuple(ids[i:i + SHARED]) for i in range(len(ids) - SHARED + 1)}


class Writer:
    def __init__(self, client, seed):
        self.client, self.seed = client, seed
        turn, marker = client.chat("@"), client.tokens_of("@")[0]
        self.opened = turn[:turn.index(marker)]  # the template's tokens up to the user's words
        self.banned = set()
        for part in BENCH.read_text().split("\n== ")[1:]:
            self.banned |= eights(client.tokens_of(part.split("\n", 1)[1].strip()))

    def question(self, kind, draw):
        """Text of a user's turn, as the model goes on from its first words; None where it is of no use."""
        opening = draw.choice(OPENINGS[kind])
        _, text, ended = self.client.complete(self.opened + self.client.tokens_of(opening), 300 if kind == "passage" else 160, 1.0, draw.getrandbits(40))
        text = (opening + text).strip()
        return text if ended and len(text) > 12 else None

    def passage(self, draw):
        question = self.question("passage", draw)
        if question is None:
            return None
        _, text, _ = self.client.complete(self.client.chat(question), 220, 0.9, draw.getrandbits(40))
        end = max(text.rfind("."), text.rfind("!"))
        return text[:end + 1] if end > 200 else None

    def line(self, number):
        draw = random.Random(f"{self.seed} {number}")
        kind = draw.choices([k for k, _ in KINDS], [w for _, w in KINDS])[0]
        if kind in TASKS:
            passage = self.passage(draw)
            question = passage and (passage + "\n\n" + draw.choice(TASKS[kind]) if draw.random() < 0.7 else
                                    draw.choice(TASKS[kind]).replace(" above", "") + "\n\n" + passage)
        else:
            question = self.question(kind, draw)
        if not question:
            return None
        prompt = self.client.chat(question)
        if eights(prompt[len(self.opened):]) & self.banned:
            return None
        temperature = draw.choice(TEMPERATURES)
        answer, _, ended = self.client.complete(prompt, 256, temperature, draw.getrandbits(40))
        return {"number": number, "kind": kind, "temperature": temperature, "prompt": prompt, "answer": answer, "ended": ended}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--port", type=int, default=8711)
    parser.add_argument("--tokens", type=int, default=600_000, help="of answers")
    parser.add_argument("--streams", type=int, default=48)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    writer = Writer(Client(options.port), options.seed)
    done, n = set(), 0
    if options.out.exists():
        for text in options.out.read_text().splitlines():
            line = json.loads(text)
            done.add(line["number"])
            n += len(line["answer"])
    lock, count = threading.Lock(), {"next": 0, "n": n}

    def work(out):
        while True:
            with lock:
                if count["n"] >= options.tokens:
                    return
                number = count["next"]
                count["next"] += 1
            if number in done:
                continue
            line = writer.line(number)
            if line is None:
                continue
            with lock:
                out.write(json.dumps(line) + "\n")
                out.flush()
                before, count["n"] = count["n"], count["n"] + len(line["answer"])
                if before // 20_000 != count["n"] // 20_000:
                    print(f"{count['n']:,} of {options.tokens:,} tokens", flush=True)

    with options.out.open("a") as out, concurrent.futures.ThreadPoolExecutor(options.streams) as pool:
        for worker in [pool.submit(work, out) for _ in range(options.streams)]:
            worker.result()


if __name__ == "__main__":
    main()
