#!/usr/bin/env python3
"""Writes a model of a real shape with random weights, to measure speed with: tools/make_random_model.py SHAPE OUT.gguf

--type is f16 (default), q8_0, or another type of GGUF, whose blocks are then random bits with sound scales; q4_k_m is the
mixture of that name. --layers N writes fewer layers. The vocabulary is a byte-level BPE of single bytes, pairs and triples,
so that any text can be tokenised; answers are noise. Speed does not depend on the numbers, so equal shapes have equal ones.
Needs the packages gguf and numpy. `ibid quantize` makes the other types of an f16 file.
"""
import argparse
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Shape:
    """What the families differ in; `keys` are under the architecture's name."""

    architecture: str
    layers: int
    width: int
    ffn: int
    heads: int
    kv_heads: int
    vocab: int
    base: float
    head_len: int = 0  # 0: width / heads
    has_output: bool = True
    experts: int = 0
    expert_len: int = 0
    keys: dict = field(default_factory=dict)


DELTA = {"conv_kernel": 4, "state_size": 128, "group_count": 16, "time_step_rank": 32, "inner_size": 4096}
SHAPES = {
    "135m": Shape("llama", 30, 576, 1536, 9, 3, 49152, 1e5, has_output=False),
    "1b": Shape("llama", 16, 2048, 8192, 32, 8, 128256, 5e5, has_output=False),
    "8b": Shape("llama", 32, 4096, 14336, 32, 8, 128256, 5e5),
    "30b-a3b": Shape("qwen3moe", 48, 2048, 768, 32, 4, 151936, 1e6, 128, experts=128, expert_len=768,
                     keys={"expert_used_count": 8}),
    "lfm2-1.2b": Shape("lfm2", 16, 2048, 8192, 32, 8, 65536, 1e6, has_output=False, keys={"shortconv.l_cache": 3}),
    "qwen3.5-9b": Shape("qwen35", 32, 4096, 12288, 16, 4, 248320, 1e7, 256,
                        keys={"full_attention_interval": 4, "rope.dimension_count": 64,
                              "rope.dimension_sections": [11, 11, 10, 0]} | {f"ssm.{k}": v for k, v in DELTA.items()}),
    "gpt-oss-20b": Shape("gpt-oss", 24, 2880, 2880, 64, 8, 201088, 150000.0, 64, experts=32, expert_len=2880,
                         keys={"expert_used_count": 4, "attention.sliding_window": 128, "rope.scaling.type": "yarn",
                               "rope.scaling.factor": 32.0, "rope.scaling.original_context_length": 4096}),
    "glm-4.7-flash": Shape("deepseek2", 47, 2048, 10240, 20, 1, 154880, 1e6, experts=64, expert_len=1536,
                           keys={"expert_used_count": 4, "expert_shared_count": 1, "expert_weights_scale": 1.8,
                                 "expert_weights_norm": True, "expert_gating_func": 2, "leading_dense_block_count": 1,
                                 "attention.q_lora_rank": 768, "attention.kv_lora_rank": 512,
                                 "attention.key_length": 576, "attention.value_length": 512,
                                 "attention.key_length_mla": 256, "attention.value_length_mla": 256,
                                 "rope.dimension_count": 64}),
    "gemma-4-e4b": Shape("gemma4", 42, 2560, 10240, 8, 2, 262144, 1e6, 512, has_output=False,
                         keys={"attention.key_length_swa": 256, "attention.value_length_swa": 256,
                               "rope.dimension_count": 512, "rope.dimension_count_swa": 256, "rope.freq_base_swa": 1e4,
                               "attention.sliding_window": 512, "embedding_length_per_layer_input": 256,
                               "final_logit_softcapping": 30.0}),
}
LFM2_ATTENTION = (2, 5, 8, 10, 12, 14)
CONTEXT = 131072


def swiglu(ffn: int, width: int, suffix: str = "", n: tuple[int, ...] = ()) -> dict:
    return {f"ffn_{name}{suffix}.weight": (*n, ffn, width) for name in ("gate", "up")} | {
        f"ffn_down{suffix}.weight": (*n, width, ffn)}


def attention(s: Shape, q: int, kv: int) -> dict:
    return {"attn_q.weight": (q, s.width), "attn_k.weight": (kv, s.width), "attn_v.weight": (kv, s.width),
            "attn_output.weight": (s.width, q)}


