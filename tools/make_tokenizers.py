#!/usr/bin/env python3
"""Small tokenizers of every kind and what the reference makes of 20,000 strings with them.

  make_tokenizers.py write             train and write tests/conformance/tokenizers/ (models, kinds, digests)
  make_tokenizers.py digest            only the digests, for the kinds as they are
  make_tokenizers.py show KIND I       string I of the corpus, its ids and tokens by the reference
  make_tokenizers.py compare PROGRAM [TOKENIZER] [--gguf FILE] [-n 20000]
                                       run PROGRAM (build/tokenizer_bench) beside the reference and print the first
                                       differences: both on a tokenizer.json, both on a GGUF file, or ours on the GGUF
                                       file and the reference on the tokenizer.json

Needs `tokenizers`; sentencepiece and gguf for their kinds.

A model (vocabulary and merges) serves many kinds; a kind is a tokenizer.json in which "@NAME" stands for a file of
tokenizers/models. The merges of the byte-level model were learnt across all word borders, so that every place where two
pre-tokenizers cut differently shows in the ids. A digest is two characters a string (12 bits of a hash of its ids), and
a line with a hash of all of them.
"""
import argparse
import collections
import json
import os
import subprocess
import sys
import tempfile

import tokenizer_corpus

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "conformance", "tokenizers")
SEED = 4
N_STRINGS = 20000
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
MASK = (1 << 64) - 1

GPT4O = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|"
          r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|"
          r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
          r"\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
DEEPSEEK3 = ("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+"
             "[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+")
# First and last code points in turn; spelled as numbers, since some are not in normal form C.
DEEPSEEK_CASED = [
    0x41, 0x5A, 0x61, 0x7A, 0xB5, 0xB5, 0xC0, 0xD6, 0xD8, 0xF6, 0xF8, 0x1BA, 0x1BC, 0x1BF, 0x1C4, 0x293, 0x295,
    0x2AF, 0x370, 0x373, 0x376, 0x377, 0x37B, 0x37D, 0x37F, 0x37F, 0x386, 0x386, 0x388, 0x38A, 0x38C, 0x38C,
    0x38E, 0x3A1, 0x3A3, 0x3F5, 0x3F7, 0x481, 0x48A, 0x52F, 0x531, 0x556, 0x10A0, 0x10C5, 0x13A0, 0x13F5,
    0x13F8, 0x13FD, 0x1C90, 0x1CBA, 0x1CBD, 0x1CBF, 0x1D00, 0x1D2B, 0x1D6B, 0x1D77, 0x1D79, 0x1D9A, 0x1E00,
    0x1F15, 0x1F18, 0x1F1D, 0x1F20, 0x1F45, 0x1F48, 0x1F4D, 0x1F50, 0x1F57, 0x1F59, 0x1F59, 0x1F5B, 0x1F5B,
    0x1F5D, 0x1F5D, 0x1F5F, 0x1F7D, 0x1F80, 0x1FB4, 0x1FB6, 0x1FBC, 0x1FBE, 0x1FBE, 0x1FC2, 0x1FC4, 0x1FC6,
    0x1FCC, 0x1FD0, 0x1FD3, 0x1FD6, 0x1FDB, 0x1FE0, 0x1FEC, 0x1FF2, 0x1FF4, 0x1FF6, 0x1FFC, 0x2102, 0x2102,
    0x2107, 0x2107, 0x210A, 0x2113, 0x2115, 0x2115, 0x2119, 0x211D, 0x2124, 0x2124, 0x2126, 0x2126, 0x2128,
    0x2128, 0x212A, 0x212D, 0x212F, 0x2134, 0x2139, 0x2139, 0x213C, 0x213F, 0x2145, 0x2149, 0x214E, 0x214E,
    0x2183, 0x2184, 0x2C00, 0x2C7B, 0x2C7E, 0x2CE4, 0x2CEB, 0x2CEE, 0x2CF2, 0x2CF3, 0xA640, 0xA66D, 0xA680,
    0xA69B, 0xA722, 0xA76F, 0xA771, 0xA787, 0xA78B, 0xA78E, 0xAB70, 0xABBF, 0xFB00, 0xFB06, 0xFB13, 0xFB17,
    0xFF21, 0xFF3A, 0xFF41, 0xFF5A, 0x10400, 0x1044F, 0x104B0, 0x104D3, 0x104D8, 0x104FB, 0x10C80, 0x10CB2,
    0x10CC0, 0x10CF2, 0x118A0, 0x118DF, 0x1E900, 0x1E943]
