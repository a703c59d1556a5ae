#!/usr/bin/env python3
"""Trains an EAGLE-3 head for a model (Li et al., "EAGLE-3: Scaling up Inference Acceleration of Large Language Models via
Training-Time Test", 2025, section 3): one decoder layer over pairs, the states of three of the target's layers for token P
and the embedding of token P + 1, which predicts token P + 2 (src/spec/heads/eagle_head.h has the formulas). After the first one
it reads its own states instead of the target's, in training as in use ("training-time test").

    tools/write_head_text.py ... --out text.jsonl                           # what is learned from
    ninja -C build hidden_states
    tools/train_heads.py prepare MODEL.gguf text.jsonl WORK --layers 8,18,30
    tools/train_eagle.py train WORK                                         # goes on from its last checkpoint
    tools/train_eagle.py judge WORK                                         # on conversations that were held out
    tools/train_eagle.py export WORK FOLDER                                 # under the names of the papers' programs
    tools/pack_eagle.py FOLDER head.gguf --type q8_0

Python packages: torch, numpy, gguf, xxhash. One seed gives one file on one machine and number of threads. Outputs are the
target's own, of the most frequent tokens, and stay as they are; the loss is the cross-entropy with the target's own
distribution over those.
"""
import argparse
import json
import math
import struct
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
import xxhash

from train_heads import HELD_OUT, Data, Target, commands_of, distance, learn, race

EPS = 1e-5


def rms_norm(x, weight):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + EPS) * weight


class Rope:
    """Halves of a head turn against each other (Su et al., RoFormer)."""

    def __init__(self, head_len, theta, n):
        angle = torch.arange(n)[:, None] * theta ** (-torch.arange(0, head_len, 2) / head_len)
        self.cos, self.sin = torch.cat([angle.cos()] * 2, -1), torch.cat([angle.sin()] * 2, -1)

    def __call__(self, x):
        """x [n, heads, D], its first row at position 0."""
        half = torch.cat([-x[..., x.shape[-1] // 2:], x[..., :x.shape[-1] // 2]], -1)
        return x * self.cos[:len(x), None] + half * self.sin[:len(x), None]


class Head(torch.nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.sizes = sizes
        C, D, F_ = sizes["width"], sizes["head_len"], sizes["ffn_len"]
        q_len, kv_len = sizes["heads"] * D, sizes["kv_heads"] * D

        def product(n_outputs, n_inputs):
            return torch.nn.Linear(n_inputs, n_outputs, bias=False)

        self.fc = product(C, sizes["taps"] * C)
        self.q, self.k, self.v, self.o = product(q_len, 2 * C), product(kv_len, 2 * C), product(kv_len, 2 * C), product(C, q_len)
        self.gate, self.up, self.down = product(F_, C), product(F_, C), product(C, F_)
        self.input_norm, self.hidden_norm, self.ffn_norm, self.norm = (torch.nn.Parameter(torch.ones(C)) for _ in range(4))
        self.rope = Rope(D, sizes["theta"], sizes["context"])
        with torch.no_grad():  # it begins as the last state that it reads, which the outputs understand
            self.fc.weight.zero_()
            self.fc.weight[:, -C:] = torch.eye(C)
            self.o.weight.zero_()
            self.down.weight.zero_()

    def attention(self, q, chains, lengths):
        """q [T, heads, D] of unroll j; chains: keys and values of unrolls 0 to j, [T, kv_heads, D] each. Pair P of unroll
        j sees what unroll 0 made of pairs up to P - j, then what unroll i made of pair P - j + i: its own chain."""
        n_kv, group, D = self.sizes["kv_heads"], self.sizes["heads"] // self.sizes["kv_heads"], self.sizes["head_len"]
        j, out, at = len(chains) - 1, [], 0
        for n in lengths:
            part = slice(at, at + n)
            at += n
            query = q[part].reshape(n, n_kv, group, D).permute(1, 2, 0, 3)  # [kv, group, n, D]
            keys, values = (x[part].permute(1, 0, 2) for x in chains[0])    # [kv, n, D]
            scores = (query.reshape(n_kv, group * n, D) @ keys.transpose(1, 2)).reshape(n_kv, group, n, n)
            scores = scores.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1 - j), -1e30)
            own = []  # one key for each query: of the chain
            for i in range(1, j + 1):
                shifted = [F.pad(x[part], (0, 0, 0, 0, j - i, 0))[:n].permute(1, 0, 2) for x in chains[i]]
                own.append((shifted[1], (query * shifted[0][:, None]).sum(-1, keepdim=True)))
            weights = (torch.cat([scores, *(s for _, s in own)], -1) / math.sqrt(D)).softmax(-1)
            answer = (weights[..., :n].reshape(n_kv, group * n, n) @ values).reshape(n_kv, group, n, D)
            for i, (value, _) in enumerate(own):
                answer = answer + weights[..., n + i, None] * value[:, None]
            out.append(answer.permute(2, 0, 1, 3).reshape(n, -1))
        return torch.cat(out)

    def layer(self, embeddings, states, chains, lengths):
        """The states after pairs, [T, C]. `chains` gets this unroll's keys and values."""
        normed = rms_norm(states, self.hidden_norm)
        read = torch.cat([rms_norm(embeddings, self.input_norm), normed], -1)
        D = self.sizes["head_len"]

        def heads(x):
            return x.reshape(len(x), -1, D)

        def turned(x):
            at, out = 0, []
            for n in lengths:
                out.append(self.rope(x[at:at + n]))
                at += n
            return torch.cat(out)

        chains.append((turned(heads(self.k(read))), heads(self.v(read))))
        x = normed + self.o(self.attention(turned(heads(self.q(read))), chains, lengths))
        h = rms_norm(x, self.ffn_norm)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))

    def forward(self, features, embeddings, lengths, n_unrolls):
        """Each unroll's states of all pairs, [T, C] each, as its outputs read them. Rows of an unroll j whose pair is one
        of a text's first j have no meaning."""
        states, chains, out = self.fc(features), [], []
        for j in range(n_unrolls):
            x = self.layer(embeddings, states, chains, lengths)
            out.append(rms_norm(x, self.norm))
            states = F.pad(x, (0, 0, 1, 0))[:-1]  # of pair P - 1; a text's first row reads another text's, and has no meaning
        return out


