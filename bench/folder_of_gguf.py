#!/usr/bin/env python3
"""A folder of safetensors of a GGUF file of llama's shape, to try what needs a folder: weights in F16, config, tokenizer.

    pip install gguf safetensors; python3 bench/folder_of_gguf.py model.gguf FOLDER

Quantised matrices become the floats that they stand for, rows of q and k go back to the order of folders, and a
byte-level BPE whose words are cut as SmolLM's becomes tokenizer.json. Any other tokenizer is refused.
"""
import json
import sys
from pathlib import Path

import gguf
import numpy as np
from gguf.quants import dequantize
from safetensors.numpy import save_file

NAMES = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
         "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
         "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}


def name_of(name):
    if name in ("token_embd.weight", "output_norm.weight", "output.weight"):
        return {"t": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}.get(name if "norm" in name else name[0], "lm_head.weight")
    _, layer, part, _ = name.split(".")
    return f"model.layers.{layer}.{NAMES[part]}.weight"


def main():
    source, to = sys.argv[1], Path(sys.argv[2])
    reader = gguf.GGUFReader(source)
    meta = {key: field.contents() for key, field in reader.fields.items()}
    if meta["general.architecture"] != "llama" or meta["tokenizer.ggml.pre"] != "smollm":
        sys.exit("only llama's shape with SmolLM's tokenizer")
    heads = {"attn_q": meta["llama.attention.head_count"], "attn_k": meta["llama.attention.head_count_kv"]}
    tensors = {}
    for t in reader.tensors:
        values = dequantize(t.data, t.tensor_type).reshape([int(n) for n in reversed(t.shape)])
        part = t.name.split(".")[-2]
        if part in heads:
            values = values.reshape(heads[part], -1, 2, values.shape[1]).swapaxes(1, 2).reshape(values.shape)
        tensors[name_of(t.name)] = np.ascontiguousarray(values.astype(np.float16))
    to.mkdir(parents=True)
    save_file(tensors, to / "model.safetensors")
    tokens, types = meta["tokenizer.ggml.tokens"], meta["tokenizer.ggml.token_type"]
    special = [{"id": i, "content": t, "special": True, "single_word": False, "lstrip": False, "rstrip": False,
                "normalized": False} for i, t in enumerate(tokens) if types[i] == 3]
    merges = [m.split(" ") for m in meta["tokenizer.ggml.merges"]]
    cuts = [{"type": "Digits", "individual_digits": True}, {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}]
    tokenizer = {"added_tokens": special, "normalizer": None, "pre_tokenizer": {"type": "Sequence", "pretokenizers": cuts},
                 "post_processor": None, "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
                 "model": {"type": "BPE", "ignore_merges": False, "vocab": {t: i for i, t in enumerate(tokens)}, "merges": merges}}
    (to / "tokenizer.json").write_text(json.dumps(tokenizer))
    config = {"bos_token": tokens[meta["tokenizer.ggml.bos_token_id"]], "eos_token": tokens[meta["tokenizer.ggml.eos_token_id"]],
              "chat_template": meta["tokenizer.chat_template"]}
    (to / "tokenizer_config.json").write_text(json.dumps(config))
    (to / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "float16",
        "hidden_size": meta["llama.embedding_length"], "intermediate_size": meta["llama.feed_forward_length"],
        "num_hidden_layers": meta["llama.block_count"], "num_attention_heads": heads["attn_q"],
        "num_key_value_heads": heads["attn_k"], "vocab_size": meta["llama.vocab_size"],
        "max_position_embeddings": meta["llama.context_length"], "rope_theta": meta["llama.rope.freq_base"],
        "rms_norm_eps": round(meta["llama.attention.layer_norm_rms_epsilon"], 9), "hidden_act": "silu",
        "tie_word_embeddings": "lm_head.weight" not in tensors}))


if __name__ == "__main__":
    main()
