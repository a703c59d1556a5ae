#!/usr/bin/env python3
"""What rules of quantising activations, weights and caches cost a model, those too that ibid does not have.

    pip install torch transformers; python3 bench/folder_of_gguf.py model.gguf FOLDER
    python3 bench/quantisation_rules.py FOLDER TEXT [--tokens 1024] [--of products|cache]

A model of floats (transformers, F32) runs over TEXT with its layers' products, or its keys and values after the rotary embedding,
rounded as each rule has it: perplexity, the Kullback-Leibler divergence from the floats' distribution in thousandths, and how often
both agree on the most likely token. A cache's rules apply to all tokens at once: a group of keys by channel is rounded for its own
tokens too, which a cache with an open group would read in floats.
"""
import argparse
import math

import torch
import transformers


def to_codes(x, bits, dim=-1, zero=False):
    """x as integers of `bits` times a step for each slice along `dim` (with a zero: from its least to its largest)."""
    if zero:
        low, high = x.amin(dim, True).clamp(max=0), x.amax(dim, True).clamp(min=0)
        step = ((high - low) / (2**bits - 1)).clamp(min=1e-30)
        return ((x - low) / step).round() * step + low
    step = (x.abs().amax(dim, True) / (2 ** (bits - 1) - 1)).clamp(min=1e-30)
    return (x / step).round() * step


def in_groups(x, n, rule):
    return rule(x.unflatten(-1, (-1, n))).flatten(-2)


def to_e2m1(x):
    size = x.abs().clamp(max=6)
    step = torch.where(size < 2, 0.5, torch.where(size < 4, 1.0, 2.0))
    return (size / step).round() * step * x.sign()


def mxfp4(x):
    """E2M1 with a power of two for 32 (OCP MX 1.0)."""
    return in_groups(x, 32, lambda g: (s := 2.0 ** (g.abs().amax(-1, True).clamp(min=1e-30).log2().floor() - 2)) * to_e2m1(g / s))


def nvfp4(x):
    """E2M1 with an E4M3 scale for 16, and a float for all."""
    whole = x.abs().amax() / (6 * 448)
    def rule(g):
        scale = (g.abs().amax(-1, True) / 6 / whole).to(torch.float8_e4m3fn).float().clamp(min=2**-9) * whole
        return scale * to_e2m1(g / scale)
    return in_groups(x, 16, rule)


def e4m3(x, dim=-1):
    scale = (x.abs().amax(dim, True) / 448).clamp(min=1e-30)
    return (x / scale).to(torch.float8_e4m3fn).float() * scale


def int8(x):
    return to_codes(x, 8)


# Of a product: (the rule of inputs [tokens, K], that of weights [N, K], how far inputs are smoothed).
PRODUCTS = {
    "int8 by token x int8 by output (W8A8)": (int8, int8, None),
    "the same, smoothed by 0.5 (SmoothQuant)": (int8, int8, 0.5),
    "the same, inputs of 6 and more apart (LLM.int8)": ("apart", int8, None),
    "int8 by 32 x int8 by output (ibid of W8A8)": (lambda x: in_groups(x, 32, int8), int8, None),
    "E4M3 by token x E4M3 by output": (e4m3, e4m3, None),
    "floats x int4 by 32 (W4A16)": (None, lambda w: in_groups(w, 32, lambda g: to_codes(g, 4)), None),
    "int8 by 32 x int4 by 32 (ibid of W4A16)": (lambda x: in_groups(x, 32, int8), lambda w: in_groups(w, 32, lambda g: to_codes(g, 4)), None),
    "int4 by token x int4 by 32 (W4A4)": (lambda x: to_codes(x, 4), lambda w: in_groups(w, 32, lambda g: to_codes(g, 4)), None),
    "int4 by 32 x int4 by 32": (lambda x: in_groups(x, 32, lambda g: to_codes(g, 4)), lambda w: in_groups(w, 32, lambda g: to_codes(g, 4)), None),
    "MXFP4 x MXFP4": (mxfp4, mxfp4, None),
    "NVFP4 x NVFP4": (nvfp4, nvfp4, None),
}


def by_channel(bits, n_tokens=32, zero=True):
    """Of x [heads, tokens, D]: for each channel and n_tokens tokens; a last part of a group stays."""
    def rule(x):
        n = x.shape[-2] // n_tokens * n_tokens
        groups = x[..., :n, :].unflatten(-2, (-1, n_tokens))
        return torch.cat([to_codes(groups, bits, -2, zero).flatten(-3, -2), x[..., n:, :]], -2)
    return rule


def with_outliers(rule, share=0.01):
    """The share of a head's numbers that are farthest from 0 stay as they are."""
    def apart(x):
        bound = x.abs().flatten(-2).quantile(1 - share, dim=-1)[..., None, None]
        return torch.where(x.abs() > bound, x, rule(x.clamp(-bound, bound)))
    return apart


def tokens_of(bits, n=0, zero=False):
    whole = lambda x: to_codes(x, bits, -1, zero)
    return (lambda x: in_groups(x, n, whole)) if n else whole


