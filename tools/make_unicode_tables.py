#!/usr/bin/env python3
"""Writes src/text/tokenizer/unicode_tables.cc by asking the reference itself.

Every property is what the Python package `tokenizers` does with each code point, so that our tables have its Unicode
version for each of its parts (its regex engine, Rust's char methods and its normalizers follow different versions).
Needs `tokenizers`; takes about three minutes.   usage: make_unicode_tables.py [OUTPUT]
"""
import sys
import unicodedata

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

CATEGORIES = ("Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co Cn").split()
CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
# The first code points of each version identify the version of a set of assigned code points.
FIRST_OF_VERSION = [("17.0", 0x88F), ("16.0", 0x1C89), ("15.1", 0x2FFC), ("15.0", 0x0CF3), ("14.0", 0x061D),
                    ("13.0", 0x08BE), ("12.1", 0x32FF), ("12.0", 0x0C77), ("11.0", 0x0560)]


def chunks(size=4096):
    for i in range(0, len(CODE_POINTS), size):
        yield CODE_POINTS[i:i + size]


def matched(pattern):
    splitter = pre_tokenizers.Split(Regex(pattern), "removed", invert=True)
    found = set()
    for chunk in chunks():
        for word, _ in splitter.pre_tokenize_str("".join(map(chr, chunk))):
            found.update(map(ord, word))
    return found


def removed(splitter):
    """Code points that a splitter with removing behaviour drops between letters."""
    kept = set()
    for chunk in chunks():
        for word, _ in splitter.pre_tokenize_str("".join(map(chr, chunk))):
            kept.update(map(ord, word))
    return set(CODE_POINTS) - kept


def isolated(splitter, among):
    return {c for c in among if len(splitter.pre_tokenize_str("a" + chr(c) + "a")) > 1}


def mapping(normalizer):
    result = {}
    for c in CODE_POINTS:
        text = normalizer.normalize_str(chr(c))
        if text != chr(c):
            result[c] = [ord(x) for x in text]
    return result


def version_of(assigned):
    return next((v for v, c in FIRST_OF_VERSION if c in assigned), "older than 11.0")


def array(name, kind, values, per_line=32):
    lines = [f"const {kind} {name}[] = {{"]
    for i in range(0, len(values), per_line):
        lines.append(",".join(map(str, values[i:i + per_line])) + ",")
    return "\n".join(lines) + "\n};\n"


