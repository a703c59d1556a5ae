#!/usr/bin/env python3
"""Makes tests/golden: tiny random models of each architecture and every named intermediate of one forward pass.

    python3 -m venv v && v/bin/pip install -r tools/requirements-golden.txt
    v/bin/python tools/make_golden.py            # all of them; or names: v/bin/python tools/make_golden.py qwen3 yarn

Each folder tests/golden/NAME is a model as transformers saves it (config.json, model.safetensors). Beside it, one or two
files NAME*.safetensors hold the tokens and the intermediates of the original Python implementation in F32 on
the CPU, under the names that src/model gives them (docs/developers/adding_a_model.md lists them). The golden test runs both the
folder and a GGUF of the same weights. Needs no network: the weights are random.
"""
import sys
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file
from transformers import (Gemma3ForCausalLM, Gemma3TextConfig, LlamaConfig, LlamaForCausalLM, MistralConfig,
                          MistralForCausalLM, Phi3Config, Phi3ForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config,
                          Qwen3ForCausalLM, SmolLM3Config, SmolLM3ForCausalLM)

ROOT = Path(__file__).resolve().parent.parent / "tests" / "golden"
VOCABULARY = 80
BASE = dict(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=128, rms_norm_eps=1e-5, bos_token_id=1, eos_token_id=2,
            pad_token_id=0)


def base(**changes):
    return {**BASE, **changes}


LONGROPE = dict(rope_type="longrope", rope_theta=10000.0, short_factor=[1.0, 1.05, 1.1, 1.4],
                long_factor=[1.1, 1.7, 3.1, 4.5])
# name -> (configuration, model, token counts of the golden files)
MODELS = {
    "llama": (LlamaConfig(**base(rope_theta=10000.0)), LlamaForCausalLM, {"": 24}),
    "llama_tied": (LlamaConfig(**base(num_key_value_heads=1, tie_word_embeddings=True, head_dim=24)),
                   LlamaForCausalLM, {"": 24}),
    "llama3_rope": (LlamaConfig(**base(rope_parameters=dict(
        rope_type="llama3", rope_theta=10000.0, factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position_embeddings=32))), LlamaForCausalLM, {"": 40}),
    "linear_rope": (LlamaConfig(**base(rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=2.5))),
                    LlamaForCausalLM, {"": 24}),
    "mistral": (MistralConfig(**base(sliding_window=8, head_dim=8)), MistralForCausalLM, {"": 100}),
    "qwen2": (Qwen2Config(**base(tie_word_embeddings=True)), Qwen2ForCausalLM, {"": 24}),
    "qwen3": (Qwen3Config(**base(head_dim=16)), Qwen3ForCausalLM, {"": 24}),
    "yarn": (Qwen3Config(**base(head_dim=16, rope_parameters=dict(
        rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=32))),
        Qwen3ForCausalLM, {"": 40}),
    "smollm3": (SmolLM3Config(**base(num_hidden_layers=4, intermediate_size=48)), SmolLM3ForCausalLM, {"": 24}),
    "phi3": (Phi3Config(**base(sliding_window=20, rope_parameters=dict(
        rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5))),
             Phi3ForCausalLM, {"": 24}),
    "phi3_longrope": (Phi3Config(**base(original_max_position_embeddings=32, rope_parameters=LONGROPE)),
                      Phi3ForCausalLM, {"_short": 24, "_long": 40}),
    "gemma3": (Gemma3TextConfig(**base(
        num_hidden_layers=4, head_dim=16, query_pre_attn_scalar=20, sliding_window=8, hidden_activation="gelu_pytorch_tanh",
        layer_types=["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"],
        final_logit_softcapping=3.0, attn_logit_softcapping=2.0,
        rope_parameters={"full_attention": dict(rope_type="linear", rope_theta=1e6, factor=8.0),
                         "sliding_attention": dict(rope_type="default", rope_theta=10000.0)})),
        Gemma3ForCausalLM, {"": 24}),
}


def randomise(model, seed):
    """Weights at a scale where every part of a layer matters: attention is neither uniform nor one-hot."""
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in sorted(model.named_parameters()):
            noise = torch.randn(p.shape, generator=g)
            if name.endswith("norm.weight"):
                centre = 0.0 if "gemma" in model.config.model_type else 1.0
                p.copy_(centre + 0.2 * noise)
            elif name.endswith("bias"):
                p.copy_(0.5 * noise)
            elif "embed" in name:
                p.copy_(0.6 * noise)
            else:
                p.copy_(1.3 * noise / p.shape[1] ** 0.5)