class Work:
    def __init__(self, path):
        self.path = path
        facts = json.loads((path / "facts.json").read_text())
        self.target = Target(facts["model"])
        self.data = Data(path, self.target)
        assert self.data.facts["layers"], "prepare was given no --layers"
        self.rows = self.target.output[self.data.draft_ids].contiguous()
        # Of each tap's each dimension, over a part of the text: features are divided by it in training, fc on export.
        sample = self.data.states[::max(1, len(self.data.states) // 20_000), :-1].astype(np.float32)
        self.scale = torch.from_numpy(np.sqrt((sample ** 2).mean(0)) + 1e-3).reshape(-1)

    def sizes(self, options):
        fields = self.target.reader.fields
        architecture = fields["general.architecture"].contents()

        def field(name):
            return fields[f"{architecture}.{name}"].contents()

        heads = field("attention.head_count")
        return {"width": self.target.width, "heads": heads, "kv_heads": field("attention.head_count_kv"),
                "head_len": self.target.width // heads, "ffn_len": options.ffn, "taps": len(self.data.facts["layers"]),
                "theta": 10000.0, "context": options.longest}

    def texts(self, held_out, longest):
        """(first pair, pairs, first pair whose token is the answer's, temperature) of each text."""
        for text in self.data.facts["texts"]:
            if (text["number"] % HELD_OUT == 0) == held_out:
                n = min(text["end"] - text["begin"] - 2, longest)
                answer = text["n_prompt"] - 2
                if n > answer + 4:
                    yield text["begin"], n, answer, text["temperature"]

    def batch(self, texts):
        """Features and embeddings of all pairs, lengths, and the rows whose token is the answer's with its places."""
        rows, places, at = [], [], 0
        for begin, n, answer, _ in texts:
            rows.append(torch.arange(answer, n) + at)
            places.append(torch.arange(answer, n) + begin)
            at += n
        features = np.concatenate([self.data.states[begin:begin + n, :-1] for begin, n, _, _ in texts])
        features = torch.from_numpy(features.astype(np.float32)).reshape(at, -1) / self.scale
        tokens = torch.cat([self.data.tokens[begin + 1:begin + 1 + n] for begin, n, _, _ in texts])
        return features, self.target.embedding[tokens], [n for _, n, _, _ in texts], torch.cat(rows), torch.cat(places)


def batches(texts, n_tokens, generator):
    """All texts once, in an order of their own, about n_tokens together."""
    part, n = [], 0
    for i in torch.randperm(len(texts), generator=generator).tolist():
        part.append(texts[i])
        n += texts[i][1]
        if n >= n_tokens:
            yield part
            part, n = [], 0


def train(options):
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    work = Work(options.work)
    model = Head(work.sizes(options))
    with torch.no_grad():  # the outputs expect what the final norm makes; half of it, for it is of the token before
        spread = work.data.hidden[::97].float().pow(2).mean(0).sqrt()
        model.hidden_norm.copy_(spread)
        model.norm.fill_(0.5 * spread.pow(2).mean().sqrt())
    texts = list(work.texts(False, options.longest))
    order = torch.Generator().manual_seed(options.seed)
    schedule = [part for _ in range(options.epochs) for part in batches(texts, options.batch, order)]
    print(f"{len(texts)} texts")

    def losses_of(step):
        features, embeddings, lengths, rows, places = work.batch(schedule[step])
        with torch.no_grad():
            teacher = F.softmax(F.linear(work.data.hidden[places + 1].float(), work.rows), -1)
        unrolls = model(features, embeddings, lengths, options.unrolls)
        return [(distance(teacher, F.linear(states[rows], work.rows)), 0.8 ** j) for j, states in enumerate(unrolls)]

    learn(model, options, len(schedule), work.path / "eagle.pt", {"sizes": model.sizes}, losses_of, least_rate=0.05)


def trained(work):
    saved = torch.load(work.path / "eagle.pt")
    model = Head(saved["sizes"])
    model.load_state_dict(saved["model"])
    return model.eval()


@torch.no_grad()
def judge(options):
    """How often the first draft is right, and each further one after right ones, of tokens of answers."""
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    work = Work(options.work)
    model = trained(work)
    ids = work.data.draft_ids
    for temperature in (0.0, 0.8):
        texts = [t for t in work.texts(True, model.sizes["context"]) if t[3] == temperature][:options.texts]
        right, n, sure = [0.0] * options.unrolls, [0] * options.unrolls, [0.0, 0]
        for text in texts:
            features, embeddings, lengths, rows, places = work.batch([text])
            full = F.linear(work.data.hidden[places + 1].float(), work.target.output)
            before = None
            for j, states in enumerate(model(features, embeddings, lengths, options.unrolls)):
                logits = F.linear(states[rows], work.rows)
                if temperature == 0:
                    is_right = ids[logits.argmax(-1)] == full.argmax(-1)
                else:
                    q = torch.zeros_like(full)
                    q[:, ids] = F.softmax(logits / temperature, -1)
                    is_right = race(F.softmax(full / temperature, -1), q)
                if j == 0 and temperature == 0:
                    is_sure = F.softmax(logits, -1).amax(-1) > 0.4
                    sure = [sure[0] + is_right[is_sure].sum().item(), sure[1] + is_sure.sum().item()]
                # Of unroll j at row r the draft before is unroll j - 1's at row r - 1.
                counted = torch.ones(len(rows), dtype=torch.bool) if j == 0 else F.pad(before, (1, 0))[:-1]
                right[j] += (is_right & counted).sum().item()
                n[j] += counted.sum().item()
                before = is_right & counted
        print(f"T {temperature}: " + ", ".join(f"{r / max(1, m):.3f} of {m}" for r, m in zip(right, n)) + " right"
              + (f"; of the {sure[1] / max(1, n[0]):.2f} that it gave more than 0.4: {sure[0] / max(1, sure[1]):.3f}"
                 if temperature == 0 else ""))


@torch.no_grad()
def export(options):
    work = Work(options.work)
    model, sizes, ids = trained(work), None, work.data.draft_ids
    sizes = model.sizes
    tensors = {"fc.weight": model.fc.weight / work.scale, "norm.weight": model.norm, "lm_head.weight": work.rows}
    for name, weight in (("self_attn.q_proj", model.q.weight), ("self_attn.k_proj", model.k.weight),
                         ("self_attn.v_proj", model.v.weight), ("self_attn.o_proj", model.o.weight),
                         ("mlp.gate_proj", model.gate.weight), ("mlp.up_proj", model.up.weight),
                         ("mlp.down_proj", model.down.weight), ("input_layernorm", model.input_norm),
                         ("hidden_norm", model.hidden_norm), ("post_attention_layernorm", model.ffn_norm)):
        tensors[f"midlayer.{name}.weight"] = weight
    arrays = {name: ("F32", x.detach().numpy().astype(np.float32)) for name, x in tensors.items()}
    arrays["d2t"] = ("I64", (ids - torch.arange(len(ids))).numpy().astype(np.int64))
    config = {"model_type": "llama", "hidden_act": "silu", "num_hidden_layers": 1, "hidden_size": sizes["width"],
              "intermediate_size": sizes["ffn_len"], "num_attention_heads": sizes["heads"],
              "num_key_value_heads": sizes["kv_heads"], "vocab_size": work.target.vocab_size,
              "draft_vocab_size": len(ids), "target_hidden_size": sizes["width"], "rms_norm_eps": EPS,
              "rope_theta": sizes["theta"], "max_position_embeddings": sizes["context"], "norm_before_residual": True,
              "eagle_aux_hidden_state_layer_ids": work.data.facts["layers"],
              "target_digest": xxhash.xxh3_128(Path(work.data.facts["model"]).read_bytes()).hexdigest()}
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    at, header = 0, {}
    for name, (kind, x) in arrays.items():
        header[name] = {"dtype": kind, "shape": list(x.shape), "data_offsets": [at, at + x.nbytes]}
        at += x.nbytes
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    with (options.out / "model.safetensors").open("wb") as out:
        out.write(struct.pack("<Q", len(head)) + head)
        for _, x in arrays.values():
            out.write(np.ascontiguousarray(x).tobytes())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    command = commands_of(parser, threads=1)
    c = command("train", train)
    c.add_argument("work", type=Path)
    c.add_argument("--unrolls", type=int, default=2)
    c.add_argument("--ffn", type=int, default=1536)
    c.add_argument("--longest", type=int, default=1024, help="pairs of a text")
    c.add_argument("--batch", type=int, default=1536, help="pairs of a step, or a few more")
    c.add_argument("--epochs", type=int, default=5)
    c.add_argument("--until", type=int, help="stop at this step; another call goes on")
    c.add_argument("--rate", type=float, default=1e-3)
    c.add_argument("--seed", type=int, default=1)
    c.add_argument("--report", type=int, default=50)
    c = command("judge", judge)
    c.add_argument("work", type=Path)
    c.add_argument("--unrolls", type=int, default=3)
    c.add_argument("--texts", type=int, default=80)
    c = command("export", export)
    c.add_argument("work", type=Path)
    c.add_argument("out", type=Path)
    options = parser.parse_args()
    options.does(options)


if __name__ == "__main__":
    main()
