#!/usr/bin/env python3
"""Makes tests/golden/*_vision: tiny random models with a vision tower, and what transformers makes of two pictures.

    python3 -m venv v && v/bin/pip install -r tools/requirements-golden.txt
    v/bin/python tools/make_golden_vision.py

Each folder is a model as transformers saves it. Beside it NAME.safetensors holds, in F32 on the CPU: `tokens` of a prompt
with two pictures, `starts` (where each picture's cells begin), for picture i `patches.i` [n, values], `grid.i` (rows and
columns of patches) and `rows.i` [cells, C and C more for each layer that adds some], `positions` [T, 3], the prompt's
`logits`, and `greedy`, the 8 tokens that follow. Needs no network: weights and pictures are random.

tests/golden/NAME_chat are whole models with a tokenizer and a chat template of bytes, beside the pictures one.png and
two.png; chat.json holds what their processors and models make of a message with both: `prompt` (ids) and `answer` (24 greedy
ids).
"""
import json
import sys
from pathlib import Path

import numpy
import torch
from PIL import Image
from safetensors.torch import save_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import (Gemma3Config, Gemma3ForConditionalGeneration, Gemma4Config, Gemma4ImageProcessor,
                          Gemma4ForConditionalGeneration, Qwen3_5Config, Qwen3_5ForConditionalGeneration,
                          PreTrainedTokenizerFast, Qwen2VLImageProcessor, Qwen3VLConfig,
                          Qwen3VLForConditionalGeneration)

ROOT = Path(__file__).resolve().parent.parent / "tests" / "golden"
V, CELL, BEGIN, END = 80, 70, 71, 72
BASE = dict(vocab_size=V, hidden_size=32, intermediate_size=64, num_attention_heads=4, num_key_value_heads=2,
            max_position_embeddings=256, rms_norm_eps=1e-6, bos_token_id=1, eos_token_id=2, pad_token_id=0)
TOWER = dict(depth=3, hidden_size=32, intermediate_size=48, num_heads=2, patch_size=4, spatial_merge_size=2,
             temporal_patch_size=2, out_hidden_size=32, num_position_embeddings=49)
IDS = dict(image_token_id=CELL, video_token_id=73, vision_start_token_id=BEGIN, vision_end_token_id=END)
ROPE = dict(rope_type="default", rope_theta=10000.0, mrope_interleaved=True)
DELTA_NET = dict(num_hidden_layers=4, head_dim=32, linear_num_key_heads=2, linear_num_value_heads=6,
                 linear_key_head_dim=8, linear_value_head_dim=12,
                 layer_types=["linear_attention", "full_attention", "linear_attention", "full_attention"])
QWEN_GRIDS = [(6, 10), (4, 4)]


def qwen3vl():
    config = Qwen3VLConfig(
        text_config=dict(BASE, num_hidden_layers=4, head_dim=16, rope_parameters=dict(ROPE, mrope_section=[4, 2, 2])),
        vision_config=dict(TOWER, deepstack_visual_indexes=[0, 1]), **IDS)
    return Qwen3VLForConditionalGeneration(config)


def qwen35():
    config = Qwen3_5Config(
        text_config=dict(BASE, **DELTA_NET, rope_parameters=dict(ROPE, mrope_section=[2, 1, 1], partial_rotary_factor=0.25)),
        vision_config=TOWER, **IDS)
    return Qwen3_5ForConditionalGeneration(config)


def gemma3():
    config = Gemma3Config(
        text_config=dict(BASE, num_hidden_layers=4, head_dim=16, query_pre_attn_scalar=16, sliding_window=8,
                         layer_types=["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"],
                         rope_parameters={"full_attention": dict(rope_type="linear", rope_theta=1e6, factor=8.0),
                                          "sliding_attention": dict(rope_type="default", rope_theta=10000.0)}),
        vision_config=dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, patch_size=4,
                           image_size=48), mm_tokens_per_image=9, image_token_id=CELL, image_token_index=CELL,
        boi_token_index=BEGIN, eoi_token_index=END)
    return Gemma3ForConditionalGeneration(config)


