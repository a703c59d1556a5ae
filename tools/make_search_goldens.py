#!/usr/bin/env python3
"""Makes tests/golden/search_*.json: what transformers finds by beam, diverse beam and contrastive search on
tests/golden/llama.

    v/bin/pip install -r tools/requirements-golden.txt
    v/bin/python tools/make_search_goldens.py beam > tests/golden/search_beam.json
    w/bin/pip install transformers==4.49.0 torch safetensors numpy
    w/bin/python tools/make_search_goldens.py old > tests/golden/search_old.json

Groups of beams and contrastive search left transformers after 4.49; beam search was rewritten after it.
"""
import json
import random
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "golden" / "llama"


def main() -> None:
    model = AutoModelForCausalLM.from_pretrained(FOLDER, torch_dtype=torch.float32)
    model.eval()
    vocab = model.config.vocab_size
    rng = random.Random(7)
    cases = []
    for i in range(60):
        prompt = [rng.randrange(3, vocab) for _ in range(rng.randrange(2, 9))]
        ends = rng.sample(range(vocab), rng.choice([1, 1, 2, 6]))
        kind = "beam" if sys.argv[1] == "beam" else ["group", "contrastive"][i % 2]
        if kind == "group":
            del ends[1:]  # 4.49 writes the first of them, whichever a text ended with
        case = {"prompt": prompt, "ends": ends, "max_tokens": rng.randrange(3, 17)}
        if kind == "contrastive":
            case |= {"top_k": rng.randrange(2, 7), "penalty_alpha": round(rng.uniform(0.1, 0.9), 2)}
        else:
            case |= {"num_beams": rng.choice([2, 3, 4, 5, 8]), "length_penalty": rng.choice([0.0, 0.5, 1.0, 2.0, -1.0]),
                     "early_stopping": rng.choice([True, False, "never"])}
            if kind == "group":
                groups = rng.choice([2, 3])
                case |= {"num_beams": groups * rng.choice([1, 2, 3]), "num_beam_groups": groups,
                         "diversity_penalty": rng.choice([0.25, 0.5, 1.0])}
        options = {k: v for k, v in case.items() if k not in ("prompt", "ends", "max_tokens")}
        if kind != "contrastive":
            case["n"] = options["num_return_sequences"] = max(1, case["num_beams"] // 2)
        ids = torch.tensor([prompt])
        with torch.no_grad():
            out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=case["max_tokens"],
                                 eos_token_id=ends, pad_token_id=0, do_sample=False, return_dict_in_generate=True,
                                 output_scores=True, **options)
        results = []
        for k, sequence in enumerate(out.sequences.tolist()):
            tokens = sequence[len(prompt):]
            for at, token in enumerate(tokens):
                if token in ends:
                    tokens = tokens[:at + 1]
                    break
            result = {"tokens": tokens}
            if kind != "contrastive":
                result["score"] = round(out.sequences_scores[k].item(), 6)
            results.append(result)
        cases.append(case | {"results": results})
    print("[" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "]")
    print(f"{len(cases)} cases", file=sys.stderr)


if __name__ == "__main__":
    main()
