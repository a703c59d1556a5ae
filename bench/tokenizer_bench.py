#!/usr/bin/env python3
"""Tokenizer speed beside Python `tokenizers`, one thread each, in one run.

  bench/tokenizer_bench.py TOKENIZER.json [...] [--program build/tokenizer_bench] [--mb 10]

Texts of 10 MB: prose (../shared/data/text/botchan.txt where it is, else the Python licence and docstrings), code (the
standard library's sources), Chinese (sentences drawn from common characters). Prints MB/s of both and the ratio, the
time of 1 MB runs beside prose, and the time to load.
"""
import argparse
import os
import random
import subprocess
import sys
import sysconfig
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

COMMON = ("的一是不了人我在有他这为之大来以个中上们到说国和地也子时道出而要于就下得可你年生自会那后能对着事其里所去行过"
          "家十用发天如然作方成者多日都三小军二无同么经法当起与好看学进种将还分此心前面又定见只主没公从")
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")


def sources(n_bytes):
    folder, parts, size = sysconfig.get_paths()["stdlib"], [], 0
    for name in sorted(os.listdir(folder)):
        if name.endswith(".py"):
            with open(os.path.join(folder, name), encoding="utf-8") as f:
                parts.append(f.read())
            size += len(parts[-1])
            if size > n_bytes:
                break
    return "".join(parts)


def fill(text, n_bytes):
    data = text.encode()
    while len(data) < n_bytes:
        data += data
    return data[:n_bytes].decode("utf-8", "ignore")


def texts(n_bytes):
    botchan = os.path.join(ROOT, "../shared/data/text/botchan.txt")
    if os.path.exists(botchan):
        prose = open(botchan, encoding="utf-8").read()
    else:
        prose = "\n".join(line for line in sources(n_bytes).split("\n") if line.count(" ") > 6 and "=" not in line)
    draw = random.Random(1)
    characters = [chr(0x4E00 + draw.randrange(3000)) for _ in range(800)] + list(COMMON) * 12
    chinese = "".join("".join(draw.choice(characters) for _ in range(draw.randrange(4, 24))) + draw.choice("，，。、！")
                      + ("\n" if draw.random() < 0.1 else "") for _ in range(60000))
    return {"prose": fill(prose, n_bytes), "code": fill(sources(n_bytes), n_bytes), "chinese": fill(chinese, n_bytes)}


def reference_speed(tokenizer, text):
    # Its own way of many texts: pieces of 64 kB, the best of two passes.
    pieces = [text[i:i + 65536] for i in range(0, len(text), 65536)]
    best = 1e9
    for _ in range(2):
        begin = time.perf_counter()
        for piece in pieces:
            tokenizer.encode(piece, add_special_tokens=False)
        best = min(best, time.perf_counter() - begin)
    return len(text.encode()) / best / 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizers", nargs="+")
    parser.add_argument("--program", default=os.path.join(ROOT, "build", "tokenizer_bench"))
    parser.add_argument("--mb", type=float, default=10)
    args = parser.parse_args()
    from tokenizers import Tokenizer, __version__
    run = lambda *words: subprocess.run([args.program, *words], capture_output=True, text=True, check=True).stdout.strip()
    print(f"one thread, {args.mb:g} MB each; reference: tokenizers {__version__}")
    worst = 1e9
    for path in args.tokenizers:
        reference = Tokenizer.from_file(path)
        print(f"{path}: loads in {run('load', path)}")
        for name, text in texts(int(args.mb * 1e6)).items():
            with tempfile.NamedTemporaryFile(suffix=".txt") as f:
                f.write(text.encode())
                f.flush()
                ours = float(run("time", path, f.name, "0.5").split()[0])
                theirs = reference_speed(reference, text)
                worst = min(worst, ours / theirs)
                print(f"  {name:8} ours {ours:7.2f} MB/s  reference {theirs:6.2f} MB/s  ratio {ours / theirs:5.2f}", flush=True)
                if name == "prose":
                    for line in run("runs", path, f.name).split("\n"):
                        print("    " + line)
    print(f"worst ratio {worst:.2f}")


if __name__ == "__main__":
    main()