GEMMA4_GRIDS = [(9, 12), (3, 6)]
GEMMA4_IDS = dict(image_token_id=CELL, video_token_id=73, audio_token_id=74, boi_token_id=BEGIN, eoi_token_id=END)


def gemma4(text, vision, **ids):
    types = ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention", "full_attention"]
    rope = {"full_attention": dict(rope_type="proportional", rope_theta=1e6, partial_rotary_factor=0.25),
            "sliding_attention": dict(rope_type="default", rope_theta=10000.0)}
    config = Gemma4Config(
        text_config=BASE | dict(num_hidden_layers=5, head_dim=16, global_head_dim=32, sliding_window=8, layer_types=types,
                                final_logit_softcapping=3.0, vocab_size_per_layer_input=V,
                                hidden_activation="gelu_pytorch_tanh", rope_parameters=rope) | text,
        vision_config=dict(hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=2,
                           num_key_value_heads=2, head_dim=16, patch_size=4, pooling_kernel_size=3,
                           position_embedding_size=16) | vision,
        audio_config=None, **GEMMA4_IDS | ids)
    return Gemma4ForConditionalGeneration(config)


def gemma4_small():
    return gemma4(dict(hidden_size_per_layer_input=16, num_kv_shared_layers=2), dict(use_clipped_linears=True))


def gemma4_large():
    return gemma4(dict(hidden_size_per_layer_input=0, use_bidirectional_attention="vision"), dict(standardize=True))


def randomise(model, seed):
    g = torch.Generator().manual_seed(seed)
    is_gemma4 = model.config.model_type == "gemma4"
    zero_centred = model.config.model_type in ("gemma3", "qwen3_5")
    with torch.no_grad():
        for name, p in sorted(model.named_parameters()):
            noise = torch.randn(p.shape, generator=g)
            tower = "visual." in name or "vision_" in name
            if name.endswith("A_log"):
                p.copy_(torch.log(0.1 + 3.9 * torch.rand(p.shape, generator=g)))
            elif name.endswith("bias"):
                p.copy_(0.3 * noise)
            elif p.dim() == 1:
                centred = zero_centred and not tower and not name.endswith("linear_attn.norm.weight")
                p.copy_((0.0 if centred else 1.0) + 0.2 * noise)
                if is_gemma4 and not tower and "post_" in name:
                    p.mul_(3)  # so that the last token is not the likeliest by its own embedding
            elif "embed" in name and p.dim() == 2:
                p.copy_(0.6 * noise)
            elif name.endswith("mm_input_projection_weight"):
                p.copy_(1.3 * noise / p.shape[0] ** 0.5)
            elif name.endswith("position_embedding_table"):
                p.copy_(0.6 * noise)
            else:
                p.copy_(1.3 * noise / (p.numel() / p.shape[0]) ** 0.5)
        for name, b in sorted(model.named_buffers()):
            noise = torch.randn(b.shape, generator=g)
            if name.endswith(("input_min", "output_min", "input_max", "output_max")):
                b.copy_((1.2 + 0.3 * noise.abs()) * (-1 if name.endswith("min") else 1))
            elif name.endswith("std_bias"):
                b.copy_(0.5 * noise)
            elif name.endswith("std_scale"):
                b.copy_(1 + 0.3 * noise)
            elif name.endswith("layer_scalar"):
                b.copy_(1 + 0.1 * noise)


def prompt(counts, seed):
    g = torch.Generator().manual_seed(seed)
    tokens, starts = torch.randint(3, 60, (9,), generator=g).tolist(), []
    for n in counts:
        tokens.append(BEGIN)
        starts.append(len(tokens))
        tokens += [CELL] * n + [END] + torch.randint(3, 60, (7,), generator=g).tolist()
    return torch.tensor([tokens]), starts