DEEPSEEK_LETTERS = "\\s?[" + "".join(
    chr(a) if a == b else chr(a) + ("-" if b > a + 1 else "") + chr(b)
    for a, b in zip(DEEPSEEK_CASED[::2], DEEPSEEK_CASED[1::2])) + "]+"
HAN_AND_MORE = "[一-龥\u0800-一가-\ud7ff]+"


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def byte_level(regex, prefix=False):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}


def pre(*parts):
    return {"type": "Sequence", "pretokenizers": list(parts)} if len(parts) > 1 else parts[0]


def norm(*parts):
    return {"type": "Sequence", "normalizers": list(parts)} if len(parts) > 1 else parts[0]


def dec(*parts):
    return {"type": "Sequence", "decoders": list(parts)} if len(parts) > 1 else parts[0]


def digits(individual=True):
    return {"type": "Digits", "individual_digits": individual}


def metaspace(scheme, cut):
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": cut}


def replace(what, content, kind="String"):
    return {"type": "Replace", "pattern": {kind: what}, "content": content}


def bpe(model, **options):
    return {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, **options,
            "vocab": f"@{model}.vocab", "merges": f"@{model}.merges"}


def added(i, content, special=True, normalized=False, single_word=False, lstrip=False, rstrip=False):
    return {"id": i, "content": content, "single_word": single_word, "lstrip": lstrip, "rstrip": rstrip,
            "normalized": normalized, "special": special}


