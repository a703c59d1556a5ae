#!/usr/bin/env python3
"""Makes tests/golden/medusa_original.safetensors and eagle1_original.safetensors: the outputs of the papers' own programs for
the heads in tests/golden/medusa and eagle1 (tools/make_golden_heads.py, tools/make_golden_eagle.py), as far as PyPI has them.

    apt-get install python3-torch        # 1.13 of Debian 12, without CUDA
    /usr/bin/python3 -m venv --system-site-packages originals
    originals/bin/pip install transformers==4.36.2 safetensors "numpy<2"
    originals/bin/pip install --no-deps medusa-llm==0.1 eagle-llm==1.2.1
    originals/bin/python tools/run_originals.py

The heads' tensors are loaded by the programs' own modules, strictly: by name and shape. Hydra's program is not on PyPI, and
those with EAGLE-3 and MTP need a newer torch: these are only compared with the papers' formulas.
"""
import json
from pathlib import Path
from types import SimpleNamespace

import eagle.model.cnets as eagle_program
import medusa.model.medusa_model as medusa_program
import torch
from eagle.model.configs import EConfig
from safetensors.torch import load_file, save_file

ROOT = Path(__file__).resolve().parent.parent / "tests" / "golden"


def config_of(name):
    return json.loads((ROOT / name / "config.json").read_text(encoding="utf-8"))


def target_of(name):
    return load_file(ROOT / name / "model.safetensors")


def write(name, formulas, outputs):
    """Writes the outputs beside those of the formulas, which must be the same."""
    for key, x in outputs.items():
        far = (x.double() - formulas[key].double()).abs().max().item()
        assert far <= 1e-4 * formulas[key].abs().max().item(), (name, key, far)
        print(f"{name}: {key} {list(x.shape)}, at most {far:.1e} from the formulas")
    save_file({k: v.contiguous() for k, v in (formulas | outputs).items()}, ROOT / f"{name}_original.safetensors")


@torch.no_grad()
def medusa():
    formulas, heads = load_file(ROOT / "medusa.safetensors"), load_file(ROOT / "medusa" / "model.safetensors")
    embedding = target_of("smollm3")["model.embed_tokens.weight"]
    V, C = embedding.shape
    base = SimpleNamespace(config=None, lm_head=torch.nn.Linear(C, V, bias=False), dtype=torch.float32, device="cpu")
    medusa_program.AutoTokenizer = SimpleNamespace(from_pretrained=lambda path: None)  # which the heads do not need
    n_heads = formulas["logits"].shape[0]
    model = medusa_program.MedusaModel(base, n_heads, config_of("medusa")["medusa_num_layers"])
    model.medusa_head.load_state_dict(heads, strict=True)
    write("medusa", formulas, {"logits": torch.stack([head(formulas["hidden"]) for head in model.medusa_head])})


@torch.no_grad()
def eagle1():
    formulas, weights = load_file(ROOT / "eagle1.safetensors"), load_file(ROOT / "eagle1" / "model.safetensors")
    embedding = target_of("smollm3")["model.embed_tokens.weight"]
    config = EConfig(**config_of("eagle1") | {"pad_token_id": 0})
    model = eagle_program.Model(config, bias=True).eval()
    model.load_state_dict(weights | {"embed_tokens.weight": embedding}, strict=False)
    missing = set(model.state_dict()) - set(weights) - {"embed_tokens.weight"}
    assert not [name for name in missing if "rotary_emb" not in name], missing
    tokens = formulas["tokens"].long()
    states, cache = model(formulas["features"][None], tokens[None, 1:], use_cache=True)
    states, drafts, further = states[0], [], []
    state = states[-1:]
    for _ in range(len(formulas["drafts"])):
        drafts.append((state @ embedding.T).argmax(-1))
        state, cache = model(state[None], drafts[-1][None], past_key_values=cache, use_cache=True)
        state = state[0]
        further.append(state)
    assert torch.cat(drafts).tolist() == formulas["drafts"].tolist(), drafts
    further = torch.cat(further)
    write("eagle1", formulas, {"states": states, "logits": states @ embedding.T, "draft_states": further,
                               "draft_logits": further @ embedding.T})


def main():
    torch.manual_seed(0)
    medusa()
    eagle1()


main()
