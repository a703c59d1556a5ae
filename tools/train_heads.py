#!/usr/bin/env python3
"""Trains draft heads for a model: head i predicts token t + 2 + i of a text from the target's final norm of token t
(`--kind medusa`: Cai et al., "Medusa: Simple LLM Inference Acceleration Framework with Multiple Decoding Heads", 2024), and
from the embeddings of tokens t + 1 to t + 1 + i too (`--kind hydra`: Ankner et al., "Hydra: Sequentially-Dependent Draft
Heads for Medusa Decoding", 2024). Its outputs are rows of the target's own head, of the most frequent tokens, so that
a file of heads has no output matrix.

    tools/write_head_text.py ... --out text.jsonl        # what is learned from
    ninja -C build hidden_states
    tools/train_heads.py prepare MODEL.gguf text.jsonl WORK     # hidden states, by the engine's own passes
    tools/train_heads.py train WORK --kind medusa               # goes on from its last checkpoint, WORK/medusa.pt
    tools/train_heads.py judge WORK --kind medusa               # on conversations that were held out
    tools/train_heads.py export WORK medusa.gguf --kind medusa

Python packages: torch, numpy, gguf, xxhash. One seed gives one file on one machine and number of threads. The loss is the
cross-entropy with the target's own distribution, as far as the heads' tokens have it (distillation, "soft labels").
"""
import argparse
import json
import math
import subprocess
import sys
import time
from pathlib import Path

import gguf
import numpy as np
import torch
import torch.nn.functional as F
import xxhash

ROOT = Path(__file__).resolve().parent.parent
KINDS = ("hydra", "medusa")
HELD_OUT = 20  # every so many-th conversation is for judging alone


# ---- the target ----------------------------------------------------------------------------------------------------

class Target:
    def __init__(self, path):
        self.reader = gguf.GGUFReader(path)
        by_name = {t.name: t for t in self.reader.tensors}
        self.embedding = self.floats(by_name["token_embd.weight"])
        self.output = self.floats(by_name["output.weight"]) if "output.weight" in by_name else self.embedding
        self.vocab_size, self.width = self.embedding.shape

    @staticmethod
    def floats(tensor):
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))


# ---- the heads -----------------------------------------------------------------------------------------------------

class Block(torch.nn.Module):
    """skip(x) + SiLU(linear(x)); skip is a product where the width changes, else nothing."""

    def __init__(self, n_inputs, width):
        super().__init__()
        self.linear = torch.nn.Linear(n_inputs, width)
        self.skip = torch.nn.Linear(n_inputs, width) if n_inputs != width else None
        torch.nn.init.zeros_(self.linear.weight)
        if self.skip is not None:  # begins as the hidden state itself
            with torch.no_grad():
                self.skip.weight.zero_()
                self.skip.weight[:, :width] = torch.eye(width)
                self.skip.bias.zero_()

    def forward(self, x):
        return (x if self.skip is None else self.skip(x)) + F.silu(self.linear(x))


class Heads(torch.nn.Module):
    def __init__(self, kind, width, n_heads, n_layers):
        super().__init__()
        self.kind = kind
        self.heads = torch.nn.ModuleList(
            torch.nn.Sequential(Block(self.n_read(i) * width, width), *(Block(width, width) for _ in range(n_layers - 1)))
            for i in range(n_heads))

    def n_read(self, i):
        """Vectors that head i reads: the hidden state, and Hydra's the tokens after it."""
        return i + 2 if self.kind == "hydra" else 1

    def forward(self, i, hidden, embeddings):
        """hidden [n, C]; embeddings of the i + 1 tokens after it, each [n, C]."""
        return self.heads[i](torch.cat([hidden, *embeddings][:self.n_read(i)], dim=-1))


# ---- data ----------------------------------------------------------------------------------------------------------