def kinds(sizes):
    """sizes: tokens of each model, so that added tokens come after them."""
    isolated = [{"type": t} for t in ("NFC", "NFD", "NFKC", "NFKD")]
    nfc = isolated[0]
    b = sizes["bytes"]
    gpt2_added = [added(b, "<|endoftext|>"), added(b + 1, "<|im_start|>"), added(b + 2, "  ", special=False)]
    sp_decoder = dec(replace("▁", " "), {"type": "ByteFallback"}, {"type": "Fuse"},
                     {"type": "Strip", "content": " ", "start": 1, "stop": 0})
    bert_added = [added(i, t) for i, t in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])]
    bert_post = {"type": "TemplateProcessing",
                 "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                            {"SpecialToken": {"id": "[SEP]", "type_id": 0}}], "pair": [],
                 "special_tokens": {t: {"id": t, "ids": [i], "tokens": [t]} for t, i in (("[CLS]", 2), ("[SEP]", 3))}}

    def bytes_kind(*cuts, normalizer=None, ignore_merges=False, tokens=gpt2_added):
        return {"added_tokens": tokens, "normalizer": normalizer, "pre_tokenizer": pre(*cuts),
                "post_processor": byte_level(True), "decoder": byte_level(True),
                "model": bpe("bytes", ignore_merges=ignore_merges)}

    llama_added = [added(0, "<unk>"), added(1, "<s>"), added(2, "</s>")]
    llama = dict(unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    llama_post = {"type": "TemplateProcessing",
                  "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                  "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}}
    bert = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None,
            "lowercase": True}
    word_piece = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                  "max_input_chars_per_word": 100, "vocab": "@pieces.vocab"}
    all_kinds = {
        "gpt-2": bytes_kind(byte_level(True)),
        "smollm": bytes_kind(digits(), byte_level(True)),
        "mpt": bytes_kind(byte_level(True), normalizer=nfc),
        "falcon": bytes_kind({"type": "Punctuation", "behavior": "Contiguous"}, byte_level(True), digits(False),
                             split("[0-9][0-9][0-9]")),
        "llama-3": bytes_kind(split(LLAMA3), byte_level(False), ignore_merges=True),
        "qwen2": bytes_kind(split(QWEN2), byte_level(False), normalizer=nfc),
        "deepseek-llm": bytes_kind(split("[\r\n]"), split(DEEPSEEK_LETTERS), split("\\s?[!-/:-~！-／：-～‘-‟\u3000-。]+"),
                                   split("\\s+$"), split(HAN_AND_MORE), digits(), byte_level(False)),
        "deepseek-coder": bytes_kind(split("[\r\n]"), split("\\s?\\p{L}+"), split("\\s?\\p{P}+"), split(HAN_AND_MORE),
                                     digits(), byte_level(False)),
        "deepseek-v3": bytes_kind(split("\\p{N}{1,3}"), split("[一-龥\u3040-ゟ゠-ヿ]+"), split(DEEPSEEK3), byte_level(False)),
        "gpt-4o": bytes_kind(split(GPT4O, "Removed", True), byte_level(False)),
        "tekken": bytes_kind(split(TEKKEN), byte_level(False), ignore_merges=True),
        "bloom": bytes_kind(split(" ?[^(\\s|[.,!?…。，、।۔،])]+"), byte_level(False)),
        "roberta": {**bytes_kind(byte_level(True, prefix=True), tokens=[
            added(b, "<s>"), added(b + 1, "</s>"), added(b + 2, "<mask>", lstrip=True),
            added(b + 3, "Straße", special=False, normalized=True, rstrip=True),
            added(b + 4, "word", special=False, single_word=True)]),
            "post_processor": {"type": "RobertaProcessing", "sep": ["</s>", b + 1], "cls": ["<s>", b],
                               "trim_offsets": True, "add_prefix_space": True}},
        # No byte-level step at its end: the pieces of ByteLevel are cut again, as characters.
        "odd-bytes": bytes_kind(split("[a-c]+|\\d", "MergedWithNext"), split(" ", "MergedWithPrevious", kind="String"),
                                byte_level(False), split("Ġ+", "Contiguous")),
        "llama-2": {"added_tokens": llama_added,
                    "normalizer": norm({"type": "Prepend", "prepend": "▁"}, replace(" ", "▁")), "pre_tokenizer": None,
                    "post_processor": llama_post, "decoder": sp_decoder, "model": bpe("chars", **llama)},
        "mistral": {"added_tokens": llama_added, "normalizer": None, "pre_tokenizer": metaspace("first", False),
                    "post_processor": llama_post, "decoder": sp_decoder, "model": bpe("chars", **llama)},
        "gemma": {"added_tokens": llama_added + [added(sizes["chars"], "▁▁", special=False)],
                  "normalizer": replace(" ", "▁"), "pre_tokenizer": split(" ", "MergedWithPrevious", kind="String"),
                  "post_processor": llama_post, "decoder": dec(replace("▁", " "), {"type": "ByteFallback"},
                                                               {"type": "Fuse"}),
                  "model": bpe("chars", **llama)},
        "metaspace-unknown": {"added_tokens": llama_added, "normalizer": isolated[2],
                              "pre_tokenizer": metaspace("always", True), "post_processor": None,
                              "decoder": metaspace("always", True), "model": bpe("chars", unk_token="<unk>")},
        "unigram": {"added_tokens": [added(0, "<unk>"), added(1, "</s>")],
                    "normalizer": norm({"type": "Nmt"}, isolated[2], replace(" {2,}", " ", "Regex")),
                    "pre_tokenizer": metaspace("always", True),
                    "post_processor": {"type": "TemplateProcessing", "single": [
                        {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}],
                        "pair": [], "special_tokens": {"</s>": {"id": "</s>", "ids": [1], "tokens": ["</s>"]}}},
                    "decoder": metaspace("always", True),
                    "model": {"type": "Unigram", "unk_id": 0, "vocab": "@unigram.vocab", "byte_fallback": False}},
        "unigram-whole": {"added_tokens": [added(0, "<unk>")], "normalizer": replace(" ", "▁"), "pre_tokenizer": None,
                          "post_processor": None, "decoder": dec(replace("▁", " "), {"type": "Fuse"}),
                          "model": {"type": "Unigram", "unk_id": 0, "vocab": "@unigram.vocab", "byte_fallback": False}},
        "bert-uncased": {"added_tokens": bert_added, "normalizer": bert, "pre_tokenizer": {"type": "BertPreTokenizer"},
                         "post_processor": bert_post, "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
                         "model": word_piece},
        "bert-cased": {"added_tokens": bert_added, "normalizer": {**bert, "lowercase": False},
                       "pre_tokenizer": {"type": "BertPreTokenizer"},
                       "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]},
                       "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": False}, "model": word_piece},
        "pieces-stripped": {"added_tokens": bert_added,
                            "normalizer": norm({"type": "Strip", "strip_left": True, "strip_right": True}, isolated[3],
                                               {"type": "StripAccents"}, {"type": "Lowercase"}),
                            "pre_tokenizer": pre({"type": "WhitespaceSplit"},
                                                 {"type": "Punctuation", "behavior": "MergedWithPrevious"},
                                                 digits(False)),
                            "post_processor": None, "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
                            "model": word_piece},
        "word-level": {"added_tokens": bert_added, "normalizer": isolated[1], "pre_tokenizer": {"type": "Whitespace"},
                       "post_processor": None, "decoder": None,
                       "model": {"type": "WordLevel", "vocab": "@pieces.vocab", "unk_token": "[UNK]"}},
        "clip": {"added_tokens": [added(sizes["suffixed"], "<|endoftext|>")],
                 "normalizer": norm(nfc, replace("\\s+", " ", "Regex"), {"type": "Lowercase"}),
                 "pre_tokenizer": pre(split("'s|'t|'re|'ve|'m|'ll|'d|[a-z]+|[0-9]|[^\\sa-z0-9]+", "Removed", True)),
                 "post_processor": None, "decoder": {"type": "BPEDecoder", "suffix": "</w>"},
                 "model": bpe("suffixed", unk_token="<unk>", end_of_word_suffix="</w>")},
    }
    for kind in all_kinds.values():
        kind.setdefault("version", "1.0")
        kind.setdefault("truncation", None)
        kind.setdefault("padding", None)
    return all_kinds


