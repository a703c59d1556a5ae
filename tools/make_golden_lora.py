#!/usr/bin/env python3
"""Makes tests/golden/lora: random LoRA adapters for the tiny models of tests/golden, and the logits with each of them on.

    python3 -m venv v && v/bin/pip install -r tools/requirements-golden.txt
    v/bin/python tools/make_golden_lora.py              # all of them, or those named; "refused" makes lora/refused

Each folder lora/NAME is an adapter as peft saves it (adapter_config.json, adapter_model.safetensors); its
base_model_name_or_path names the folder of tests/golden that it belongs to. Some adapters have a NAME.gguf beside it, in
the form of llama.cpp's converter. NAME.safetensors holds, of the base with the adapter on, in F32 on the CPU:

    tokens [T]          I32, the prompt: that of the base's own golden file
    logits [T, V]       F32, of each position
    greedy [16]         I32, the tokens that follow, each the likeliest
    merged_logits       F32, [T, V] of the model that peft merged the adapter into ("llama" alone)

The logits come from the saved folder, read again by peft, and must be those of a base whose weights are W + s B A by hand.
Where peft takes a module for experts ("qwen3moe_experts" with a dense layer, "qwen3next" with a shared expert), that base
with more pairs gives them. Each pair of A and B must move the logits. lora/refused holds one small adapter for
each reason to refuse one: all are changes of lora/llama_minimal. Needs no network.
"""
import copy
import functools
import json
import re
import shutil
import sys
import warnings
from pathlib import Path
from unittest import mock

import gguf
import numpy as np
import peft
import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file

from make_golden import ROOT as BASES
from make_golden import Recorder

ROOT = BASES / "lora"
PREFIX = "base_model.model."
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
FFN = ["gate_proj", "up_proj", "down_proj"]
EXPERTS = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
PATTERNS = dict(rank_pattern={"q_proj": 2, r"layers\.0\..*\.down_proj": 6, "mlp.down_proj": 3},
                alpha_pattern={"model.layers.1.self_attn.q_proj": 1, "q_proj": 5, r"self_attn\.(k|v)_proj": 9})

