#!/usr/bin/env python3
"""Makes tests/golden/eagle1 and eagle3: tiny random EAGLE heads for tests/golden/smollm3, and what they say; and
tests/golden/mtp: tests/golden/qwen2 with an MTP layer behind it, and what that says.

    pip install numpy safetensors        # tools/requirements-golden.txt has the versions
    python3 tools/make_golden_eagle.py

Each folder is a head as the papers' programs publish it (config.json, model.safetensors, their names and shapes). Beside
it NAME.safetensors has the tokens of a text, what the target made of them (random: the head's arithmetic is the
subject), and what the head says of it: the state and the logits behind every pair, then a chain of drafts, each
drawn as the most likely one and fed back. Written from the papers (Li et al. 2024, 2025; DeepSeek-V3's technical
report, section 2.2, and MiMo's, whose names and order of the two halves these are) in float64.
"""
import json
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

ROOT = Path(__file__).resolve().parent.parent / "tests" / "golden"
TARGET = "smollm3"
V, C, F, HEADS, KV_HEADS, D, N, CHAIN = 80, 32, 64, 4, 2, 8, 24, 5
CONFIG = dict(model_type="llama", hidden_size=C, intermediate_size=F, num_hidden_layers=1, num_attention_heads=HEADS,
              num_key_value_heads=KV_HEADS, vocab_size=V, max_position_embeddings=128, rms_norm_eps=1e-5,
              hidden_act="silu", rope_theta=10000.0)
MEMBERS = sorted([1, 2, 5, 6, 9, 10, 11, 17, 18, 23, 30, 31, 32, 40, 41, 44, 50, 52, 60, 61, 66, 70, 71, 79])


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

    def __init__(self, w, target):
        self.w, self.layer = w, Layer(w, self.prefix)
        self.embedding = target["embed_tokens"]
        self.ids = np.arange(len(w["d2t"])) + w["d2t"].astype(np.int64)

    def states(self, features):
        return features @ self.w["fc.weight"].T

    def __call__(self, tokens, states):
        read = np.concatenate([norm(self.embedding[tokens], self.layer.w["input_layernorm.weight"]),
                               norm(states, self.layer.w["hidden_norm.weight"])], -1)
        x = self.layer(states, read)
        return x, norm(x, self.w["norm.weight"]) @ self.w["lm_head.weight"].T


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


def eagle3(random):
    w = {"fc.weight": matrix(random, C, 3 * C), "lm_head.weight": matrix(random, len(MEMBERS), C),
         "norm.weight": (1 + 0.2 * random.standard_normal(C)).astype(np.float32),
         "d2t": np.array(MEMBERS, np.int64) - np.arange(len(MEMBERS)), "t2d": np.isin(np.arange(V), MEMBERS)}
    norms = ["input_layernorm", "hidden_norm", "post_attention_layernorm"]
    config = CONFIG | dict(draft_vocab_size=len(MEMBERS), target_hidden_size=C,
                           eagle_aux_hidden_state_layer_ids=[1, 2, 4])
    return w | layer_weights(random, "midlayer.", 2 * C, norms), config


def mtp(random):
    p = Mtp.prefix
    norms = ["token_layernorm", "hidden_layernorm", "final_layernorm", "input_layernorm", "post_attention_layernorm"]
    w = {p + "input_proj.weight": matrix(random, C, 2 * C)} | layer_weights(random, p, C, norms)
    for name, n in (("q", HEADS * D), ("k", KV_HEADS * D), ("v", KV_HEADS * D)):
        w[f"{p}self_attn.{name}_proj.bias"] = (0.5 * random.standard_normal(n)).astype(np.float32)
    config = json.loads((ROOT / "qwen2" / "config.json").read_text(encoding="utf-8"))
    return w, config | dict(architectures=["MiMoForCausalLM"], model_type="mimo", num_nextn_predict_layers=1)


def make(name, weights, head_class, target, body=None):
    random = np.random.default_rng(sum(name.encode()))
    w, config = weights(random)
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
    body = load_file(ROOT / "qwen2" / "model.safetensors")
    make("mtp", mtp, Mtp, target_of(body), body)


main()
