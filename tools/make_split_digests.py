#!/usr/bin/env python3
"""What the reference cuts 20,000 strings into, by the expressions of pre-tokenizers that no kind in
tests/conformance/tokenizers/kinds has.

  make_split_digests.py write            tests/conformance/tokenizers/splits.json
  make_split_digests.py show NAME I      string I of the corpus and its pieces

Needs `tokenizers`. A digest is 16 hexadecimal digits for every 200 strings: FNV-1a over the lengths of their pieces in
bytes. What comes after the corpus is a list of strings for the corners of single expressions.
"""
import argparse
import json
import os

import tokenizer_corpus

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "conformance", "tokenizers", "splits.json")
SEED = 4
N_STRINGS = 20000
BLOCK = 200
MASK = (1 << 64) - 1

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + SPACES
CASED = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+" + CONTRACTIONS + "?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*" + CONTRACTIONS + "?")
PUNCTUATED = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+"
DEEPSEEK3 = PUNCTUATED + "[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
HAN_AND_KANA = "[一-龥\u3040-ゟ゠-ヿ]+"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
HALVES = "|".join(r"\s{%d}(?!\S)" % n for n in (512, 256, 128, 64, 32, 16, 8, 4)) + r"|\s{1,2}(?!\S)|\s{1}"
# First and last code points; spelled as numbers, since some are not in normal form C.
ASIAN = [0x4E00, 0x9FFF, 0x3400, 0x4DBF, 0x8C48, 0xFAFF, 0x3040, 0x309F, 0x30A0, 0x30FF, 0xFF65, 0xFF9F, 0x2F00, 0x2FDF,
         0xE40, 0xE7F, 0xE80, 0xEFF, 0x1780, 0x17FF, 0x1000, 0x109F, 0xAA60, 0xAA7F, 0xA9E0, 0xA9FF, 0xAC00, 0xD7AF,
         0x1100, 0x11FF]
ASIAN_RUNS = "[" + "".join(f"{chr(a)}-{chr(b)}" for a, b in zip(ASIAN[::2], ASIAN[1::2])) + "]+"
WITHOUT_HAN = r"&&[^\p{Han}]]"
FAMILIES = {
    "qwen35": [CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + SPACES],
    "grok-2": [QWEN2],
    "laguna": [r"[^\n]+|[\n]+", QWEN2],
    "bailingmoe": [r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"],
    "ufakzeka": [QWEN2[len(CONTRACTIONS) + 1:]],
    "seed-coder": [CONTRACTIONS + "|[^\r\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\r\n]+|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"],
    "exaone-moe": [CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|"
                                  r"\s*[\r\n]|\s+(?!\S)|\s+"],
    "minicpm5": [r"\p{N}{1,3}", QWEN2.replace(r"\p{N}|", r"\p{N}+|")],
    "jais-2": [CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|" + HALVES],
    "k2-horizon": [CONTRACTIONS + "|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}|\\p{M}|\u200C|\u200D)+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" + SPACES],
    "kimi-k2": [r"[\p{Han}]+|" + CASED.replace(r"\p{M}]", r"\p{M}" + WITHOUT_HAN) + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + SPACES],
    "youtu": ["[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|" + HAN_AND_KANA,
              CASED + r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + SPACES],
    "tiny_aya": [r"\d{1,3}(?=(?:\d{3})*\b)", CASED + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + SPACES],
    "superbpe": [r"\p{N}+", r"(?=(\d{3})+(?!\d))"],
    "spark2_5": [r"\p{N}{1,3}", HAN_AND_KANA, PUNCTUATED + "|[\r\n]|\\s+(?!\\S)|\\s+", r"\p{N}"],
    "afmoe": [r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))", ASIAN_RUNS, DEEPSEEK3],
    "chameleon": ["<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", r"([\t\n]|    |  )", r"\p{N}",
                  r"[\p{P}!-/:-@\[-`{-~]", GPT2],
}
CORNERS = [
    "<sentinel:12> a<sentinel:>b<sentinel:7<sentinel:8>", "IMGIMGABZ IMGIMGABCDEZIMGIMGIZx IMGIMGZ", "\t  a   b    c     d\n\n e",
    "1234567 12345a 1234567.89 ١٢٣٤٥٦٧ 1²345 12²345678²9 0001 999999 1234é", "123456789012345678901234567890", "a1b22c333d4444e55555 f666666_7777777",
    *["x" + " " * n + "y" for n in (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 511, 512, 513, 514, 1500)],
    *[" " * n for n in (1, 2, 3, 5, 8, 511, 512, 513, 1030)], " \u3000\u00A0\t \n \t  \u2003x", "a  \n\n   b \r\n\r\n/ c!\n\n/\n;\r\n",
    "e\u0301\u0302 \u0301 !\u0301a \u0301\u0301 क्षि देवनागरी लिपि a b c  d e\u0301 f", "नमस्ते दुनिया \u200Cक\u200Dष\u200C! \u200D\u200D",
    "漢字かなカナ々〇⺀⼀한글 abc漢字'sABC漢字def'LL 〡〢 漢。字！…“x”、。〿ㄅㄆㄧㄱㆎ", "I'M he'S don'T 'RE we'vE a'lL 'sd 'tt '\u017F", "KAYNAĞI'nı İstanbul'da",
    "a_b __x .b ,C !d #e\u0301 $\n\r\n$\r", "\u0E01\u0E33\u0E44\u0E17\u0E22 \u1780\u17B6\u1793\u17CB \uFA0E\uF900\uE000\uA000 \uFF76\uFF9E", "",
]


def pre_tokenizer(name):
    from tokenizers import Regex, pre_tokenizers
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(p), "isolated") for p in FAMILIES[name]])


def hash_pieces(pieces, h=0xCBF29CE484222325):
    """FNV-1a over lengths in bytes, four bytes each, low byte first."""
    for piece, _ in pieces:
        n = len(piece.encode())
        for k in range(4):
            h = ((h ^ (n >> 8 * k & 255)) * 0x100000001B3) & MASK
    return h


def write(_):
    result = {"seed": SEED, "strings": N_STRINGS, "block": BLOCK, "corners": CORNERS, "families": {}}
    corpus = [tokenizer_corpus.string(SEED, i) for i in range(N_STRINGS)]
    for name, patterns in FAMILIES.items():
        cut = pre_tokenizer(name)
        digests = []
        for texts in [corpus[i:i + BLOCK] for i in range(0, N_STRINGS, BLOCK)] + [[c] for c in CORNERS]:
            h = 0xCBF29CE484222325
            for text in texts:
                h = hash_pieces(cut.pre_tokenize_str(text), h)
            digests.append(f"{h:016x}")
        n = N_STRINGS // BLOCK
        result["families"][name] = {"patterns": patterns, "digests": "".join(digests[:n]), "corners": "".join(digests[n:])}
        print(name, flush=True)
    with open(HERE, "w", encoding="utf-8") as f:
        f.write(json.dumps(result, ensure_ascii=True, indent=1) + "\n")


def show(args):
    text = tokenizer_corpus.string(SEED, args.index) if args.index >= 0 else CORNERS[-1 - args.index]
    print(repr(text), [p for p, _ in pre_tokenizer(args.name).pre_tokenize_str(text)], sep="\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    commands.add_parser("write").set_defaults(run=write)
    command = commands.add_parser("show")
    command.add_argument("name")
    command.add_argument("index", type=int, help="-1, -2 ...: the corners")
    command.set_defaults(run=show)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