class Data:
    def __init__(self, work, target):
        self.facts = json.loads((work / "facts.json").read_text())
        self.tokens = torch.from_numpy(np.fromfile(work / "tokens.i32", np.int32).astype(np.int64))
        # [tokens, K + 1, C]: inputs of the layers that prepare was given, then what the final norm made.
        self.states = np.memmap(work / "hidden.f16", np.float16, "r").reshape(len(self.tokens), -1, target.width)
        assert self.states.shape[1] == len(self.facts["layers"]) + 1, "hidden states of other texts"
        self.hidden = torch.from_numpy(np.ascontiguousarray(self.states[:, -1]))
        self.draft_ids = torch.tensor(self.facts["draft_ids"])

    def places(self, held_out, n_ahead, answers_only=False, temperature=None):
        """Places t whose tokens up to t + n_ahead are of the same text; and of its answer."""
        out = []
        for text in self.facts["texts"]:
            if (text["number"] % HELD_OUT == 0) != held_out:
                continue
            if temperature is not None and text["temperature"] != temperature:
                continue
            first = text["begin"] + (text["n_prompt"] - 1 if answers_only else 4)
            out.append(torch.arange(first, text["end"] - n_ahead))
        return torch.cat(out)


def prepare(options):
    target = Target(options.model)
    options.work.mkdir(parents=True, exist_ok=True)
    lines = sorted((json.loads(text) for text in options.text.read_text().splitlines()), key=lambda line: line["number"])
    texts, arrays, counts, at = [], [], np.zeros(target.vocab_size, np.int64), 0
    for line in lines:
        ids = line["prompt"] + line["answer"]
        if len(line["answer"]) < 8 or len(ids) > 2000:
            continue
        if line["number"] % HELD_OUT:
            np.add.at(counts, line["answer"], 1)
        texts.append({"number": line["number"], "kind": line["kind"], "temperature": line["temperature"], "begin": at,
                      "end": at + len(ids), "n_prompt": len(line["prompt"])})
        arrays.append(np.array(ids, np.int32))
        at += len(ids)
    counts = counts * target.vocab_size - np.arange(target.vocab_size)  # ids are nearly sorted by how often they come
    draft_ids = sorted(int(i) for i in np.argsort(-counts, kind="stable")[:options.outputs])
    np.concatenate(arrays).tofile(options.work / "tokens.i32")
    with (options.work / "texts.i32").open("wb") as out:
        for array in arrays:
            np.array([len(array)], np.int32).tofile(out)
            array.tofile(out)
    program = [str(ROOT / "build" / "hidden_states"), str(options.model), str(options.work / "texts.i32"),
               str(options.work / "hidden.f16"), "--threads", str(options.threads)]
    program += ["--layers", ",".join(map(str, options.layers))] if options.layers else []
    subprocess.run(program, check=True, stderr=sys.stdout)
    facts = {"model": str(options.model.resolve()), "texts": texts, "draft_ids": draft_ids, "n_tokens": at,
             "layers": options.layers}
    (options.work / "facts.json").write_text(json.dumps(facts))
    print(f"{len(texts)} texts, {at:,} tokens, {options.outputs} outputs cover "
          f"{counts[draft_ids].clip(0).sum() / counts.clip(0).sum():.3f} of the answers")


# ---- training ------------------------------------------------------------------------------------------------------

class Work:
    def __init__(self, options):
        self.path = options.work
        facts = json.loads((options.work / "facts.json").read_text())
        self.target = Target(facts["model"])
        self.data = Data(options.work, self.target)
        self.rows = self.target.output[self.data.draft_ids].contiguous()

    def teacher(self, place, ahead):
        """The target's logits of the heads' tokens at place + ahead, and how much of all they have at T = 1."""
        return F.linear(self.data.hidden[place + ahead].float(), self.rows)

    def inputs(self, place, i):
        embeddings = [self.target.embedding[self.data.tokens[place + 1 + j]] for j in range(i + 1)]
        return self.data.hidden[place].float(), embeddings


