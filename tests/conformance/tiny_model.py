"""A model of two layers with random weights and the 256 bytes as its vocabulary, as a folder that `ibid serve` loads in
no time: for tests of serving that need the real engine and not a real answer."""
import json
import pathlib
import random
import struct

HEADS, KV_HEADS, LAYERS = 4, 2, 2
END, START = 256, 257
VOCABULARY = 258
CONTEXT = 4096


def byte_letters():
    """The letters by which byte-level vocabularies spell bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    return {**{b: chr(b) for b in plain}, **{b: chr(256 + i) for i, b in enumerate(others)}}


def tokenizer():
    special = [{"id": i, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
               for i, text in ((END, "<|end|>"), (START, "<|start|>"))]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {"version": "1.0", "added_tokens": special, "normalizer": None, "pre_tokenizer": level, "post_processor": level,
            "decoder": level,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                      "vocab": {letter: byte for byte, letter in byte_letters().items()}, "merges": []}}


def shapes(width):
    inner, kv = 2 * width, KV_HEADS * width // HEADS
    yield "model.embed_tokens.weight", (VOCABULARY, width)
    for i in range(LAYERS):
        layer = f"model.layers.{i}."
        yield layer + "input_layernorm.weight", (width,)
        yield layer + "post_attention_layernorm.weight", (width,)
        yield layer + "self_attn.q_proj.weight", (width, width)
        yield layer + "self_attn.k_proj.weight", (kv, width)
        yield layer + "self_attn.v_proj.weight", (kv, width)
        yield layer + "self_attn.o_proj.weight", (width, width)
        yield layer + "mlp.gate_proj.weight", (inner, width)
        yield layer + "mlp.up_proj.weight", (inner, width)
        yield layer + "mlp.down_proj.weight", (width, inner)
    yield "model.norm.weight", (width,)
    yield "lm_head.weight", (VOCABULARY, width)


def make(folder, width=32):
    """Writes it (always the same bytes) and returns the folder. A step takes some microseconds; with a width of 512 it
    takes milliseconds."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    draw, header, data = random.Random(1), {}, bytearray()
    noise = [draw.gauss(0, 1.1 / width**0.5) for _ in range(4093)]
    for name, shape in shapes(width):
        n = shape[0] * (shape[1] if len(shape) > 1 else 1)
        begin = draw.randrange(len(noise))
        values = [1.0] * n if "norm" in name else (noise[begin:] + noise * (n // len(noise) + 1))[:n]
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [len(data), len(data) + 4 * n]}
        data += struct.pack(f"<{n}f", *values)
    head = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + data)
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": width, "intermediate_size": 2 * width,
        "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": width // HEADS,
        "hidden_act": "silu", "rms_norm_eps": 1e-5, "max_position_embeddings": CONTEXT, "vocab_size": VOCABULARY,
        "tie_word_embeddings": False, "bos_token_id": START, "eos_token_id": END, "rope_theta": 10000.0}))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer()))
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "bos_token": "<|start|>", "eos_token": "<|end|>",
        "chat_template": "{% for m in messages %}<|start|>{{ m.role }}: {{ m.content }}<|end|>{% endfor %}"
                         "{% if add_generation_prompt %}<|start|>assistant: {% endif %}"}))
    return folder