def layer_tensors(s: Shape, i: int, n_layers: int) -> tuple[dict, dict]:
    """The matrices and the F32 tensors of layer i, by name; outputs before inputs, experts first."""
    head_len = s.head_len or s.width // s.heads
    floats = {"attn_norm.weight": (s.width,), "ffn_norm.weight": (s.width,)}
    weights = attention(s, s.heads * head_len, s.kv_heads * head_len)
    ffn = swiglu(s.ffn, s.width)
    if s.experts:
        ffn = swiglu(s.expert_len, s.width, "_exps", (s.experts,))
        floats["ffn_gate_inp.weight"] = (s.experts, s.width)
    if s.architecture in ("qwen3moe", "lfm2", "qwen35", "gemma4"):
        floats |= {"attn_q_norm.weight": (head_len,), "attn_k_norm.weight": (head_len,)}
    if s.architecture in ("qwen35", "gpt-oss"):
        floats["post_attention_norm.weight"] = floats.pop("ffn_norm.weight")
    if s.architecture == "lfm2" and i not in LFM2_ATTENTION:
        weights = {"shortconv.in_proj.weight": (3 * s.width, s.width), "shortconv.out_proj.weight": (s.width, s.width)}
        floats = {k: v for k, v in floats.items() if "_q_" not in k and "_k_" not in k} | {"shortconv.conv.weight": (s.width, 3)}
    if s.architecture == "qwen35" and i % 4 == 3:
        weights["attn_q.weight"] = (2 * s.heads * head_len, s.width)  # and its gate
    elif s.architecture == "qwen35":
        heads, inner, keys = DELTA["time_step_rank"], DELTA["inner_size"], DELTA["group_count"] * DELTA["state_size"]
        weights = {"attn_qkv.weight": (2 * keys + inner, s.width), "attn_gate.weight": (inner, s.width),
                   "ssm_alpha.weight": (heads, s.width), "ssm_beta.weight": (heads, s.width), "ssm_out.weight": (s.width, inner)}
        floats = {k: v for k, v in floats.items() if "_q_" not in k and "_k_" not in k} | {
            "ssm_conv1d.weight": (2 * keys + inner, 4), "ssm_dt.bias": (heads,), "ssm_a": (heads,),
            "ssm_norm.weight": (DELTA["state_size"],)}
    if s.architecture == "gpt-oss":
        floats |= {"attn_sinks.weight": (s.heads,), "attn_output.bias": (s.width,), "ffn_gate_inp.bias": (s.experts,)}
        floats |= {name.replace("weight", "bias"): size[:1] for name, size in weights.items()}
        floats |= {name.replace("weight", "bias"): size[:2] for name, size in ffn.items()}
    if s.architecture == "deepseek2":
        k = s.keys
        rank, turn, q_rank = k["attention.kv_lora_rank"], k["rope.dimension_count"], k["attention.q_lora_rank"]
        key, value = k["attention.key_length_mla"], k["attention.value_length_mla"]
        weights = {"attn_q_a.weight": (q_rank, s.width), "attn_q_b.weight": (s.heads * key, q_rank),
                   "attn_kv_a_mqa.weight": (rank + turn, s.width), "attn_k_b.weight": (s.heads, rank, key - turn),
                   "attn_v_b.weight": (s.heads, value, rank), "attn_output.weight": (s.width, s.heads * value)}
        floats |= {"attn_q_a_norm.weight": (q_rank,), "attn_kv_a_norm.weight": (rank,)}
        if i < k["leading_dense_block_count"]:
            ffn = swiglu(s.ffn, s.width)
            del floats["ffn_gate_inp.weight"]
        else:
            ffn |= swiglu(s.expert_len, s.width, "_shexp")
            floats["exp_probs_b.bias"] = (s.experts,)
    if s.architecture == "gemma4":
        if not is_global(i, n_layers):
            head_len = s.keys["attention.key_length_swa"]
            weights = attention(s, s.heads * head_len, s.kv_heads * head_len)
            floats |= {"attn_q_norm.weight": (head_len,), "attn_k_norm.weight": (head_len,)}
        per_layer = s.keys["embedding_length_per_layer_input"]
        weights |= {"inp_gate.weight": (per_layer, s.width), "proj.weight": (s.width, per_layer)}
        floats |= {f"{name}.weight": (s.width,) for name in ("post_attention_norm", "post_ffw_norm", "post_norm")}
        floats["layer_output_scale.weight"] = (1,)
        if i >= n_layers - gemma_shared(n_layers):
            weights = {k: v for k, v in weights.items() if k not in ("attn_k.weight", "attn_v.weight")}
            del floats["attn_k_norm.weight"]
    return weights | ffn, floats


