#!/usr/bin/env python3
"""Makes tests/golden/eagle1, eagle3 and their like: tiny random EAGLE heads for tests/golden/smollm3, and their outputs; and
tests/golden/mtp: tests/golden/qwen2 with an MTP layer after it, and its outputs.

    pip install numpy safetensors gguf   # tools/requirements-golden.txt has the versions
    python3 tools/make_golden_eagle.py [NAME ...]

Each folder is a head as the papers' programs publish it (config.json, model.safetensors, their names and shapes):
eagle3_speculators as speculators does (norm_before_fc, norm_before_residual by default, norm_output, the layer's keys
within transformer_layer_config), eagle3_fc_norm as SpecForge does EAGLE-3.1's; eagle3_llamacpp.gguf is what llama.cpp's
converter would make of another one, eagle3_llamacpp.

Beside it NAME.safetensors has the tokens of a sequence, the target's states of them (random: the head's arithmetic is the
subject), and the head's outputs: the state and the logits after every pair, then a chain of drafts, each
drawn as the most likely one and fed back. Written from the papers (Li et al. 2024, 2025; DeepSeek-V3's technical
report, section 2.2, and MiMo's, whose names and order of the two halves these are) in float64.
"""
import json
import sys
from pathlib import Path

import gguf
import numpy as np
from safetensors.numpy import load_file, save_file

ROOT = Path(__file__).resolve().parent.parent / "tests" / "golden"
TARGET = "smollm3"
V, C, F, HEADS, KV_HEADS, D, N, CHAIN = 80, 32, 64, 4, 2, 8, 24, 5
CONFIG = dict(model_type="llama", hidden_size=C, intermediate_size=F, num_hidden_layers=1, num_attention_heads=HEADS,
              num_key_value_heads=KV_HEADS, vocab_size=V, max_position_embeddings=128, rms_norm_eps=1e-5,
              hidden_act="silu", rope_theta=10000.0)
MEMBERS = sorted([1, 2, 5, 6, 9, 10, 11, 17, 18, 23, 30, 31, 32, 40, 41, 44, 50, 52, 60, 61, 66, 70, 71, 79])
# Such that distances to them would stay within the vocabulary too: they must be known for ids.
LOW_MEMBERS = [1, 2, 5, 6, 9, 10, 11, 17, 18, 23, 24, 25, 30, 31, 32, 40, 41, 44, 45, 46, 50, 52, 53, 55]


def norm(x, w):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + CONFIG["rms_norm_eps"]) * w


def silu(x):
    return x / (1 + np.exp(-x))