class Recorder:
    def __init__(self, model):
        self.model, self.out, self.handles = model, {}, []
        self.gemma = "gemma" in model.config.model_type
        inner = model.model
        self.on(inner.embed_tokens, "embed")
        for i, layer in enumerate(inner.layers):
            self.layer(i, layer)
        self.on(inner.norm, "final_norm")
        self.on(model, "logits", lambda o: o.logits)
        module = sys.modules[type(model).__module__]
        eager = module.eager_attention_forward

        def attention(layer_module, q, k, v, mask, **kwargs):
            # transformers leaves gemma's cap of the scores to the attention functions that have it.
            if getattr(layer_module, "attn_logit_softcapping", None) is not None:
                kwargs["softcap"] = layer_module.attn_logit_softcapping
            result = eager(layer_module, q, k, v, mask, **kwargs)
            for name, x in (("q", q), ("k", k), ("v", v)):
                self.put(f"layer.{layer_module.layer_idx}.{name}", x.transpose(1, 2).flatten(2))
            self.put(f"layer.{layer_module.layer_idx}.attention", result[0].flatten(2))
            return result

        module.eager_attention_forward = attention
        self.restore = lambda: setattr(module, "eager_attention_forward", eager)

    def put(self, name, x):
        self.out[name] = x.detach()[0].to(torch.float32).contiguous().clone()

    def on(self, module, name, pick=lambda o: o):
        self.handles.append(module.register_forward_hook(lambda m, args, o: self.put(name, pick(o))))

    def layer(self, i, layer):
        p = f"layer.{i}."
        self.on(layer.input_layernorm, p + "attn_norm")
        self.on(layer.self_attn.o_proj, p + "attn_out")
        if self.gemma:
            self.on(layer.post_attention_layernorm, p + "post_attn_norm")
            self.on(layer.pre_feedforward_layernorm, p + "ffn_norm")
            self.on(layer.post_feedforward_layernorm, p + "post_ffn_norm")
        else:
            self.on(layer.post_attention_layernorm, p + "ffn_norm")
        mlp = layer.mlp
        if hasattr(mlp, "gate_up_proj"):
            self.on(mlp.gate_up_proj, p + "gate", lambda o: o.chunk(2, dim=-1)[0])
            self.on(mlp.gate_up_proj, p + "up", lambda o: o.chunk(2, dim=-1)[1])
        else:
            self.on(mlp.gate_proj, p + "gate")
            self.on(mlp.up_proj, p + "up")
        self.handles.append(
            mlp.down_proj.register_forward_pre_hook(lambda m, args: self.put(p + "gated", args[0])))
        self.on(mlp.down_proj, p + "ffn_out")
        self.on(layer, p + "output", lambda o: o[0] if isinstance(o, tuple) else o)

    def close(self):
        for handle in self.handles:
            handle.remove()
        self.restore()


def make(name):
    config, cls, lengths = MODELS[name]
    config._attn_implementation = "eager"
    model = cls(config).to(torch.float32).eval()
    randomise(model, seed=sum(name.encode()))
    folder = ROOT / name
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    for suffix, n_tokens in lengths.items():
        g = torch.Generator().manual_seed(n_tokens)
        tokens = torch.randint(0, VOCABULARY, (n_tokens,), generator=g)
        recorder = Recorder(model)
        with torch.no_grad():
            model(tokens[None, :], use_cache=False)
        recorder.close()
        out = {**recorder.out, "tokens": tokens.to(torch.int32)}
        path = ROOT / f"{name}{suffix}.safetensors"
        save_file(out, path, metadata={"torch": torch.__version__, "transformers": transformers.__version__})
        print(f"{path.relative_to(ROOT)}: {len(out)} tensors, {path.stat().st_size} bytes; "
              f"model {(folder / 'model.safetensors').stat().st_size} bytes")


def main():
    names = sys.argv[1:] or list(MODELS)
    unknown = [n for n in names if n not in MODELS]
    if unknown:
        sys.exit(f"make_golden: no model named {', '.join(unknown)}; there are {', '.join(MODELS)}")
    for name in names:
        make(name)


if __name__ == "__main__":
    main()