# name -> (base, what LoraConfig gets, what else: `dtype` of the saved tensors, `saved` with the embeddings of the base,
# `config`: keys of the saved adapter_config.json, `gguf`: type of the GGUF's tensors, `rename` of the saved tensors, `zero`:
# B as peft begins with, `apart`: experts as modules, `by_hand`: modules whose pairs peft does not make)
CASES = {
    "llama": ("llama", dict(r=4, lora_alpha=8, target_modules=ATTENTION + FFN), dict(gguf="F32")),
    "llama_minimal": ("llama", dict(r=2, lora_alpha=4, target_modules=["q_proj"], layers_to_transform=[0]),
                      dict(gguf="F32")),
    "llama_zero": ("llama", dict(r=2, lora_alpha=4, target_modules=["q_proj", "down_proj"]), dict(zero=True)),
    "llama_patterns": ("llama", dict(r=4, lora_alpha=6, target_modules=ATTENTION + FFN, **PATTERNS), {}),
    "llama_rslora": ("llama", dict(r=8, lora_alpha=4, use_rslora=True, target_modules=["q_proj", "v_proj", "up_proj"],
                                   rank_pattern={"v_proj": 3}), {}),
    "llama_regex": ("llama", dict(r=3, lora_alpha=3, target_modules=r".*\.(self_attn\.(q|v)|mlp\.gate)_proj"), {}),
    "llama_all_linear": ("llama", dict(r=2, lora_alpha=16, target_modules="all-linear"),
                         dict(config=dict(target_modules="all-linear"))),
    "llama_embeddings": ("llama", dict(r=4, lora_alpha=8, target_modules=["embed_tokens", "lm_head", "k_proj"]),
                         dict(gguf="F32")),
    "llama_embeddings_saved": ("llama", dict(r=2, lora_alpha=2, target_modules=["embed_tokens", "lm_head"]),
                               dict(saved=True)),
    "llama_tied_embeddings": ("llama_tied", dict(r=3, lora_alpha=6, target_modules=["embed_tokens", "lm_head", "o_proj"]),
                              {}),
    "qwen3": ("qwen3", dict(r=4, lora_alpha=8, target_modules=ATTENTION + FFN, layers_to_transform=[1]),
              dict(dtype=torch.float16, gguf="F16")),
    "qwen2": ("qwen2", dict(r=4, lora_alpha=2, target_modules=ATTENTION + FFN), {}),
    "phi3": ("phi3", dict(r=5, lora_alpha=10, target_modules=["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]), {}),
    "gemma3": ("gemma3", dict(r=4, lora_alpha=8, target_modules=ATTENTION + FFN), dict(dtype=torch.bfloat16)),
    "gpt2": ("gpt2", dict(r=4, lora_alpha=8, target_modules=["c_attn", "c_proj", "c_fc"], fan_in_fan_out=True), {}),
    "qwen3moe": ("qwen3moe", dict(r=2, lora_alpha=4, target_modules=["q_proj", "v_proj"], target_parameters=EXPERTS), {}),
    "qwen3moe_experts": ("qwen3moe", dict(r=2, lora_alpha=4, target_modules=["o_proj"],
                                          target_parameters=EXPERTS + ["mlp.gate.weight"]),
                         dict(apart=True, by_hand=r"layers\.1\.mlp\.\w+_proj$", gguf="F32")),
    "qwen3next": ("qwen3next", dict(r=3, lora_alpha=6, target_modules=[
        "in_proj_qkvz", "in_proj_ba", "out_proj", "q_proj", "k_proj", "o_proj", "shared_expert_gate"]),
                  dict(by_hand=r"shared_expert\.\w+_proj$")),
    "qwen35_vl": ("qwen35_vl", dict(r=2, lora_alpha=4, target_modules=(
        r"model\.language_model\..*\.(in_proj_(qkv|z|a|b)|out_proj|q_proj|v_proj|o_proj|gate_proj|up_proj|down_proj)")), {}),
    "qwen35_vl_old_names": ("qwen35_vl", dict(r=2, lora_alpha=4, target_modules=r".*language_model.*\.(out|up)_proj"),
                            dict(rename=("model.language_model.", "language_model.model."))),
    "lfm2": ("lfm2", dict(r=3, lora_alpha=6, target_modules=[
        "in_proj", "out_proj", "q_proj", "k_proj", "v_proj", "w1", "w2", "w3"]), {}),
    "granitehybrid_dense": ("granitehybrid_dense", dict(r=3, lora_alpha=6, target_modules=[
        "in_proj", "q_proj", "v_proj", "input_linear", "output_linear"]), {}),
}
# Where the seed of the name gives tokens that are nearly equally likely, or logits that hang on the order of sums.
SEEDS = {"phi3": 1, "qwen3next": 2}


def open_base(name):
    return copy.deepcopy(read_base(name))


@functools.cache
def read_base(name):
    config = json.loads((BASES / name / "config.json").read_text())
    cls = getattr(transformers, config["architectures"][0])
    return cls.from_pretrained(BASES / name, dtype=torch.float32, attn_implementation="eager",
                               experts_implementation="eager").eval()


def logits_of(model, tokens):
    """[T, V]. The recorder of make_golden.py adds what transformers leaves out, and holds routers to a margin."""
    recorder = Recorder(model.get_base_model() if isinstance(model, PeftModel) else model)
    try:
        with torch.no_grad():
            return model(tokens[None, :], use_cache=False).logits[0]
    finally:
        recorder.close()


def greedy(model, tokens, n=16):
    for _ in range(n):
        logits = logits_of(model, tokens)[-1]
        first, second = logits.topk(2).values
        if first - second < 1e-3:
            sys.exit("make_golden_lora: two tokens are equally likely; change the seed")
        tokens = torch.cat([tokens, logits.argmax()[None]])
    return tokens[-n:].to(torch.int32)


def far(a, b):
    """Largest difference over the largest value of b."""
    return ((a - b).abs().max() / b.abs().max()).item()


def lora_layers(model):
    return [(name, m) for name, m in model.named_modules() if isinstance(m, peft.tuners.lora.LoraLayer)]


def randomise(model, seed, dtype):
    """Updates smaller than the weights, of a size that hangs on no scale, in numbers that `dtype` has."""
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for _, m in sorted(lora_layers(model)):
            r, s = m.r["default"], m.scaling["default"]
            if m.lora_embedding_A:
                a, b = m.lora_embedding_A["default"], m.lora_embedding_B["default"]
            else:
                a, b = m.lora_A["default"].weight, m.lora_B["default"].weight
            width = a.shape[1] if a.shape[1] < 64 or not m.lora_embedding_A else 1  # a row of an embedding is one number
            a.copy_((torch.randn(a.shape, generator=g) / width ** 0.5).to(dtype))
            b.copy_((0.25 * torch.randn(b.shape, generator=g) / (s * r ** 0.5)).to(dtype))


def pattern_of(patterns, module, default):
    """The first pattern that the end of a module's path matches, from a dot on."""
    return next((v for k, v in patterns.items() if re.fullmatch(rf"(.*\.)?({k})", module)), default)


def scale_of(config, module):
    r = pattern_of(config["rank_pattern"], module, config["r"])
    alpha = pattern_of(config["alpha_pattern"], module, config["lora_alpha"])
    return alpha / (r ** 0.5 if config["use_rslora"] else r)


def pairs_of(folder):
    """module -> [A, B] in F32, of an adapter's folder."""
    pairs = {}
    for name, x in load_file(folder / "adapter_model.safetensors").items():
        if found := re.fullmatch(r"base_model\.model\.(.*)\.lora_(?:embedding_)?([AB])(?:\.weight)?", name):
            pairs.setdefault(found[1], [None, None])["AB".index(found[2])] = x.to(torch.float32)
    return pairs


def by_hand(base, config, pairs, rename):
    """The base with W + s B A for each pair."""
    model = open_base(base)
    if "lm_head" in pairs or "model.embed_tokens" in pairs:
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.clone())  # of its own, where it is tied
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        for module, (a, b) in pairs.items():
            if rename:
                module = module.replace(*reversed(rename))
            s = scale_of(config, module)
            stacked = re.fullmatch(r"(.*\.experts)(\.base_layer)?", module)
            apart = re.fullmatch(r"(.*\.experts)\.(\d+)\.(gate|up|down)_proj", module)
            if stacked:  # the inner wrapper is that of the first parameter
                w = parameters[stacked[1] + (".gate_up_proj" if stacked[2] else ".down_proj")]
                n = w.shape[0]
                # Row e r + j of A, column j E + e of B: of expert e.
                for e in range(n):
                    w[e] += s * b[:, e::n] @ a.view(n, -1, a.shape[1])[e]
            elif apart:
                w = parameters[apart[1] + (".down_proj" if apart[3] == "down" else ".gate_up_proj")][int(apart[2])]
                if apart[3] != "down":
                    w = w.chunk(2)["gate up".split().index(apart[3])]
                w += s * b @ a
            elif module.endswith("embed_tokens"):
                parameters[module + ".weight"] += s * (b @ a).T
            else:
                delta = s * b @ a
                parameters[module + ".weight"] += delta.T if config["fan_in_fan_out"] else delta
    return model


def tidy(folder, base, changes):
    """Removes the base's path and the order of sets, which differ by run."""
    (folder / "README.md").unlink(missing_ok=True)
    path = folder / "adapter_config.json"
    config = json.loads(path.read_text())
    for key, value in config.items():
        if key in ("target_modules", "target_parameters") and isinstance(value, list):
            config[key] = sorted(value)
    path.write_text(json.dumps({**config, "base_model_name_or_path": base, **changes}, indent=2) + "\n")


def apart(folder, base, n_experts):
    """The adapter in the names of transformers 4, which other programs write and read: an expert's gate, up and down are
    modules."""
    pairs, out = pairs_of(folder), {}
    for module, (a, b) in pairs.items():
        found = re.fullmatch(r"(.*\.experts)(\.base_layer)?", module)
        if not found:
            out[module] = (a, b)
            continue
        for e in range(n_experts):
            of_a, of_b = a.view(n_experts, -1, a.shape[1])[e], b[:, e::n_experts]
            if found[2]:
                # Gate and up have matrices of their own: A differs too.
                out[f"{found[1]}.{e}.gate_proj"] = of_a, of_b.chunk(2)[0]
                out[f"{found[1]}.{e}.up_proj"] = of_a.flip(1), of_b.chunk(2)[1]
            else:
                out[f"{found[1]}.{e}.down_proj"] = of_a, of_b
    save_file({f"{PREFIX}{m}.lora_{x}.weight": t.contiguous() for m, ab in out.items() for x, t in zip("AB", ab)},
              folder / "adapter_model.safetensors", metadata={"format": "pt"})
    tidy(folder, base, dict(target_parameters=None, target_modules=["down_proj", "gate", "gate_proj", "o_proj", "up_proj"]))


def write_gguf(path, base, pairs, alpha, dtype, change=None):
    """The adapter as llama.cpp's convert_lora_to_gguf.py has it: {K, r} and {r, N} of each base tensor, llama's queries
    and keys as neighbours, experts as one tensor, an embedding's A transposed."""
    config = json.loads((BASES / base / "config.json").read_text())
    architecture = config["model_type"].replace("_", "")
    # llama's names too: those of qwen3moe have no dense layer.
    maps = [gguf.get_tensor_name_map(kind, config["num_hidden_layers"]) for kind in (
        {v: k for k, v in gguf.MODEL_ARCH_NAMES.items()}[architecture], gguf.MODEL_ARCH.LLAMA)]

    def name_of(module):
        return next(name for m in maps if (name := m.get_name(module))) + ".weight"

    tensors, experts = {}, {}
    for module, (a, b) in pairs.items():
        if found := re.fullmatch(r"(.*\.experts)\.(\d+)\.(.*)", module):
            experts.setdefault(f"{found[1]}.{found[3]}", {})[int(found[2])] = a, b
            continue
        if base == "llama" and module.endswith(("q_proj", "k_proj")):
            heads = config["num_attention_heads" if module.endswith("q_proj") else "num_key_value_heads"]
            b = b.view(heads, 2, -1, b.shape[1]).transpose(1, 2).reshape(b.shape)
        tensors[module] = a.T if module.endswith("embed_tokens") else a, b
    for module, of in experts.items():
        tensors[module] = [torch.stack([of[e][i] for e in range(len(of))]) for i in (0, 1)]
    keys = {"general.type": "adapter", "adapter.type": "lora", "adapter.lora.alpha": float(alpha)}
    out = {f"{name_of(m)}.lora_{x}": t for m, ab in tensors.items() for x, t in zip("ab", ab)}
    architecture = (change(keys, out) if change else None) or architecture
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in keys.items():
        writer.add_float32(key, value) if isinstance(value, float) else writer.add_string(key, value)
    for name, x in out.items():
        writer.add_tensor(name, np.ascontiguousarray(x.to(torch.float32).numpy().astype(
            {"F32": np.float32, "F16": np.float16}[dtype])))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_by_hand(folder, base, pattern):
    """Pairs for the modules whose path matches, which peft takes for experts of a layer."""
    path = folder / "adapter_model.safetensors"
    tensors, g = load_file(path), torch.Generator().manual_seed(len(pattern))
    r = json.loads((folder / "adapter_config.json").read_text())["r"]
    for module, m in open_base(base).named_modules():
        if isinstance(m, torch.nn.Linear) and re.search(pattern, module):
            outputs, inputs = m.weight.shape
            tensors[f"{PREFIX}{module}.lora_A.weight"] = torch.randn((r, inputs), generator=g) / inputs ** 0.5
            tensors[f"{PREFIX}{module}.lora_B.weight"] = 0.25 * torch.randn((outputs, r), generator=g)
    save_file(tensors, path, metadata={"format": "pt"})


def check_each_pair(name, logits_with, pairs, expected):
    """Each pair must matter, but for those of experts that the prompt does not use."""
    n_of_experts = n_still = 0
    for module in pairs:
        moved = far(logits_with({m: ab for m, ab in pairs.items() if m != module}), expected)
        is_expert = bool(re.search(r"\.experts\.\d", module))
        n_of_experts += is_expert
        n_still += is_expert and moved == 0
        if moved < (1e-4 if is_expert else 2e-3) and not (is_expert and moved == 0):
            sys.exit(f"make_golden_lora: {name}: {module} moves the logits by {moved} alone")
    if 4 * n_still > n_of_experts:
        sys.exit(f"make_golden_lora: {name}: {n_still} of {n_of_experts} products of experts are unused")


def make(name):
    base, settings, other = CASES[name]
    folder, dtype, rename = ROOT / name, other.get("dtype", torch.float32), other.get("rename")
    golden = load_file(BASES / f"{base}.safetensors")
    tokens = golden["tokens"].to(torch.int64)
    plain = logits_of(open_base(base), tokens)
    if far(plain, golden["logits"]) > 3e-5:
        sys.exit(f"make_golden_lora: {base} is not the model of its golden file")

    model = get_peft_model(open_base(base), LoraConfig(task_type="CAUSAL_LM", **settings))
    if not other.get("zero"):
        randomise(model, SEEDS.get(name, sum(name.encode())), dtype)
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder, save_embedding_layers=other.get("saved", False))
    tidy(folder, base, other.get("config", {}))
    path = folder / "adapter_model.safetensors"
    if dtype != torch.float32:
        save_file({k: v.to(dtype) for k, v in load_file(path).items()}, path, metadata={"format": "pt"})
    if other.get("apart"):
        apart(folder, base, model.config.num_experts)

    model = PeftModel.from_pretrained(open_base(base), folder).eval()
    logits = logits_of(model, tokens)
    if rename:
        save_file({k.replace(*rename): v for k, v in load_file(path).items()}, path, metadata={"format": "pt"})
    config = json.loads((folder / "adapter_config.json").read_text())

    def logits_with(pairs):
        return logits_of(by_hand(base, config, pairs, rename), tokens)

    hand = far(logits_with(pairs_of(folder)), logits)
    if hand > 3e-5:
        sys.exit(f"make_golden_lora: {name}: peft and W + s B A differ by {hand}")
    if other.get("by_hand"):
        add_by_hand(folder, base, other["by_hand"])
        model = by_hand(base, config, pairs_of(folder), rename)
        logits = logits_of(model, tokens)
    pairs, moved = pairs_of(folder), far(logits, plain)
    if moved != 0 if other.get("zero") else moved < 1e-2:
        sys.exit(f"make_golden_lora: {name}: the adapter moves the logits by {moved}")
    out = {"tokens": tokens.to(torch.int32), "logits": logits.clone(), "greedy": greedy(model, tokens)}
    if not other.get("zero"):
        with mock.patch("make_golden.check_margin", return_value=None):
            check_each_pair(name, logits_with, pairs, logits)
    if other.get("gguf"):
        write_gguf(ROOT / f"{name}.gguf", base, pairs, settings["lora_alpha"], other["gguf"])
    if name == "llama":
        out["merged_logits"] = logits_of(model.merge_and_unload(), tokens).clone()
    # One key: safetensors writes several in any order.
    save_file(out, ROOT / f"{name}.safetensors", metadata={
        "made_by": f"torch {torch.__version__}, transformers {transformers.__version__}, peft {peft.__version__}"})
    print(f"lora/{name}: {len(pairs)} products, moves the logits by {moved:.2f} of the largest, "
          f"{hand:.1e} from W + s B A; {sum(f.stat().st_size for f in folder.iterdir())} bytes", flush=True)


Q = PREFIX + "model.layers.0.self_attn.q_proj."


def by_peft(**settings):
    """As peft saves what LoraConfig's `settings` add."""
    def change(folder, config, tensors):
        model = get_peft_model(open_base("llama"), LoraConfig(
            task_type="CAUSAL_LM", **{**CASES["llama_minimal"][1], **settings}))
        model.save_pretrained(folder, save_embedding_layers=False)
        saved = json.loads((folder / "adapter_config.json").read_text())
        config.update({k: v for k, v in saved.items() if k != "base_model_name_or_path"})
        tensors.update({k: v for k, v in load_file(folder / "adapter_model.safetensors").items() if k not in tensors})
    return change


def keys(**changes):
    return lambda folder, config, tensors: config.update(changes)


def shapes(a=(2, 32), b=(32, 2), dtype=torch.float32, at=Q):
    """A pair of other shapes, type or place in the stead of the adapter's; None: no such tensor."""
    def change(folder, config, tensors):
        tensors.clear()
        for x, shape in zip("AB", (a, b)):
            if shape is not None:
                tensors[f"{at}lora_{x}.weight"] = torch.ones(shape, dtype=dtype)
    return change


def resized(folder, config, tensors):
    """As peft saves an adapter of a model that got two tokens more."""
    embedding = PREFIX + "model.embed_tokens."
    config["target_modules"] = ["embed_tokens"]
    tensors.clear()
    tensors.update({embedding + "base_layer.weight": torch.ones(82, 32), embedding + "lora_embedding_A": torch.ones(2, 82),
                    embedding + "lora_embedding_B": torch.ones(32, 2)})


def without(file):
    return lambda folder, config, tensors: file


def pickled(folder, config, tensors):
    torch.save(tensors, folder / "adapter_model.bin")
    return "adapter_model.safetensors"


def cut(folder, config, tensors):
    return lambda: (folder / "adapter_model.safetensors").write_bytes(
        (folder / "adapter_model.safetensors").read_bytes()[:-100])


def not_json(folder, config, tensors):
    return lambda: (folder / "adapter_config.json").write_text('{"peft_type": "LORA", ')


# Name in lora/refused -> what it changes of llama_minimal: its folder's path, adapter_config.json, tensors. What a change
# returns: the name of a file that the folder lacks, or what to do with the written folder.
REFUSED = {
    "dora": by_peft(use_dora=True),
    "lora_bias": by_peft(lora_bias=True),
    "modules_to_save": by_peft(modules_to_save=["lm_head"]),
    "trainable_tokens": by_peft(trainable_token_indices=[3, 5]),
    "alora": keys(alora_invocation_tokens=[5, 7]),
    "not_lora": keys(peft_type="IA3"),
    "rank_0": keys(r=0),
    "rank_negative": keys(r=-2),
    "rank_0_of_tensors": shapes(a=(0, 32), b=(32, 0)),
    "rank_not_of_tensors": keys(r=3),
    "rank_of_a_not_of_b": shapes(b=(32, 3)),
    "alpha_nan": keys(lora_alpha=float("nan")),
    "alpha_nan_as_text": keys(lora_alpha="nan"),
    "alpha_infinite": keys(lora_alpha=float("inf")),
    "alpha_beyond_f32": keys(lora_alpha=10 ** 60),
    "unknown_module": shapes(at=PREFIX + "model.layers.0.self_attn.w_proj."),
    "unknown_layer": shapes(at=PREFIX + "model.layers.2.self_attn.q_proj."),
    "wrong_inputs": shapes(a=(2, 24)),
    "wrong_outputs": shapes(b=(16, 2)),
    "one_dimension": shapes(a=(64,)),
    "a_missing": shapes(a=None),
    "b_missing": shapes(b=None),
    "no_tensors": shapes(a=None, b=None),
    "integers": shapes(dtype=torch.int32),
    "vocabulary_resized": resized,
    "weights_cut": cut,
    "weights_missing": without("adapter_model.safetensors"),
    "weights_pickled": pickled,
    "config_missing": without("adapter_config.json"),
    "config_not_json": not_json,
}


def gguf_keys(**changes):
    """Other values of the keys, with _ for . in their names; None: no such key."""
    def change(keys, tensors):
        for key, value in changes.items():
            key = key.replace("_", ".")
            if value is None:
                del keys[key]
            else:
                keys[key] = value
    return change


def gguf_rename(old, new):
    def change(keys, tensors):
        for name in [n for n in tensors if old in n]:
            tensors[name.replace(old, new)] = tensors.pop(name)
    return change


def gguf_shape(tensor, *shape):
    return gguf_tensors({f"blk.0.attn_q.weight.lora_{tensor}": torch.ones(shape)})


def gguf_tensors(new):
    return lambda keys, tensors: tensors.update(new)


def gguf_without(x):
    def change(keys, tensors):
        del tensors[f"blk.0.attn_q.weight.lora_{x}"]
    return change


# Name of lora/refused/NAME.gguf -> what it changes of llama_minimal.gguf: keys and tensors; returns the architecture.
REFUSED_GGUF = {
    "architecture": lambda keys, tensors: "qwen3",
    "type_model": gguf_keys(general_type="model"),
    "type_missing": gguf_keys(general_type=None),
    "adapter_type": gguf_keys(adapter_type="control"),
    "adapter_type_missing": gguf_keys(adapter_type=None),
    "alpha_missing": gguf_keys(adapter_lora_alpha=None),
    "alpha_nan": gguf_keys(adapter_lora_alpha=float("nan")),
    "alpha_infinite": gguf_keys(adapter_lora_alpha=float("inf")),
    "alpha_text": gguf_keys(adapter_lora_alpha="4"),
    "a_missing": gguf_without("a"),
    "b_missing": gguf_without("b"),
    "no_tensors": lambda keys, tensors: tensors.clear(),
    "unknown_module": gguf_rename("attn_q", "attn_w"),
    "unknown_layer": gguf_rename("blk.0.", "blk.2."),
    "norm": gguf_tensors({"blk.0.attn_norm.weight": torch.ones(32)}),
    "wrong_inputs": gguf_shape("a", 2, 24),
    "wrong_outputs": gguf_shape("b", 16, 2),
    "rank_of_a_not_of_b": gguf_shape("a", 3, 32),
}


def make_refused():
    source, root = ROOT / "llama_minimal", ROOT / "refused"
    shutil.rmtree(root, ignore_errors=True)
    for name, change in REFUSED.items():
        folder = root / name
        folder.mkdir(parents=True)
        config = json.loads((source / "adapter_config.json").read_text())
        tensors = load_file(source / "adapter_model.safetensors")
        then = change(folder, config, tensors)
        save_file({k: v.contiguous() for k, v in tensors.items()}, folder / "adapter_model.safetensors", metadata={"format": "pt"})
        (folder / "adapter_config.json").write_text(json.dumps(config))
        tidy(folder, "llama", {})
        if callable(then):
            then()
        elif then:
            (folder / then).unlink()
    for name, change in REFUSED_GGUF.items():
        write_gguf(root / f"{name}.gguf", "llama", pairs_of(source), CASES["llama_minimal"][1]["lora_alpha"], "F32", change)
    files = [f for f in root.rglob("*") if f.is_file()]
    print(f"lora/refused: {len(REFUSED)} folders, {len(REFUSED_GGUF)} GGUF files, {sum(f.stat().st_size for f in files)} bytes")


def main():
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    names = sys.argv[1:] or [*CASES, "refused"]
    unknown = [n for n in names if n not in CASES and n != "refused"]
    if unknown:
        sys.exit(f"make_golden_lora: no adapter named {', '.join(unknown)}; there are {', '.join(CASES)}, refused")
    for name in names:
        make_refused() if name == "refused" else make(name)


if __name__ == "__main__":
    main()