def rotated(x, positions):
    """Halves of a head turn against each other (Su et al., RoFormer, as llama's programs have it)."""
    frequency = CONFIG["rope_theta"] ** (-np.arange(0, D, 2) / D)
    angle = positions[:, None, None] * frequency
    cos, sin = np.concatenate([np.cos(angle)] * 2, -1), np.concatenate([np.sin(angle)] * 2, -1)
    half = np.concatenate([-x[..., D // 2:], x[..., :D // 2]], -1)
    return x * cos + half * sin


class Layer:
    """The decoder layer, with the keys and values of the pairs that it has read."""

    def __init__(self, w, prefix):
        self.w = {k.removeprefix(prefix): v for k, v in w.items() if k.startswith(prefix)}
        self.k, self.v = np.zeros((0, KV_HEADS, D)), np.zeros((0, KV_HEADS, D))

    def product(self, x, name):
        y = x @ self.w[name + ".weight"].T
        return y + self.w[name + ".bias"] if name + ".bias" in self.w else y

    def __call__(self, x, read):
        n, before = len(x), len(self.k)
        positions = np.arange(before, before + n)
        q = rotated(self.product(read, "self_attn.q_proj").reshape(n, HEADS, D), positions)
        k = rotated(self.product(read, "self_attn.k_proj").reshape(n, KV_HEADS, D), positions)
        self.k = np.concatenate([self.k, k])
        self.v = np.concatenate([self.v, self.product(read, "self_attn.v_proj").reshape(n, KV_HEADS, D)])
        out = np.zeros((n, HEADS, D))
        for i in range(n):
            for h in range(HEADS):
                group = h // (HEADS // KV_HEADS)
                scores = self.k[:before + i + 1, group] @ q[i, h] / np.sqrt(D)
                p = np.exp(scores - scores.max())
                out[i, h] = p / p.sum() @ self.v[:before + i + 1, group]
        x = x + self.product(out.reshape(n, -1), "self_attn.o_proj")
        h = norm(x, self.w["post_attention_layernorm.weight"])
        return x + self.product(silu(self.product(h, "mlp.gate_proj")) * self.product(h, "mlp.up_proj"), "mlp.down_proj")


class Eagle1:
    prefix, n_features = "layers.0.", C

    def __init__(self, w, target):
        self.w, self.layer = w, Layer(w, self.prefix)
        self.embedding = target["embed_tokens"]
        self.outputs = target["lm_head"]
        self.ids = np.arange(V)

    def states(self, features):
        return features

    def __call__(self, tokens, states):
        x = np.concatenate([self.embedding[tokens], states], -1) @ self.w["fc.weight"].T + self.w["fc.bias"]
        x = self.layer(x, x)
        return x, x @ self.outputs.T


class Eagle3:
    prefix, n_features = "midlayer.", 3 * C
    normed_residual, normed_output = False, False

    def __init__(self, w, target):
        self.w, self.layer = w, Layer(w, self.prefix)
        self.embedding = target["embed_tokens"]
        self.ids = np.arange(len(w["d2t"])) + w["d2t"].astype(np.int64)

    def states(self, features):
        return self.normed(features) @ self.w["fc.weight"].T

    def normed(self, features):
        return features

    def __call__(self, tokens, states):
        state = norm(states, self.layer.w["hidden_norm.weight"])
        read = np.concatenate([norm(self.embedding[tokens], self.layer.w["input_layernorm.weight"]), state], -1)
        x = self.layer(state if self.normed_residual else states, read)
        last = norm(x, self.w["norm.weight"])
        return last if self.normed_output else x, last @ self.w["lm_head.weight"].T


class Speculators(Eagle3):
    prefix, normed_residual, normed_output = "layers.0.", True, True

    def normed(self, features):
        return norm(features, self.w["input_norm.weight"])


class FcNorm(Eagle3):
    normed_output = True

    def normed(self, features):
        parts = features.reshape(-1, 3, C)
        return np.concatenate([norm(parts[:, i], self.w[f"fc_norm.{i}.weight"]) for i in range(3)], -1)


class LlamaCpp(Speculators):
    prefix, normed_output = "midlayer.", False


class Mtp:
    prefix, n_features = "model.mtp_layers.0.", C

    def __init__(self, w, target):
        self.w, self.layer = {k.removeprefix(self.prefix): v for k, v in w.items()}, Layer(w, self.prefix)
        self.embedding, self.outputs = target["embed_tokens"], target["lm_head"]
        self.ids = np.arange(V)

    def states(self, features):
        return features

    def __call__(self, tokens, states):
        read = np.concatenate([norm(states, self.w["hidden_layernorm.weight"]),
                               norm(self.embedding[tokens], self.w["token_layernorm.weight"])], -1)
        x = read @ self.w["input_proj.weight"].T
        x = norm(self.layer(x, norm(x, self.w["input_layernorm.weight"])), self.w["final_layernorm.weight"])
        return x, x @ self.outputs.T


def matrix(random, rows, columns):
    return (1.3 * random.standard_normal((rows, columns)) / columns ** 0.5).astype(np.float32)


def layer_weights(random, prefix, read, norms):
    w = {prefix + name + ".weight": matrix(random, rows, columns) for name, rows, columns in (
        ("self_attn.q_proj", HEADS * D, read), ("self_attn.k_proj", KV_HEADS * D, read),
        ("self_attn.v_proj", KV_HEADS * D, read), ("self_attn.o_proj", C, HEADS * D),
        ("mlp.gate_proj", F, C), ("mlp.up_proj", F, C), ("mlp.down_proj", C, F))}
    return w | {prefix + name + ".weight": (1 + 0.2 * random.standard_normal(C)).astype(np.float32) for name in norms}


def eagle1(random):
    w = {"fc.weight": matrix(random, C, 2 * C), "fc.bias": (0.5 * random.standard_normal(C)).astype(np.float32)}
    return w | layer_weights(random, "layers.0.", C, ["post_attention_layernorm"]), CONFIG | dict(bias=True)


def eagle3(random, prefix="midlayer."):
    w = {"fc.weight": matrix(random, C, 3 * C), "lm_head.weight": matrix(random, len(MEMBERS), C),
         "norm.weight": (1 + 0.2 * random.standard_normal(C)).astype(np.float32),
         "d2t": np.array(MEMBERS, np.int64) - np.arange(len(MEMBERS)), "t2d": np.isin(np.arange(V), MEMBERS)}
    norms = ["input_layernorm", "hidden_norm", "post_attention_layernorm"]
    config = CONFIG | dict(draft_vocab_size=len(MEMBERS), target_hidden_size=C,
                           eagle_aux_hidden_state_layer_ids=[1, 2, 4])
    return w | layer_weights(random, prefix, 2 * C, norms), config


def gains(random, n):
    return (1 + 0.3 * random.standard_normal(n)).astype(np.float32)


def speculators(random):
    w, config = eagle3(random, "layers.0.")
    layer = {k: v for k, v in CONFIG.items() if k != "rope_theta"}
    layer["rope_parameters"] = dict(rope_type="default", rope_theta=CONFIG["rope_theta"])
    return w | {"input_norm.weight": gains(random, 3 * C)}, dict(
        architectures=["Eagle3DraftModel"], speculators_model_type="eagle3", transformer_layer_config=layer,
        draft_vocab_size=len(MEMBERS), target_hidden_size=None, norm_before_fc=True, norm_output=True, fc_norm=False,
        eagle_aux_hidden_state_layer_ids=config["eagle_aux_hidden_state_layer_ids"])


def fc_norm(random):
    w, config = eagle3(random)
    return w | {f"fc_norm.{i}.weight": gains(random, C) for i in range(3)}, config | dict(
        architectures=["LlamaForCausalLMEagle3"], fc_norm=True, norm_output=True)


def llama_cpp(random):
    w, config = eagle3(random)
    w["d2t"] = np.array(LOW_MEMBERS, np.int64) - np.arange(len(LOW_MEMBERS))
    return w | {"input_norm.weight": gains(random, 3 * C)}, config


def neighbours(x, n_heads):
    """Rows of q and k as llama.cpp needs them: what turns against each other side by side, not halves of a head."""
    return x.reshape(n_heads, 2, -1, x.shape[-1]).swapaxes(1, 2).reshape(x.shape)


def write_gguf(path, w):
    """As llama.cpp's converter does: its names and keys, ids in d2t, no t2d."""
    names = {"fc": "fc", "input_norm": "enc.output_norm", "norm": "output_norm", "lm_head": "output",
             "midlayer.input_layernorm": "blk.0.attn_norm", "midlayer.hidden_norm": "blk.0.attn_norm_2",
             "midlayer.post_attention_layernorm": "blk.0.ffn_norm", "midlayer.self_attn.q_proj": "blk.0.attn_q",
             "midlayer.self_attn.k_proj": "blk.0.attn_k", "midlayer.self_attn.v_proj": "blk.0.attn_v",
             "midlayer.self_attn.o_proj": "blk.0.attn_output", "midlayer.mlp.gate_proj": "blk.0.ffn_gate",
             "midlayer.mlp.up_proj": "blk.0.ffn_up", "midlayer.mlp.down_proj": "blk.0.ffn_down"}
    writer = gguf.GGUFWriter(path, "eagle3")
    writer.add_block_count(1)
    writer.add_context_length(CONFIG["max_position_embeddings"])
    writer.add_embedding_length(C)
    writer.add_feed_forward_length(F)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_freq_base(CONFIG["rope_theta"])
    writer.add_layer_norm_rms_eps(CONFIG["rms_norm_eps"])
    writer.add_vocab_size(V)
    writer.add_array("eagle3.target_layers", [1, 2, 4])
    writer.add_uint32("eagle3.target_hidden_size", C)
    writer.add_bool("eagle3.norm_before_residual", True)
    writer.add_bool("eagle3.norm_before_fc", True)
    writer.add_tensor("d2t", np.array(LOW_MEMBERS, np.int64))
    for name, x in w.items():
        stem = name.removesuffix(".weight")
        n_heads = {"midlayer.self_attn.q_proj": HEADS, "midlayer.self_attn.k_proj": KV_HEADS}.get(stem)
        if stem in names:
            writer.add_tensor(names[stem] + ".weight", neighbours(x, n_heads) if n_heads else x)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def mtp(random):
    p = Mtp.prefix
    norms = ["token_layernorm", "hidden_layernorm", "final_layernorm", "input_layernorm", "post_attention_layernorm"]
    w = {p + "input_proj.weight": matrix(random, C, 2 * C)} | layer_weights(random, p, C, norms)
    for name, n in (("q", HEADS * D), ("k", KV_HEADS * D), ("v", KV_HEADS * D)):
        w[f"{p}self_attn.{name}_proj.bias"] = (0.5 * random.standard_normal(n)).astype(np.float32)
    config = json.loads((ROOT / "qwen2" / "config.json").read_text(encoding="utf-8"))
    return w, config | dict(architectures=["MiMoForCausalLM"], model_type="mimo", num_nextn_predict_layers=1)


def make(name, weights, head_class, target, body=None):
    if sys.argv[1:] and name not in sys.argv[1:]:
        return
    random = np.random.default_rng(sum(name.encode()))
    w, config = weights(random)
    if head_class is LlamaCpp:
        write_gguf(ROOT / f"{name}.gguf", w)
    else:
        folder = ROOT / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        save_file(w | (body or {}), folder / "model.safetensors")
    head = head_class({k: v.astype(np.float64) for k, v in w.items()}, target)
    tokens = random.integers(0, V, N + 1)
    features = random.standard_normal((N, head.n_features)).astype(np.float32)
    states, logits = head(tokens[1:], head.states(features.astype(np.float64)))
    drafts, chain_states, chain_logits = [], [states[-1]], [logits[-1]]
    for _ in range(CHAIN):
        drafts.append(head.ids[chain_logits[-1].argmax()])
        state, logit = head(np.array(drafts[-1:]), chain_states[-1][None])
        chain_states.append(state[0])
        chain_logits.append(logit[0])
    out = dict(tokens=tokens, features=features, states=states, logits=logits, drafts=np.array(drafts),
               draft_states=np.array(chain_states[1:]), draft_logits=np.array(chain_logits[1:]))
    save_file({k: v.astype(np.int32 if v.dtype == np.int64 else np.float32) for k, v in out.items()},
              ROOT / f"{name}.safetensors")
    print(f"{name}: drafts {[int(d) for d in drafts]}")


def main():
    def target_of(w):
        embedding = w["model.embed_tokens.weight"].astype(np.float64)
        return dict(embed_tokens=embedding, lm_head=w.get("lm_head.weight", embedding).astype(np.float64))

    target = target_of(load_file(ROOT / TARGET / "model.safetensors"))
    make("eagle1", eagle1, Eagle1, target)
    make("eagle3", eagle3, Eagle3, target)
    make("eagle3_speculators", speculators, Speculators, target)
    make("eagle3_fc_norm", fc_norm, FcNorm, target)
    make("eagle3_llamacpp", llama_cpp, LlamaCpp, target)
    body = load_file(ROOT / "qwen2" / "model.safetensors")
    make("mtp", mtp, Mtp, target_of(body), body)


main()
