#!/usr/bin/env python3
"""Writes a model of a real shape with random weights, to measure speed with: tools/make_random_model.py SHAPE OUT.gguf

SHAPE is 135m, 1b or 8b (llama-3's architecture: grouped heads, RoPE, SwiGLU), 30b-a3b (qwen3moe's: 128 experts of which
a token uses 8), lfm2-1.2b (short convolutions) or qwen3.5-9b (gated delta nets); --type f16 (default) or q8_0; --layers N:
fewer of them. The vocabulary
is a byte-level BPE of single bytes, pairs and triples, so that any text can be tokenised; its answers are noise.
Speed does not depend on the numbers, so layers of the same shape have the same ones. Needs the packages gguf and numpy.
`ibid quantize` makes the other types of it.
"""
import argparse
import os
import sys
from pathlib import Path

# layers, width, feed-forward, heads, key/value heads, vocabulary, output matrix of its own, RoPE's base
SHAPES = {
    "135m": (30, 576, 1536, 9, 3, 49152, False, 1e5),
    "1b": (16, 2048, 8192, 32, 8, 128256, False, 5e5),
    "8b": (32, 4096, 14336, 32, 8, 128256, True, 5e5),
    "30b-a3b": (48, 2048, 768, 32, 4, 151936, True, 1e6),
    "lfm2-1.2b": (16, 2048, 8192, 32, 8, 65536, False, 1e6),
    "qwen3.5-9b": (32, 4096, 12288, 16, 4, 248320, True, 1e7),
}
ARCHITECTURE = {"30b-a3b": "qwen3moe", "lfm2-1.2b": "lfm2", "qwen3.5-9b": "qwen35"}  # else llama
EXPERTS = {"30b-a3b": (128, 8)}  # and how many of them a token uses; they are as wide as feed-forward says
HEAD_LEN = {"30b-a3b": 128, "qwen3.5-9b": 256}  # else width / heads
ATTENTION = {"lfm2-1.2b": (2, 5, 8, 10, 12, 14), "qwen3.5-9b": range(3, 1024, 4)}  # layers of a hybrid that attend
DELTA_KEY_HEADS, DELTA_VALUE_HEADS, DELTA_LEN = 16, 32, 128
CONTEXT = 131072


def head_len(shape: str) -> int:
    return HEAD_LEN.get(shape, SHAPES[shape][1] // SHAPES[shape][3])


def matrices(shape: str, n_layers: int) -> dict[str, tuple[int, ...]]:
    """Outputs and inputs of each matrix, by its name in the file; of experts their number first."""
    _, width, ffn, heads, kv_heads, vocab, has_output, _ = SHAPES[shape]
    q, kv = head_len(shape) * heads, head_len(shape) * kv_heads
    gate, down = {f"ffn_{name}": (ffn, width) for name in ("gate", "up")}, {"ffn_down": (width, ffn)}
    if shape in EXPERTS:
        n = EXPERTS[shape][0]
        gate = {"ffn_gate_inp": (n, width)} | {f"{name}_exps": (n, *size) for name, size in gate.items()}
        down = {"ffn_down_exps": (n, width, ffn)}
    layer = {"attn_q": (q, width), "attn_k": (kv, width), "attn_v": (kv, width), "attn_output": (width, q)}
    recurrent: dict[str, tuple[int, ...]] = {}
    if shape == "lfm2-1.2b":
        recurrent = {"shortconv.in_proj": (3 * width, width), "shortconv.out_proj": (width, width)}
    if shape == "qwen3.5-9b":
        layer["attn_q"] = (2 * q, width)
        values = DELTA_VALUE_HEADS * DELTA_LEN
        recurrent = {"attn_qkv": (2 * DELTA_KEY_HEADS * DELTA_LEN + values, width), "attn_gate": (values, width),
                     "ssm_alpha": (DELTA_VALUE_HEADS, width), "ssm_beta": (DELTA_VALUE_HEADS, width), "ssm_out": (width, values)}
    out: dict[str, tuple[int, ...]] = {"token_embd.weight": (vocab, width)}
    if has_output:
        out["output.weight"] = (vocab, width)
    for i in range(n_layers):
        mixer = layer if i in ATTENTION.get(shape, range(n_layers)) else recurrent
        for name, size in (mixer | gate | down).items():
            out[f"blk.{i}.{name}.weight"] = size
    return out


def vectors(shape: str, n_layers: int) -> dict[str, tuple[int, ...]]:
    """Sizes of what is F32 and no matrix, by its name in the file: norms, and what recurrent layers have."""
    _, width, *_ = SHAPES[shape]
    out: dict[str, tuple[int, ...]] = {"token_embd_norm.weight" if shape == "lfm2-1.2b" else "output_norm.weight": (width,)}
    channels = (2 * DELTA_KEY_HEADS + DELTA_VALUE_HEADS) * DELTA_LEN
    for i in range(n_layers):
        attends = i in ATTENTION.get(shape, range(n_layers))
        layer: dict[str, tuple[int, ...]] = {"attn_norm.weight": (width,)}
        layer["post_attention_norm.weight" if shape == "qwen3.5-9b" else "ffn_norm.weight"] = (width,)
        if attends and shape in ARCHITECTURE:
            layer |= {"attn_q_norm.weight": (head_len(shape),), "attn_k_norm.weight": (head_len(shape),)}
        if not attends and shape == "lfm2-1.2b":
            layer["shortconv.conv.weight"] = (width, 3)
        if not attends and shape == "qwen3.5-9b":
            layer |= {"ssm_conv1d.weight": (channels, 4), "ssm_dt.bias": (DELTA_VALUE_HEADS,), "ssm_a": (DELTA_VALUE_HEADS,),
                      "ssm_norm.weight": (DELTA_LEN,)}
        out |= {f"blk.{i}.{name}": size for name, size in layer.items()}
    return out


def vocabulary(size: int) -> tuple[list[str], list[str]]:
    """Tokens and merges: the 256 bytes, then pairs of them, then a pair and a byte."""
    visible = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b <= 255]
    letters = [chr(b) for b in visible]
    letters += [chr(256 + i) for i in range(256 - len(visible))]  # GPT-2's names of the other bytes
    tokens, merges = list(letters), []
    level = [(a, b) for a in letters for b in letters]
    while len(tokens) < size - 2:
        parts = level[: size - 2 - len(tokens)]
        tokens += [a + b for a, b in parts]
        merges += [f"{a} {b}" for a, b in parts]
        level = [(a + b, c) for a, b in parts[:1024] for c in letters]
    return tokens + ["<|begin_of_text|>", "<|end_of_text|>"], merges


