#!/usr/bin/env python3
"""Do we read what the field's converter writes? Each tiny model of tests/golden, converted by llama.cpp's own scripts.

    pip install -r tools/requirements-golden.txt; pip download --no-binary :all: --no-deps llama-cpp-python; tar xzf ...
    ninja -C build log_probs && python3 bench/compare_converted.py .../vendor/llama.cpp [NAME ...]

A golden's folder becomes an F32 GGUF by convert_hf_to_gguf's classes, with a vocabulary of numbers in the place of a
tokenizer. Our reference kernels compute its log-probabilities, which are compared with those of the golden, made by
transformers from the folder. Prints a line for each model; exit status 1 where one is more than 1e-4 of the largest away for no reason in KNOWN.
"""
import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from compare_kl import log_softmax

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "golden"
# What a golden has and the converter or GGUF cannot express.
KNOWN = {
    "eagle3_fc_norm": "a draft head", "mtp": "not known to the converter",
    "gemma3": "its converter reads a tokenizer", "mistral": "GGUF's llama has no windows",
    "qwen3moe": "GGUF's qwen3moe has no dense layers",
    "ernie4_5_moe": "its shared width is taken from the number of key/value heads",
    "lfm2moe": "GGUF has no scale of its experts",
    "hunyuan_moe": "its converter needs a key that transformers does not write",
    "gemma4": "its converter reads a tokenizer", "gemma4_moe": "its converter reads a tokenizer",
    "ministral3": "its converter reads a tokenizer",
    "gemma2": "GGUF has no scale of queries", "olmo3": "GGUF has no attention factor of yarn",
    "granitehybrid_dense": "its converter leaves out RoPE beside state spaces",
    "nemotron": "its converter takes a head to be the width by the number of heads",
    "cohere2": "its converter needs a key that transformers does not write",
    "hunyuan_dense": "its converter refuses other factors than the published ones",
    "mpt": "its converter knows the original's class alone",
    "mistral4": "its converter knows it beside a vision tower alone",
}


def numbers_as_vocabulary(model):
    n = model.find_hparam(["vocab_size"])
    model.gguf_writer.add_tokenizer_model("gpt2")
    model.gguf_writer.add_tokenizer_pre("gpt-2")
    model.gguf_writer.add_token_list([f"tok_{i}" for i in range(n)])
    model.gguf_writer.add_token_types([1] * n)


def as_published(folder):
    """The configuration with the words of published folders, for converters that do not know those that transformers writes."""
    hparams = json.loads((folder / "config.json").read_text())
    if hparams["model_type"] == "granitemoehybrid":
        hparams["layer_types"] = [t.replace("linear_attention", "mamba").replace("full_", "") for t in hparams["layer_types"]]
        return {"hparams": hparams}
    if hparams["model_type"] == "nemotron_h" and "moe" not in hparams["layers_block_type"]:
        letters = {"linear_attention": "M", "full_attention": "*", "mlp": "-"}
        hparams["hybrid_override_pattern"] = "".join(letters[t] for t in hparams.pop("layers_block_type"))
        hparams["num_hidden_layers"] = len(hparams["hybrid_override_pattern"])
        return {"hparams": {key: value for key, value in hparams.items() if "expert" not in key}}
    return {}


def convert(llama_cpp, folder, out, **options):
    sys.path[1:1] = [str(llama_cpp), str(llama_cpp / "gguf-py")]
    import gguf
    from conversion import ModelBase, ModelType, get_model_architecture, get_model_class
    import torch
    hparams = ModelBase.load_hparams(folder, False)
    cls = get_model_class(get_model_architecture(hparams, ModelType.TEXT))
    cls = type(cls.__name__, (cls,), {"set_vocab": numbers_as_vocabulary, "model_arch": cls.model_arch, "no_mtp": True})
    with torch.inference_mode():
        cls(folder, gguf.LlamaFileType.ALL_F32, out, **as_published(folder), **options).write()


def distance(program, gguf_file, golden, work):
    """The largest difference of logits from the golden's, against the largest logit."""
    tokens, out = work / "tokens.i32", work / "out.f32"
    golden["tokens"].astype(np.int32).tofile(tokens)
    line = [program, gguf_file, tokens, out, "--kernels", "reference", "--kv-dtype", "f32"]
    done = subprocess.run([str(x) for x in line], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        return done.stderr.strip()
    expected = golden["logits"]
    mine = np.fromfile(out, dtype=np.float32).reshape(len(expected), -1)
    return float(np.abs(log_softmax(mine) - log_softmax(expected)).max() / np.abs(expected).max())


def compare(args, name):
    folder = GOLDEN / name
    files = sorted(f for f in GOLDEN.glob(f"{name}*.safetensors")
                   if f.stem == name or f.stem.removeprefix(name) in ("_short", "_long"))
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        gguf_file = work / "model.gguf"
        try:
            convert(args.llama_cpp, folder, gguf_file)
        except Exception as e:  # of any converter
            return f"not converted: {type(e).__name__}: {e}"
        return distance(args.program, gguf_file, load_file(files[0]), work)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("llama_cpp", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--program", type=Path, default=ROOT / "build" / "log_probs")
    args = parser.parse_args()
    names = args.names or sorted(f.parent.name for f in GOLDEN.glob("*/config.json")
                                 if "ForCausalLM" in str(json.loads(f.read_text()).get("architectures")))
    far = 0
    for name in names:
        result = compare(args, name)
        ok = isinstance(result, float) and result <= 1e-4
        far += not ok and name not in KNOWN
        mark = "ok" if ok else "known" if name in KNOWN else "FAR"
        note = KNOWN.get(name, "") if mark == "known" else result if isinstance(result, str) else format(result, ".1e")
        print(f"{name:20} {mark:6} {note}", flush=True)
    sys.exit(1 if far else 0)


if __name__ == "__main__":
    main()