def is_global(i: int, n_layers: int) -> bool:
    return i % 6 == 5 or i == n_layers - 1


def gemma_shared(n_layers: int) -> int:
    return n_layers - max(n_layers * 24 // 42 // 6, 1) * 6  # llama.cpp expects the last layer with keys to be global


def tensors(s: Shape, n_layers: int) -> tuple[dict, dict]:
    weights = {"token_embd.weight": (s.vocab, s.width)}
    floats = {"token_embd_norm.weight" if s.architecture == "lfm2" else "output_norm.weight": (s.width,)}
    if s.has_output:
        weights["output.weight"] = (s.vocab, s.width)
    if s.architecture == "gemma4":
        per_layer = s.keys["embedding_length_per_layer_input"]
        weights |= {"per_layer_token_embd.weight": (s.vocab, n_layers * per_layer),
                    "per_layer_model_proj.weight": (n_layers * per_layer, s.width)}
        floats |= {"per_layer_proj_norm.weight": (per_layer,), "rope_freqs.weight": (s.head_len // 2,)}
    for i in range(n_layers):
        layer_weights, layer_floats = layer_tensors(s, i, n_layers)
        weights |= {f"blk.{i}.{name}": size for name, size in layer_weights.items()}
        floats |= {f"blk.{i}.{name}": size for name, size in layer_floats.items()}
    return weights, floats


def keys_of(s: Shape, n_layers: int) -> dict:
    keys: dict = {"context_length": CONTEXT, "embedding_length": s.width, "block_count": n_layers, "feed_forward_length": s.ffn,
                  "attention.head_count": s.heads, "attention.head_count_kv": s.kv_heads, "vocab_size": s.vocab,
                  "attention.layer_norm_rms_epsilon": 1e-5, "rope.freq_base": s.base,
                  "rope.dimension_count": s.head_len or s.width // s.heads}
    if s.head_len:
        keys |= {"attention.key_length": s.head_len, "attention.value_length": s.head_len}
    if s.experts:
        keys |= {"expert_count": s.experts, "expert_feed_forward_length": s.expert_len}
    if s.architecture == "lfm2":
        keys["attention.head_count_kv"] = [s.kv_heads if i in LFM2_ATTENTION else 0 for i in range(n_layers)]
    if s.architecture == "gemma4":
        keys |= {"attention.shared_kv_layers": gemma_shared(n_layers),
                 "attention.sliding_window_pattern": [not is_global(i, n_layers) for i in range(n_layers)]}
    return keys | s.keys


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


# Where the scales of a type's block lie: byte, and the factor on 1 / sqrt(inputs) that keeps sums near 1.
SCALES = {"Q4_0": ((0, 0.2),), "Q4_1": ((0, 0.2), (2, -1.5)), "Q5_0": ((0, 0.1),), "Q5_1": ((0, 0.1), (2, -1.5)),
          "IQ4_NL": ((0, 0.015),), "IQ4_XS": ((0, 0.001),), "Q2_K": ((80, 0.08), (82, 0.1)), "Q3_K": ((108, 0.02),),
          "Q4_K": ((0, 0.004), (2, 0.03)), "Q5_K": ((0, 0.002), (2, 0.03)), "Q6_K": ((208, 0.0006),),
          "IQ2_XXS": ((0, 0.03),), "IQ2_XS": ((0, 0.03),), "IQ2_S": ((0, 0.03),), "IQ3_XXS": ((0, 0.008),), "IQ3_S": ((0, 0.009),)}


def dtype_of(name: str, size: tuple[int, ...], chosen: str, n_layers: int) -> str:
    """The type of a matrix: the chosen one, or what llama.cpp takes where its block does not divide the inputs."""
    dtype = chosen
    if chosen == "q4_k_m":
        i = int(name.split(".")[1]) if name.startswith("blk.") else 0
        more = i < n_layers // 8 or i >= 7 * n_layers // 8 or (i - n_layers // 8) % 3 == 2
        dtype = "q6_k" if name == "output.weight" or more and any(s in name for s in ("attn_v.", "ffn_down")) else "q4_k"
    if chosen == "mxfp4" and "_exps" not in name:
        dtype = "q8_0"
    has_256 = dtype.endswith("_k") or dtype.startswith(("iq2", "iq3"))
    return "q8_0" if has_256 and size[-1] % 256 else dtype


def write(name: str, chosen: str, out: Path, layers: int | None) -> None:
    import gguf
    import numpy as np

    s = SHAPES[name]
    n_layers = layers or s.layers
    partial = out.with_name(out.name + f".{os.getpid()}.part")
    w = gguf.GGUFWriter(str(partial), s.architecture)
    w.add_name(f"random {name}")
    for key, value in keys_of(s, n_layers).items():
        add = {bool: w.add_bool, int: w.add_uint32, float: w.add_float32, str: w.add_string, list: w.add_array}[type(value)]
        add(f"{s.architecture}.{key}", value)
    tokens, merges = vocabulary(s.vocab)
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("llama-bpe")
    w.add_token_list(tokens)
    w.add_token_types([gguf.TokenType.NORMAL] * (s.vocab - 2) + [gguf.TokenType.CONTROL] * 2)
    w.add_token_merges(merges)
    w.add_bos_token_id(s.vocab - 2)
    w.add_eos_token_id(s.vocab - 1)

    random = np.random.default_rng(1)
    made: dict[tuple, object] = {}

    def rows(n: int, k: int, dtype: str):
        if dtype in ("f16", "q8_0"):
            values = random.standard_normal((n, k), dtype=np.float32) * np.float32(k**-0.5)
            return values.astype(np.float16) if dtype == "f16" else gguf.quants.quantize(values, gguf.GGMLQuantizationType.Q8_0)
        per_block, n_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[dtype.upper()]]
        blocks = random.integers(0, 256, (n, k // per_block, n_bytes), dtype=np.uint8)
        if dtype == "mxfp4":
            blocks[..., 0] = 119 + random.integers(0, 4, blocks.shape[:2])  # 2^-8 to 2^-5
        else:
            for at, factor in SCALES[dtype.upper()]:
                scale = (factor * k**-0.5 * random.uniform(0.5, 1.5, blocks.shape[:2])).astype(np.float16)
                blocks[..., at : at + 2] = scale[..., None].view(np.uint8)
        return blocks.reshape(n, -1)

    def numbers(size: tuple[int, ...], dtype: str):
        if (size, dtype) not in made:
            *outer, k = size
            n = int(np.prod(outer))
            block = rows(min(n, 1024), k, dtype)
            made[size, dtype] = np.resize(block, (n, block.shape[1])).reshape(*outer, block.shape[1])  # its rows again and again
        return made[size, dtype]

    weights, floats = tensors(s, n_layers)
    for tensor, size in weights.items():
        dtype = dtype_of(tensor, size, chosen, n_layers)
        w.add_tensor(tensor, numbers(size, dtype), raw_dtype=None if dtype == "f16" else gguf.GGMLQuantizationType[dtype.upper()])
    for tensor, size in floats.items():
        value = np.ones(size, dtype=np.float32)
        if len(size) == 2 or tensor.endswith("bias"):
            value = random.standard_normal(size, dtype=np.float32) * np.float32(size[-1] ** -0.5 if "gate_inp" in tensor else 0.5)
        elif tensor.endswith("ssm_a"):
            value = -value
        elif tensor == "rope_freqs.weight":
            value[size[0] // 4 :] = 1e30  # a quarter of a head turns
        w.add_tensor(tensor, value)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    partial.rename(out)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("out", type=Path)
    parser.add_argument("--type", choices=["f16", "q8_0", "q4_k_m", "mxfp4", *(name.lower() for name in SCALES)], default="f16")
    parser.add_argument("--layers", type=int)
    args = parser.parse_args()
    write(args.shape, args.type, args.out, args.layers)
    return 0


if __name__ == "__main__":
    sys.exit(main())