# Of a cache: (the rule of keys, that of values), each [KV heads, tokens, D].
CACHES = {
    "int8 for all (a scale a layer)": (lambda x: to_codes(x.flatten(), 8).view_as(x),) * 2,
    "int8 by head": (lambda x: to_codes(x.flatten(-2), 8).view_as(x),) * 2,
    "int8 by 16 tokens and head": (lambda x: torch.cat([to_codes(c.flatten(-2), 8).view_as(c) for c in x.split(16, -2)], -2),) * 2,
    "int8 by token and head (`i8`)": (tokens_of(8),) * 2,
    "int8 by token and 32": (tokens_of(8, 32),) * 2,
    "E4M3, scale 1": (lambda x: x.clamp(-448, 448).to(torch.float8_e4m3fn).float(),) * 2,
    "E4M3 by token and head (`f8`)": (e4m3,) * 2,
    "4 bits by token and 32": (tokens_of(4, 32, True),) * 2,
    "keys int8, values 4 bits by 32": (tokens_of(8), tokens_of(4, 32, True)),
    "4 bits: keys by channel, values by 32": (by_channel(4), tokens_of(4, 32, True)),
    "the same, 1 % of the keys and values apart (KVQuant)": (with_outliers(by_channel(4)), with_outliers(tokens_of(4, 32, True))),
    "2 bits: keys by channel, values by 32 (KIVI)": (by_channel(2), tokens_of(2, 32, True)),
    "2 bits: keys by 32, values by channel": (tokens_of(2, 32, True), by_channel(2)),
    "keys int8, values 2 bits by 32": (tokens_of(8), tokens_of(2, 32, True)),
    "keys 2 bits by channel, values int8": (by_channel(2), tokens_of(8)),
}


class Rounded(torch.nn.Module):
    """A product whose inputs and weights are rounded."""

    def __init__(self, linear):
        super().__init__()
        self.weight, self.bias, self.largest, self.rule = linear.weight, linear.bias, None, None

    def forward(self, x):
        if self.rule is None:
            size = x.detach().abs().flatten(0, -2).amax(0)
            self.largest = size if self.largest is None else torch.maximum(self.largest, size)
            return torch.nn.functional.linear(x, self.weight, self.bias)
        of_x, of_w, smoothing = self.rule
        w, apart = self.weight, None
        if smoothing is not None:
            s = (self.largest.clamp(min=1e-5) ** smoothing / w.abs().amax(0).clamp(min=1e-5) ** (1 - smoothing))
            x, w = x / s, w * s
        if of_x == "apart":
            large = x.abs() >= 6
            apart = torch.nn.functional.linear(torch.where(large, x, 0), w)
            x, of_x = torch.where(large, 0, x), int8
        y = torch.nn.functional.linear(of_x(x) if of_x else x, of_w(w), self.bias)
        return y if apart is None else y + apart


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("text")
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--of", choices=("products", "cache"), default="products")
    args = parser.parse_args()
    cache_rule = [None]
    attend = transformers.modeling_utils.ALL_ATTENTION_FUNCTIONS["sdpa"]

    def attention(module, query, key, value, *rest, **named):
        if cache_rule[0] is not None:
            key, value = (rule(x) for rule, x in zip(cache_rule[0], (key, value)))
        return attend(module, query, key, value, *rest, **named)

    transformers.AttentionInterface.register("rounded", attention)
    transformers.AttentionMaskInterface.register("rounded", transformers.masking_utils.ALL_MASK_ATTENTION_FUNCTIONS["sdpa"])
    model = transformers.AutoModelForCausalLM.from_pretrained(args.folder, dtype=torch.float32, attn_implementation="rounded").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(args.folder)
    ids = torch.tensor([tokenizer(open(args.text, encoding="utf-8").read()).input_ids[:args.tokens]])
    products = []
    for layer in model.model.layers if args.of == "products" else []:
        for part in (layer.self_attn, layer.mlp):
            for name, linear in list(part.named_children()):
                if isinstance(linear, torch.nn.Linear):
                    products.append(Rounded(linear))
                    setattr(part, name, products[-1])

    @torch.no_grad()
    def log_probs():
        return model(ids, use_cache=False).logits[0, :-1].log_softmax(-1)

    base, targets = log_probs(), ids[0, 1:]

    def row(name, got):
        perplexity = math.exp(-got.gather(1, targets[:, None]).mean())
        kl = (base.exp() * (base - got)).sum(-1).mean() * 1000
        agree = (base.argmax(-1) == got.argmax(-1)).float().mean() * 100
        print(f"| {name} | {perplexity:.2f} | {kl:.1f} | {agree:.1f} % |", flush=True)

    print("| rule | perplexity | KL | same most likely token |\n|---|--:|--:|--:|")
    row("floats", base)
    for name, rule in (PRODUCTS if args.of == "products" else CACHES).items():
        for product in products:
            product.rule = rule
        if args.of == "cache":
            cache_rule[0] = rule
        row(name, log_probs())


if __name__ == "__main__":
    main()