def make(name, build, seed):
    torch.manual_seed(seed)
    model = build().eval().float()
    model.config._attn_implementation = "eager"
    randomise(model, seed)
    is_gemma, is_gemma4 = model.config.model_type == "gemma3", model.config.model_type == "gemma4"
    g = torch.Generator().manual_seed(seed + 1)
    out, features = {}, []
    v = model.config.vision_config
    if is_gemma:
        grids = [(v.image_size // v.patch_size,) * 2] * 2
        counts = [model.config.mm_tokens_per_image] * 2
        pixels = torch.rand((2, 3, v.image_size, v.image_size), generator=g) * 2 - 1
        p, n = v.patch_size, grids[0][0]
        patches = [x.reshape(3, n, p, n, p).permute(1, 3, 0, 2, 4).reshape(n * n, -1) for x in pixels]
        inputs = dict(pixel_values=pixels)
    elif is_gemma4:
        grids, counts = GEMMA4_GRIDS, [a * b // 9 for a, b in GEMMA4_GRIDS]
        most = max(a * b for a, b in grids)
        patches = [torch.rand((a * b, 3 * v.patch_size ** 2), generator=g) for a, b in grids]
        places = [torch.tensor([(x, y) for y in range(a) for x in range(b)]) for a, b in grids]
        pad = torch.nn.functional.pad
        inputs = dict(pixel_values=torch.stack([pad(x, (0, 0, 0, most - len(x))) for x in patches]),
                      image_position_ids=torch.stack([pad(x, (0, 0, 0, most - len(x)), value=-1) for x in places]))
    else:
        grids, counts = QWEN_GRIDS, [a * b // 4 for a, b in QWEN_GRIDS]
        one = v.in_channels * v.patch_size ** 2
        patches = []
        for a, b in grids:  # a picture's frames are alike
            x = torch.rand((a * b, v.in_channels, 1, v.patch_size, v.patch_size), generator=g) * 2 - 1
            patches.append(x.repeat(1, 1, v.temporal_patch_size, 1, 1).reshape(a * b, one * v.temporal_patch_size))
        inputs = dict(pixel_values=torch.cat(patches), image_grid_thw=torch.tensor([(1, a, b) for a, b in grids]))
    tokens, starts = prompt(counts, seed + 2)
    is_cell = (tokens == CELL).long()
    inputs["token_type_ids" if is_gemma else "mm_token_type_ids"] = is_cell
    with torch.no_grad():
        if is_gemma:
            rows = model.model.get_image_features(inputs["pixel_values"])
            rows = getattr(rows, "pooler_output", rows)
            features = list(rows)
            positions = torch.arange(tokens.shape[1]).repeat(3, 1).T
        elif is_gemma4:
            features = list(model.model.get_image_features(inputs["pixel_values"], inputs["image_position_ids"]).pooler_output)
            positions = torch.arange(tokens.shape[1]).repeat(3, 1).T
        else:
            got = model.model.get_image_features(inputs["pixel_values"], inputs["image_grid_thw"])
            rows, deep = got.pooler_output, getattr(got, "deepstack_features", None)
            deep = [d if isinstance(d, (list, tuple)) else torch.split(d, counts) for d in deep or []]
            features = [torch.cat([r] + [d[i] for d in deep], dim=-1) for i, r in enumerate(rows)]
            positions = model.model.get_rope_index(tokens, mm_token_type_ids=is_cell, image_grid_thw=inputs["image_grid_thw"])[0][:, 0].T
        logits = model(input_ids=tokens, **inputs).logits[0]
        greedy, more = [], tokens
        for _ in range(8):
            more_inputs = dict(inputs)
            key = "token_type_ids" if is_gemma else "mm_token_type_ids"
            more_inputs[key] = (more == CELL).long()
            best = model(input_ids=more, **more_inputs).logits[0, -1].argmax()
            greedy.append(int(best))
            more = torch.cat([more, best.reshape(1, 1)], dim=1)
    for i, (grid, patch, row) in enumerate(zip(grids, patches, features)):
        out[f"grid.{i}"] = torch.tensor(grid, dtype=torch.int32)
        out[f"patches.{i}"] = patch.contiguous().float()
        out[f"rows.{i}"] = row.contiguous().float()
    out.update(tokens=tokens[0].int(), starts=torch.tensor(starts, dtype=torch.int32), logits=logits.contiguous(),
               positions=positions.contiguous().int(), greedy=torch.tensor(greedy, dtype=torch.int32))
    model.save_pretrained(ROOT / name)
    (ROOT / name / "generation_config.json").unlink(missing_ok=True)
    save_file(out, ROOT / f"{name}.safetensors")
    print(name, tokens.shape[1], greedy, {k: tuple(v.shape) for k, v in out.items()})


MODELS = {"qwen3vl_vision": (qwen3vl, 11), "qwen35_vision": (qwen35, 12), "gemma3_vision": (gemma3, 13),
          "gemma4_vision": (gemma4_small, 14), "gemma4_large_vision": (gemma4_large, 19)}


WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CHAT = """{% for m in messages %}<|im_start|>{{ m.role }}
{% if m.content is string %}{{ m.content }}{% else %}{% for c in m.content %}{% if c.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% elif 'text' in c %}{{ c.text }}{% endif %}{% endfor %}{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
QUESTION = [{"type": "text", "text": "Compare "}, {"type": "image"}, {"type": "text", "text": " with "}, {"type": "image"},
            {"type": "text", "text": "."}]


def byte_tokenizer(names, **more):
    letters = pre_tokenizers.ByteLevel.alphabet()
    inner = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(sorted(letters))}, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(WORDS), "isolated"),
                                                   pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens([AddedToken(n, special=True, normalized=False) for n in names])
    return PreTrainedTokenizerFast(tokenizer_object=inner, **more)


def pictures(seed):
    g = numpy.random.default_rng(seed)
    for name, (height, width) in {"one.png": (23, 37), "two.png": (64, 30)}.items():
        waves = numpy.add.outer(numpy.sin(numpy.arange(height) / 3), numpy.cos(numpy.arange(width) / 5))[..., None]
        yield name, Image.fromarray((127 + 60 * waves * g.random(3) + 8 * g.random((height, width, 3))).clip(0, 255).astype("uint8"))


def qwen_chat():
    """A model, its tokenizer, its image processor, the token of a cell, and how a prompt shows n of them."""
    tokenizer = byte_tokenizer(["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>",
                                "<|video_pad|>"], eos_token="<|im_end|>", pad_token="<|endoftext|>", chat_template=CHAT)
    one = tokenizer.convert_tokens_to_ids
    config = Qwen3VLConfig(
        text_config=dict(BASE, vocab_size=len(tokenizer), num_hidden_layers=4, head_dim=16, bos_token_id=one("<|endoftext|>"),
                         eos_token_id=one("<|im_end|>"), max_position_embeddings=1024,
                         rope_parameters=dict(ROPE, mrope_section=[4, 2, 2])),
        vision_config=dict(TOWER, deepstack_visual_indexes=[0, 1]), image_token_id=one("<|image_pad|>"),
        video_token_id=one("<|video_pad|>"), vision_start_token_id=one("<|vision_start|>"),
        vision_end_token_id=one("<|vision_end|>"))
    processor = Qwen2VLImageProcessor(patch_size=4, merge_size=2, temporal_patch_size=2, image_mean=[0.5] * 3,
                                      image_std=[0.5] * 3, size=dict(shortest_edge=256, longest_edge=1600))
    return Qwen3VLForConditionalGeneration(config), tokenizer, processor, "<|image_pad|>", lambda n: "<|image_pad|>" * n


GEMMA4_CHAT = """{{ bos_token }}{% for m in messages %}<|turn>{{ m.role }}
{% if m.content is string %}{{ m.content }}{% else %}{% for c in m.content %}{% if c.type == 'image' %}<|image|>{% elif 'text' in c %}{{ c.text }}{% endif %}{% endfor %}{% endif %}<turn|>
{% endfor %}{% if add_generation_prompt %}<|turn>model
{% endif %}"""


def gemma4_chat():
    names = ["<pad>", "<eos>", "<bos>", "<|turn>", "<turn|>", "<|image>", "<|image|>", "<image|>", "<|video|>", "<|audio|>"]
    tokenizer = byte_tokenizer(names, bos_token="<bos>", eos_token="<turn|>", pad_token="<pad>", chat_template=GEMMA4_CHAT)
    one = tokenizer.convert_tokens_to_ids
    ids = dict(vocab_size=len(tokenizer), vocab_size_per_layer_input=len(tokenizer), pad_token_id=one("<pad>"),
               final_logit_softcapping=30.0, bos_token_id=one("<bos>"), eos_token_id=one("<turn|>"), max_position_embeddings=1024)
    model = gemma4(dict(hidden_size_per_layer_input=16, num_kv_shared_layers=2, **ids),
                   dict(use_clipped_linears=True, position_embedding_size=128), image_token_id=one("<|image|>"),
                   video_token_id=one("<|video|>"), audio_token_id=one("<|audio|>"), boi_token_id=one("<|image>"),
                   eoi_token_id=one("<image|>"))
    processor = Gemma4ImageProcessor(patch_size=4, max_soft_tokens=70, pooling_kernel_size=3)
    return model, tokenizer, processor, "<|image|>", lambda n: f"<|image>{'<|image|>' * n}<image|>"


def make_chat(name, build, seed):
    torch.manual_seed(seed)
    model, tokenizer, processor, cell, shown_as = build()
    one = tokenizer.convert_tokens_to_ids
    model = model.eval().float()
    model.config._attn_implementation = "eager"
    randomise(model, seed)
    folder = ROOT / name
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    processor.save_pretrained(folder)
    shown = []
    for file, picture in pictures(seed):
        picture.save(folder / file)
        shown.append(picture)
    inputs = processor(images=shown, return_tensors="pt")
    counts = inputs.pop("num_soft_tokens_per_image", None)
    if counts is None:
        counts = [int(t * h * w) // 4 for t, h, w in inputs["image_grid_thw"]]
    text = tokenizer.apply_chat_template([{"role": "user", "content": QUESTION}], tokenize=False, add_generation_prompt=True)
    parts = text.split(cell)
    text = parts[0] + "".join(shown_as(int(n)) + part for n, part in zip(counts, parts[1:], strict=True))
    ids = tokenizer(text)["input_ids"]
    tokens, answer = torch.tensor([ids]), []
    with torch.no_grad():
        for _ in range(24):
            logits = model(input_ids=tokens, mm_token_type_ids=(tokens == one(cell)).long(), **inputs).logits[0, -1]
            logits[one(tokenizer.eos_token)] = -torch.inf
            top = logits.topk(2).values
            assert top[0] - top[1] > 1e-3, "a choice that rounding could turn"
            answer.append(int(logits.argmax()))
            tokens = torch.cat([tokens, torch.tensor([[answer[-1]]])], dim=1)
    (folder / "chat.json").write_text(json.dumps(dict(prompt=ids, answer=answer)) + "\n")
    print(name, len(ids), answer, tokenizer.decode(answer))


CHATS = {"qwen3vl_chat": (qwen_chat, 21), "gemma4_chat": (gemma4_chat, 22)}

if __name__ == "__main__":
    for chosen in sys.argv[1:] or [*MODELS, *CHATS]:
        make(chosen, *MODELS[chosen]) if chosen in MODELS else make_chat(chosen, *CHATS[chosen])