def learn(model, options, n_steps, checkpoint, facts, losses_of, least_rate=0.0):
    """Steps from the last checkpoint on, up to `options.until`. losses_of(step): (loss, weight) of each part. `facts` lie in
    the checkpoint beside the model's state. The rate warms up over 100 steps, then falls by a cosine to `least_rate` of it."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=options.rate, betas=(0.9, 0.95), weight_decay=0.01)
    first, last = 0, min(n_steps, options.until or n_steps)
    if checkpoint.exists():
        saved = torch.load(checkpoint)
        model.load_state_dict(saved["model"])
        optimiser.load_state_dict(saved["optimiser"])
        first = saved["step"]
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f} M parameters, {n_steps} steps, from step {first}", flush=True)
    began, losses_seen = time.time(), []
    for step in range(first, last):
        for group in optimiser.param_groups:
            part = least_rate + (1 - least_rate) * 0.5 * (1 + math.cos(math.pi * step / n_steps))
            group["lr"] = options.rate * min(1, (step + 1) / 100) * part
        losses = losses_of(step)
        losses_seen.append([loss.item() for loss, _ in losses])
        optimiser.zero_grad(set_to_none=True)
        sum(weight * loss for loss, weight in losses).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        if (step + 1) % options.report == 0 or step + 1 == last:
            means = " ".join(f"{sum(part) / len(losses_seen):.3f}" for part in zip(*losses_seen))
            print(f"step {step + 1} of {n_steps}: loss {means}, {time.time() - began:.0f} s", flush=True)
            losses_seen = []
            torch.save({"model": model.state_dict(), "optimiser": optimiser.state_dict(), "step": step + 1, **facts}, checkpoint)


def distance(teacher, logits):
    """The cross-entropy of the predictions with the targets, a mean over rows."""
    return -(teacher * F.log_softmax(logits, -1)).sum(-1).mean()


def train(options):
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    work = Work(options)
    n_heads = options.heads
    model = Heads(options.kind, work.target.width, n_heads, options.layers)
    places = work.data.places(False, n_heads + 1)
    n_steps = int(len(places) * options.epochs / options.batch)
    order = torch.Generator().manual_seed(options.seed)
    schedule = torch.cat([places[torch.randperm(len(places), generator=order)] for _ in range(math.ceil(options.epochs))])
    print(f"{len(places):,} places")

    def losses_of(step):
        place, losses = schedule[step * options.batch:(step + 1) * options.batch], []
        for i in range(n_heads):
            # The further heads see part of the batch: they are used less often.
            part = place if i == 0 else place[:len(place) // 2]
            hidden, embeddings = work.inputs(part, i)
            with torch.no_grad():
                teacher = F.softmax(work.teacher(part, i + 1), -1)
            # Medusa's paper trusts each further head less, the proposer what it cannot see (section 2.2.1).
            weight = 0.8 ** i if options.kind == "medusa" else 1.0
            losses.append((distance(teacher, F.linear(model(i, hidden, embeddings), work.rows)), weight))
        return losses

    checkpoint = work.path / f"{options.kind}.pt"
    learn(model, options, n_steps, checkpoint, {"heads": n_heads, "layers": options.layers}, losses_of)


def trained(work, kind):
    saved = torch.load(work.path / f"{kind}.pt")
    model = Heads(kind, work.target.width, saved["heads"], saved["layers"])
    model.load_state_dict(saved["model"])
    return model.eval()


def race(p, q):
    """Whether both draw the same token from the same noise, of each row: the chance is sum over x of 1 / sum over y of
    max(p(y)/p(x), q(y)/q(x)), which is quadratic."""
    noise = -torch.log(torch.rand(p.shape).clamp_min(1e-30))
    return (noise / p.clamp_min(1e-30)).argmin(-1) == (noise / q.clamp_min(1e-30)).argmin(-1)


@torch.no_grad()
def judge(options):
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    work = Work(options)
    model = trained(work, options.kind)
    ids = work.data.draft_ids
    for temperature, of_answers in ((0.0, 0.0), (0.8, 0.8)):
        for i in range(len(model.heads)):
            place = work.data.places(True, len(model.heads) + 1, True, of_answers)
            place = place[torch.randperm(len(place))[:options.places]]
            right, sure, n_sure, n = 0.0, 0.0, 0, 0
            for part in place.split(512):
                hidden, embeddings = work.inputs(part, i)
                logits = F.linear(model(i, hidden, embeddings), work.rows)
                full = F.linear(work.data.hidden[part + i + 1].float(), work.target.output)
                if temperature == 0:
                    is_right = (ids[logits.argmax(-1)] == full.argmax(-1)).float()
                    right += is_right.sum().item()
                    is_sure = F.softmax(logits, -1).amax(-1) > 0.4
                    n_sure += is_sure.sum().item()
                    sure += is_right[is_sure].sum().item()
                else:
                    q = torch.zeros_like(full)
                    q[:, ids] = F.softmax(logits / temperature, -1)
                    right += race(F.softmax(full / temperature, -1), q).sum().item()
                n += len(part)
            print(f"T {temperature}: head {i}: {right / n:.3f} of {n} right"
                  + (f"; of the {n_sure / n:.2f} that it gave more than 0.4: {sure / max(1, n_sure):.3f}" if temperature == 0 else ""))


# ---- the file ------------------------------------------------------------------------------------------------------

@torch.no_grad()
def export(options):
    work = Work(options)
    model = trained(work, options.kind)
    kind = options.kind
    writer = gguf.GGUFWriter(options.out, kind)
    writer.add_name(options.name)
    writer.add_uint32(f"{kind}.head_count", len(model.heads))
    writer.add_uint32(f"{kind}.layer_count", len(model.heads[0]))
    writer.add_uint32(f"{kind}.embedding_length", work.target.width)
    writer.add_uint32(f"{kind}.target_vocab_size", work.target.vocab_size)
    writer.add_string(f"{kind}.target_digest", xxhash.xxh3_128(Path(work.data.facts["model"]).read_bytes()).hexdigest())
    writer.add_array(f"{kind}.token_ids", work.data.draft_ids.tolist())
    for i, head in enumerate(model.heads):
        for j, block in enumerate(head):
            for part in ("linear", "skip"):
                product = getattr(block, part)
                if product is None:
                    continue
                name = f"head.{i}.blk.{j}.{part}"
                dtype = gguf.GGMLQuantizationType.Q8_0
                writer.add_tensor(name + ".weight", gguf.quants.quantize(product.weight.numpy(), dtype), raw_dtype=dtype)
                writer.add_tensor(name + ".bias", product.bias.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    print(f"{options.out}: {options.out.stat().st_size / 1e6:.1f} MB")


def commands_of(parser, threads):
    """A function that adds a subcommand, which its options call as `does`."""
    commands = parser.add_subparsers(required=True)

    def command(name, does):
        c = commands.add_parser(name)
        c.set_defaults(does=does)
        c.add_argument("--threads", type=int, default=threads)
        return c

    return command


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    command = commands_of(parser, threads=2)
    c = command("prepare", prepare)
    c.add_argument("model", type=Path)
    c.add_argument("text", type=Path)
    c.add_argument("work", type=Path)
    c.add_argument("--outputs", type=int, default=8192)
    c.add_argument("--layers", type=lambda text: [int(i) for i in text.split(",")], default=[],
                   help="whose inputs tools/train_eagle.py is to learn from")
    c = command("train", train)
    c.add_argument("work", type=Path)
    c.add_argument("--kind", choices=KINDS, default="hydra")
    c.add_argument("--heads", type=int, default=2)
    c.add_argument("--layers", type=int, default=3)
    c.add_argument("--batch", type=int, default=512)
    c.add_argument("--epochs", type=float, default=4)
    c.add_argument("--rate", type=float, default=1e-3)
    c.add_argument("--seed", type=int, default=1)
    c.add_argument("--report", type=int, default=50)
    c.add_argument("--until", type=int, help="stop at this step; another call goes on")
    c = command("judge", judge)
    c.add_argument("work", type=Path)
    c.add_argument("--kind", choices=KINDS, default="hydra")
    c.add_argument("--places", type=int, default=8000)
    c = command("export", export)
    c.add_argument("work", type=Path)
    c.add_argument("--kind", choices=KINDS, default="hydra")
    c.add_argument("out", type=Path)
    c.add_argument("--name", default="draft heads")
    options = parser.parse_args()
    options.does(options)


if __name__ == "__main__":
    main()