def write(shape: str, dtype: str, out: Path, layers: int | None) -> None:
    import gguf
    import numpy as np

    n_layers, width, ffn, heads, kv_heads, vocab, _, base = SHAPES[shape]
    n_layers = layers or n_layers
    partial = out.with_name(out.name + f".{os.getpid()}.part")
    architecture = ARCHITECTURE.get(shape, "llama")
    w = gguf.GGUFWriter(str(partial), architecture)
    w.add_name(f"random {shape}")
    w.add_context_length(CONTEXT)
    w.add_embedding_length(width)
    w.add_block_count(n_layers)
    w.add_feed_forward_length(ffn)
    w.add_head_count(heads)
    if shape == "lfm2-1.2b":
        w.add_head_count_kv([kv_heads if i in ATTENTION[shape] else 0 for i in range(n_layers)])
        w.add_uint32(f"{architecture}.shortconv.l_cache", 3)
    else:
        w.add_head_count_kv(kv_heads)
    w.add_rope_dimension_count(64 if shape == "qwen3.5-9b" else head_len(shape))
    if shape in HEAD_LEN:
        w.add_key_length(head_len(shape))
        w.add_value_length(head_len(shape))
    if shape == "qwen3.5-9b":
        w.add_uint32(f"{architecture}.full_attention_interval", 4)
        w.add_array(f"{architecture}.rope.dimension_sections", [11, 11, 10, 0])
        for key, value in (("conv_kernel", 4), ("state_size", DELTA_LEN), ("group_count", DELTA_KEY_HEADS),
                           ("time_step_rank", DELTA_VALUE_HEADS), ("inner_size", DELTA_VALUE_HEADS * DELTA_LEN)):
            w.add_uint32(f"{architecture}.ssm.{key}", value)
    if shape in EXPERTS:
        w.add_expert_count(EXPERTS[shape][0])
        w.add_expert_used_count(EXPERTS[shape][1])
        w.add_expert_feed_forward_length(ffn)
    w.add_rope_freq_base(base)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_file_type(gguf.LlamaFileType.MOSTLY_F16 if dtype == "f16" else gguf.LlamaFileType.MOSTLY_Q8_0)
    w.add_vocab_size(vocab)
    tokens, merges = vocabulary(vocab)
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("llama-bpe")
    w.add_token_list(tokens)
    w.add_token_types([gguf.TokenType.NORMAL] * (vocab - 2) + [gguf.TokenType.CONTROL] * 2)
    w.add_token_merges(merges)
    w.add_bos_token_id(vocab - 2)
    w.add_eos_token_id(vocab - 1)

    random = np.random.default_rng(1)
    made: dict[tuple[int, ...], object] = {}
    quant = gguf.GGMLQuantizationType.Q8_0

    def numbers(size: tuple[int, ...]):
        if size not in made:
            *outer, k = size
            n = int(np.prod(outer))
            rows = random.standard_normal((min(n, 1024), k), dtype=np.float32) * np.float32(k**-0.5)
            block = rows.astype(np.float16) if dtype == "f16" else gguf.quants.quantize(rows, quant)
            made[size] = np.resize(block, (n, block.shape[1])).reshape(*outer, block.shape[1])  # its rows again and again
        return made[size]

    for name, size in matrices(shape, n_layers).items():
        if "ffn_gate_inp" in name:
            w.add_tensor(name, random.standard_normal(size, dtype=np.float32) * np.float32(size[1] ** -0.5))
            continue
        w.add_tensor(name, numbers(size), raw_dtype=None if dtype == "f16" else quant)
    for name, size in vectors(shape, n_layers).items():
        value = random.standard_normal(size, dtype=np.float32) * np.float32(0.5) if len(size) == 2 else np.ones(size, dtype=np.float32)
        w.add_tensor(name, -value if name.endswith("ssm_a") else value)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    partial.rename(out)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("out", type=Path)
    parser.add_argument("--type", choices=("f16", "q8_0"), default="f16")
    parser.add_argument("--layers", type=int)
    args = parser.parse_args()
    write(args.shape, args.type, args.out, args.layers)
    return 0


if __name__ == "__main__":
    sys.exit(main())