def train():
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    text = [tokenizer_corpus.string(SEED + 1, i) for i in range(14000)]
    # The reference gives an added token that the model has the model's id, and shifts the ids of the others.
    text = [s for s in text if not any(x in s for x in tokenizer_corpus.SPECIALS[:8] + ["Straße", "<|im_"])]
    parts = {}

    def keep(name, tokenizer):
        model = json.loads(tokenizer.to_str())["model"]
        for key in ("vocab", "merges"):
            if key in model:
                value = model[key]
                if key == "merges":
                    value = [" ".join(m) if isinstance(m, list) else m for m in value]
                parts[f"{name}.{key}"] = value
        return len(model["vocab"])

    sizes = {}
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    short = [s[k:k + 60] for s in text for k in range(0, len(s), 60)]
    t.train_from_iterator(short, trainers.BpeTrainer(vocab_size=4000, min_frequency=2, show_progress=False,
                                                     initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    sizes["bytes"] = keep("bytes", t)
    t = Tokenizer(models.BPE(unk_token="<unk>"))
    t.normalizer = normalizers.Replace(" ", "▁")
    t.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    byte_tokens = [f"<0x{b:02X}>" for b in range(256)]
    t.train_from_iterator(text, trainers.BpeTrainer(vocab_size=2500, show_progress=False, limit_alphabet=700,
                                                    special_tokens=["<unk>", "<s>", "</s>"] + byte_tokens))
    sizes["chars"] = keep("chars", t)
    t = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    t.pre_tokenizer = pre_tokenizers.Whitespace()
    t.normalizer = normalizers.Lowercase()
    t.train_from_iterator(text, trainers.BpeTrainer(vocab_size=1500, show_progress=False, limit_alphabet=400,
                                                    special_tokens=["<unk>"], end_of_word_suffix="</w>"))
    sizes["suffixed"] = keep("suffixed", t)
    t = Tokenizer(models.Unigram())
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    common = {c for c, _ in collections.Counter("".join(text)).most_common(700)}
    t.train_from_iterator(["".join(c for c in s if c in common) for s in text], trainers.UnigramTrainer(
        vocab_size=3000, show_progress=False, special_tokens=["<unk>", "</s>"], unk_token="<unk>"))
    sizes["unigram"] = keep("unigram", t)
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer()
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.train_from_iterator(text, trainers.WordPieceTrainer(vocab_size=2500, show_progress=False, limit_alphabet=600,
                                                          special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]))
    sizes["pieces"] = keep("pieces", t)
    return parts, sizes


def dump(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def compose(kind):
    with open(os.path.join(HERE, "kinds", kind + ".json"), encoding="utf-8") as f:
        text = f.read()
    folder = os.path.join(HERE, "models")
    for name in os.listdir(folder):
        with open(os.path.join(folder, name), encoding="utf-8") as f:
            text = text.replace(f'"@{name[:-5]}"', f.read())
    return text


def hash_ids(ids, h=0xCBF29CE484222325):
    """FNV-1a over ids of four bytes, low byte first."""
    for i in ids:
        for k in range(4):
            h = ((h ^ (i >> 8 * k & 255)) * 0x100000001B3) & MASK
    return h


def write_digest(kind):
    from tokenizers import Tokenizer
    t = Tokenizer.from_str(compose(kind))
    t.encode_special_tokens = False
    all_ids, characters = 0xCBF29CE484222325, []
    for i in range(N_STRINGS):
        # Odd strings: special tokens parsed, and the tokens that the model needs around the text.
        t.encode_special_tokens = i % 2 == 0
        ids = t.encode(tokenizer_corpus.string(SEED, i), add_special_tokens=i % 2 == 1).ids
        all_ids = hash_ids(ids, all_ids)
        h = hash_ids(ids)
        h ^= h >> 32
        characters.append(ALPHABET[h >> 6 & 63] + ALPHABET[h & 63])
    os.makedirs(os.path.join(HERE, "digests"), exist_ok=True)
    with open(os.path.join(HERE, "digests", kind + ".txt"), "w") as f:
        f.write(f"{all_ids:016x} {N_STRINGS} {SEED}\n")
        for i in range(0, N_STRINGS, 60):
            f.write("".join(characters[i:i + 60]) + "\n")


def write(args):
    parts, sizes = train()
    for folder in ("models", "kinds"):
        os.makedirs(os.path.join(HERE, folder), exist_ok=True)
    for name, value in parts.items():
        with open(os.path.join(HERE, "models", name + ".json"), "w", encoding="utf-8") as f:
            f.write(dump(value))
    for name, value in kinds(sizes).items():
        with open(os.path.join(HERE, "kinds", name + ".json"), "w", encoding="utf-8") as f:
            f.write(json.dumps(value, ensure_ascii=False, indent=1))
    digest(args)


def digest(_):
    for name in sorted(os.listdir(os.path.join(HERE, "kinds"))):
        write_digest(name[:-5])
        print(name[:-5], flush=True)


def show(args):
    from tokenizers import Tokenizer
    t = Tokenizer.from_str(compose(args.kind))
    t.encode_special_tokens = args.index % 2 == 0
    text = tokenizer_corpus.string(SEED, args.index)
    e = t.encode(text, add_special_tokens=args.index % 2 == 1)
    print(repr(text), e.ids, e.tokens, sep="\n")


def reference_of(args):
    if args.tokenizer:
        from tokenizers import Tokenizer
        return Tokenizer.from_file(args.tokenizer)
    # The vocabulary of a GGUF file in the pipeline that its pre-tokenizer's name stands for (smollm's or gpt-2's).
    from gguf import GGUFReader
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    fields = GGUFReader(args.gguf).fields
    get = lambda key: fields["tokenizer.ggml." + key].contents()
    tokens = get("tokens")
    t = Tokenizer(models.BPE(vocab={x: i for i, x in enumerate(tokens)}, merges=[tuple(m.split(" ")) for m in get("merges")]))
    cuts = [pre_tokenizers.Digits(individual_digits=True)] if get("pre") == "smollm" else []
    t.pre_tokenizer = pre_tokenizers.Sequence(cuts + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens([AddedToken(x, normalized=False) for x, y in zip(tokens, get("token_type")) if y == 3])
    return t


def compare(args):
    t = reference_of(args)
    texts = [tokenizer_corpus.string(args.seed, i) for i in range(args.n)]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "texts")
        with open(path, "wb") as f:
            for text in texts:
                data = text.encode()
                f.write(len(data).to_bytes(4, "little") + data)
        result = subprocess.run([args.program, "ids", args.gguf or args.tokenizer, path], capture_output=True, check=True)
    lines = result.stdout.decode().split("\n")
    wrong = 0
    for i, text in enumerate(texts):
        t.encode_special_tokens = i % 2 == 0
        ids = t.encode(text, add_special_tokens=i % 2 == 1).ids
        if [int(x) for x in lines[i].split()] != ids:
            wrong += 1
            if wrong <= args.show:
                print(i, repr(text), "expected", ids, "got", lines[i], sep="\n  ")
    print(f"{len(texts) - wrong} of {len(texts)} strings have equal ids")
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    commands.add_parser("write").set_defaults(run=write)
    commands.add_parser("digest").set_defaults(run=digest)
    command = commands.add_parser("show")
    command.add_argument("kind")
    command.add_argument("index", type=int)
    command.set_defaults(run=show)
    command = commands.add_parser("compare")
    command.add_argument("program")
    command.add_argument("tokenizer", nargs="?")
    command.add_argument("--gguf")
    command.add_argument("-n", type=int, default=N_STRINGS)
    command.add_argument("--seed", type=int, default=SEED)
    command.add_argument("--show", type=int, default=3)
    command.set_defaults(run=compare)
    args = parser.parse_args()
    sys.exit(args.run(args))


if __name__ == "__main__":
    main()