def main():
    category = {}
    for i, name in enumerate(CATEGORIES):
        for c in matched(r"\p{%s}" % name):
            assert c not in category
            category[c] = i
    assert len(category) == len(CODE_POINTS)
    cn, cc = CATEGORIES.index("Cn"), CATEGORIES.index("Cc")
    whitespace = matched(r"\s")
    assert whitespace == matched(r"\p{White_Space}")
    assert whitespace == {c for c in CODE_POINTS if CATEGORIES[category[c]][0] == "Z" or c in (9, 10, 11, 12, 13, 0x85)}

    nfd, nfkd = mapping(normalizers.NFD()), mapping(normalizers.NFKD())
    nfc = mapping(normalizers.NFC())
    lower = mapping(normalizers.Lowercase())
    hangul = range(0xAC00, 0xD7A4)

    # Combining classes: Python's, where the reference reorders by them.
    nfd_text = normalizers.NFD().normalize_str
    ccc = {}
    for c in CODE_POINTS:
        k = unicodedata.combining(chr(c))
        if k > 1 and nfd_text(chr(c) + "\u0334") == "\u0334" + chr(c) or k == 1 and nfd_text("\u3099" + chr(c)) == chr(c) + "\u3099":
            ccc[c] = k
    compositions = {}
    for c in nfd:
        if c in nfc or c in hangul:
            continue
        parts = unicodedata.decomposition(chr(c)).split()
        assert len(parts) == 2 and parts[0][0] != "<", hex(c)
        a, b = (int(x, 16) for x in parts)
        assert normalizers.NFC().normalize_str(chr(a) + chr(b)) == chr(c), hex(c)
        compositions[a, b] = c
    seconds = {b for _, b in compositions} | set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3))

    strip = normalizers.StripAccents().normalize_str
    bert = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    bert_clean = normalizers.BertNormalizer(**{**bert, "clean_text": True}).normalize_str
    bert_strip = normalizers.BertNormalizer(**{**bert, "strip_accents": True}).normalize_str
    word = set()
    white = pre_tokenizers.Whitespace()
    for c in CODE_POINTS:
        if len(white.pre_tokenize_str("a" + chr(c))) == 1 and c not in whitespace:
            word.add(c)
    punctuation = removed(pre_tokenizers.Punctuation(behavior="removed"))
    rust_space = removed(pre_tokenizers.WhitespaceSplit())
    digits = isolated(pre_tokenizers.Digits(individual_digits=True), CODE_POINTS)
    bert_pre = pre_tokenizers.BertPreTokenizer()
    assert isolated(bert_pre, CODE_POINTS) - rust_space == punctuation
    han = matched(r"\p{Han}")

    sets = [digits, punctuation, {c for c in CODE_POINTS if strip(chr(c)) == ""}, word,
            {c for c in CODE_POINTS if bert_clean(chr(c)) == ""},
            {c for c in CODE_POINTS if c != 32 and bert_clean(chr(c)) == " "} | {32}, han, set(lower), set(nfd), set(nfkd),
            set(ccc) | seconds | set(nfc), rust_space, {c for c in CODE_POINTS if c not in nfd and bert_strip(chr(c)) == ""}]
    values = [0] * 0x110000
    for c in range(0x110000):
        v = category.get(c, cn)
        for i, s in enumerate(sets):
            if c in s:
                v |= 1 << (5 + i)
        values[c] = v | ccc.get(c, 0) << 24
    records = sorted(set(values))
    assert len(records) <= 256
    number = {v: i for i, v in enumerate(records)}
    blocks, stage1 = {}, []
    for i in range(0, 0x110000, 256):
        block = tuple(number[v] for v in values[i:i + 256])
        stage1.append(blocks.setdefault(block, len(blocks)))
    stage2 = [x for block in blocks for x in block]
    assert len(blocks) <= 65535

    def mapping_arrays(name, table):
        keys, pool = [], []
        for c in sorted(table):
            keys += [c, len(pool) << 8 | len(table[c])]
            pool += table[c]
        return array(f"k{name}Keys", "uint32_t", keys, 16) + array(f"k{name}Pool", "uint32_t", pool, 16) + \
            f"const size_t k{name}Count = {len(table)};\n"

    plain_nfd = {c: v for c, v in nfd.items() if c not in hangul}
    only_nfkd = {c: v for c, v in nfkd.items() if c not in hangul and nfd.get(c) != v}
    pairs = []
    for (a, b), c in sorted(compositions.items()):
        pairs += [a, b, c]
    out = sys.argv[1] if len(sys.argv) > 1 else "src/text/tokenizer/unicode_tables.cc"
    regex_version = version_of({c for c in CODE_POINTS if category[c] != cn})
    with open(out, "w") as f:
        f.write(f"""// Generated by tools/make_unicode_tables.py from the Python package `tokenizers` {tokenizers.__version__}; do not edit.
// General categories: Unicode {regex_version} (its regex engine). Digits, lower case, white space: Rust's, which maps
// {"U+A7CE (new in Unicode 17.0)" if 0xA7CE in lower else "no code point of Unicode 17.0"}. Normal forms: {"Unicode 13.0 or newer" if 0x11938 in nfd else "Unicode 12.1" if 0x32FF in nfkd else "Unicode 12.0 or older"}.
#include "text/tokenizer/unicode_tables.h"

// clang-format off
namespace ibid::unicode {{
""")
        f.write(array("kStage1", "uint16_t", stage1))
        f.write(array("kStage2", "uint8_t", stage2, 64))
        f.write(array("kRecords", "uint32_t", records, 16))
        f.write(mapping_arrays("Lower", lower))
        f.write(mapping_arrays("Nfd", plain_nfd))
        f.write(mapping_arrays("Nfkd", only_nfkd))
        f.write(array("kCompositions", "uint32_t", pairs, 15))
        f.write(f"const size_t kCompositionCount = {len(pairs) // 3};\n}}  // namespace ibid::unicode\n")
    print(f"{out}: {len(blocks)} blocks, {len(records)} records, regex Unicode {regex_version}")


if __name__ == "__main__":
    main()
