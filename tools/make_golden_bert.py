#!/usr/bin/env python3
"""Makes the encoders of tests/golden: tiny random BERTs and every named intermediate of one pass, as make_golden.py does
for models that make tokens.

    v/bin/python tools/make_golden_bert.py    # with torch, transformers and safetensors of any recent version
"""
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file
from transformers import BertConfig, BertForSequenceClassification, BertModel

ROOT = Path(__file__).resolve().parent.parent / "tests" / "golden"
BASE = dict(vocab_size=80, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
            max_position_embeddings=96, attn_implementation="eager")
# name -> (configuration, model, tokens, of them in the first text)
MODELS = {
    "bert": (BertConfig(**BASE, hidden_act="gelu_new"), BertModel, 40, 40),
    "bert_rank": (BertConfig(**BASE, num_labels=1), BertForSequenceClassification, 70, 22),
}


def randomise(model, seed):
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in sorted(model.named_parameters()):
            noise = torch.randn(p.shape, generator=g)
            if name.endswith("LayerNorm.weight"):
                p.copy_(1.0 + 0.2 * noise)
            elif name.endswith("bias"):
                p.copy_(0.5 * noise)
            elif "embeddings" in name:
                p.copy_(0.6 * noise)
            else:
                p.copy_(1.3 * noise / p.shape[1] ** 0.5)


def make(name):
    config, cls, n_tokens, n_first = MODELS[name]
    model = cls(config).to(torch.float32).eval()
    randomise(model, seed=sum(name.encode()))
    folder = ROOT / name
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    out = {}

    def on(module, key, pick=lambda o: o):
        module.register_forward_hook(lambda m, args, o: out.__setitem__(key, pick(o).detach()[0].contiguous().clone()))

    inner = model.bert if hasattr(model, "bert") else model
    on(inner.embeddings, "embed")
    for i, layer in enumerate(inner.encoder.layer):
        p = f"layer.{i}."
        for key, part in (("q", "query"), ("k", "key"), ("v", "value")):
            on(getattr(layer.attention.self, part), p + key)
        on(layer.attention.self, p + "attention", lambda o: o[0])
        on(layer.attention.output.dense, p + "attn_out")
        on(layer.attention.output, p + "post_attn_norm")
        on(layer.intermediate.dense, p + "up")
        on(layer.intermediate, p + "gated")
        on(layer.output.dense, p + "ffn_out")
        on(layer.output, p + "output")
    g = torch.Generator().manual_seed(n_tokens)
    tokens = torch.randint(0, config.vocab_size, (n_tokens,), generator=g)
    types = (torch.arange(n_tokens) >= n_first).to(torch.int64)
    with torch.no_grad():
        result = model(tokens[None, :], token_type_ids=types[None, :])
        if hasattr(model, "classifier"):
            out["pooled"] = inner.pooler(inner(tokens[None, :], token_type_ids=types[None, :])[0]).contiguous()
            out["scores"] = result.logits.contiguous()
    out["tokens"], out["types"] = tokens.to(torch.int32), types.to(torch.int32)
    path = ROOT / f"{name}.safetensors"
    save_file(out, path, metadata={"torch": torch.__version__, "transformers": transformers.__version__})
    print(f"{path.relative_to(ROOT)}: {len(out)} tensors, {path.stat().st_size} bytes; "
          f"model {(folder / 'model.safetensors').stat().st_size} bytes")


if __name__ == "__main__":
    for each in MODELS:
        make(each)
