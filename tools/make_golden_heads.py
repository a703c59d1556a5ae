#!/usr/bin/env python3
"""Makes tests/golden/medusa and hydra: tiny random Medusa and Hydra heads for tests/golden/smollm3, and their outputs.

    pip install numpy safetensors        # tools/requirements-golden.txt has the versions
    python3 tools/make_golden_heads.py

Each folder is a set of heads as the papers' programs publish it (config.json, and their names and shapes). Beside it
NAME.safetensors has hidden states (random: the heads' arithmetic is the subject), the tokens after each, and the logits of
each head for each. Written from the papers (Cai et al. 2024, section 2.1; Ankner et al. 2024, section 3) in float64; the
outputs of Medusa's own program are in medusa_original.safetensors (tools/run_originals.py).
"""
import json
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

ROOT = Path(__file__).resolve().parent.parent / "tests" / "golden"
TARGET = "smollm3"
V, C, N = 80, 32, 6


def silu(x):
    return x / (1 + np.exp(-x))


def matrix(random, rows, columns):
    return (random.standard_normal((rows, columns)) / columns ** 0.5).astype(np.float32)


def product(random, w, name, rows, columns):
    w[name + ".weight"] = matrix(random, rows, columns)
    w[name + ".bias"] = (0.3 * random.standard_normal(rows)).astype(np.float32)


def apply(w, name, x):
    return x @ w[name + ".weight"].T + w.get(name + ".bias", 0)


class Medusa:
    """Head i: layers x + SiLU(W x + b), then outputs of its own. Public files state two heads and hold more."""
    n_heads, n_layers = 4, 1
    config = dict(model_type="llama", medusa_num_heads=2, medusa_num_layers=1, base_model_name_or_path=TARGET)

    def weights(self, random):
        w = {}
        for i in range(self.n_heads):
            for j in range(self.n_layers):
                product(random, w, f"{i}.{j}.linear", C, C)
            w[f"{i}.{self.n_layers}.weight"] = matrix(random, V, C)
        return w

    def logits(self, w, i, hidden, embeddings):
        x = hidden
        for j in range(self.n_layers):
            x = x + silu(apply(w, f"{i}.{j}.linear", x))
        return x @ w[f"{i}.{self.n_layers}.weight"].T


class Hydra:
    """Head i reads the hidden state and the i + 1 tokens behind it; its first layer's way past is a product too. Its program
    makes layers behind the first of one object, so that their weights are the same."""
    n_heads, n_layers = 3, 3
    config = dict(model_type="llama", hydra_num_heads=3, hydra_num_layers=3, hydra_head_arch="mlp", grounded_heads=True,
                  hidden_state_offset=0, base_model_name_or_path=TARGET)

    def weights(self, random):
        w = {}
        for i in range(self.n_heads):
            for part in ("linear", "res_connection"):
                product(random, w, f"hydra_mlp.{i}.0.{part}", C, (i + 2) * C)
            product(random, w, f"hydra_mlp.{i}.1.linear", C, C)
            for part in ("weight", "bias"):
                w[f"hydra_mlp.{i}.2.linear.{part}"] = w[f"hydra_mlp.{i}.1.linear.{part}"].copy()
            product(random, w, f"hydra_lm_head.{i}", V, C)
        return w

    def logits(self, w, i, hidden, embeddings):
        x = np.concatenate([hidden, *embeddings[:i + 1]], -1)
        for j in range(self.n_layers):
            way_past = apply(w, f"hydra_mlp.{i}.{j}.res_connection", x) if j == 0 else x
            x = way_past + silu(apply(w, f"hydra_mlp.{i}.{j}.linear", x))
        return apply(w, f"hydra_lm_head.{i}", x)


def make(name, kind, embedding):
    random = np.random.default_rng(sum(name.encode()))
    w = kind.weights(random)
    folder = ROOT / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(kind.config, indent=2) + "\n", encoding="utf-8")
    save_file(w, folder / "model.safetensors")
    hidden = random.standard_normal((N, C)).astype(np.float32)
    tokens = random.integers(0, V, (N, kind.n_heads))
    exact = {k: v.astype(np.float64) for k, v in w.items()}
    embeddings = [embedding[tokens[:, i]] for i in range(kind.n_heads)]
    logits = np.stack([kind.logits(exact, i, hidden.astype(np.float64), embeddings) for i in range(kind.n_heads)])
    save_file({"hidden": hidden, "tokens": tokens.astype(np.int32), "logits": logits.astype(np.float32)},
              ROOT / f"{name}.safetensors")
    print(f"{name}: {logits.shape[0]} heads, most likely {logits[:, 0].argmax(-1).tolist()}")


def main():
    embedding = load_file(ROOT / TARGET / "model.safetensors")["model.embed_tokens.weight"].astype(np.float64)
    make("medusa", Medusa(), embedding)
    make("hydra", Hydra(), embedding)


main()
