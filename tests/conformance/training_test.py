"""Draft heads are trained for the default model as docs/measurements/speculation.md has it, for 50 steps: from text that it writes itself to
files that it drafts with. The same seed gives the same file, also where training was cut and went on. training_test.py
BUILD_DIR."""
import ast
import json
import pathlib
import re
import subprocess
import sys
import tempfile

from harness import HERE, IBID, Server, Skip, default_model, default_model_file, main, venv

TOOLS = HERE.parent.parent / "tools"
PYTHON = "/usr/bin/python3"  # the distribution's, whose packages have torch
STEPS = 50
PROMPTS = ["List five fruits and say what each one tastes like.", "Write a short story about a lighthouse."]


def python():
    if subprocess.run([PYTHON, "-c", "import torch, numpy"], capture_output=True).returncode != 0:
        raise Skip("the distribution's python3-torch is not installed")
    return venv("venv-training", "gguf==0.19.0", "xxhash==4.1.0", python=PYTHON, options=["--system-site-packages"]) / "python"


def run(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done
    return done.stdout


def losses(reported):
    return [float(loss) for loss in re.findall(r"loss ([0-9.]+)", reported)]


def trained(kind, work, *options):
    """Checkpoints are in `work`: the output of training at its 10th, 20th, ... step."""
    script, *more = tool(kind)
    return losses(run(python(), TOOLS / script, "train", work, "--threads", 1, "--report", 10, *more, *options))


def answered(*options):
    """The answer of a server with these drafts, and how many it verified and accepted of a request that drafts at any price."""
    with Server([IBID, "serve", *default_model(), "--port", 0, "--threads", 2, *options], seconds=600) as server:
        def answer(prompt, **more):
            body = {"messages": [{"role": "user", "content": prompt}], "max_tokens": 80, "temperature": 0.8, "seed": 3, **more}
            return server.post("/v1/chat/completions", body)["choices"][0]["message"]["content"]

        said = [answer(prompt) for prompt in PROMPTS]
        if "off" not in options:
            for prompt in PROMPTS:
                answer(prompt, speculation={"verifier": "rejection", "k": 1})
        metrics = server.get("/metrics")
        counts = [int(float(re.search(rf"^ibid_{name}_tokens_total (\S+)$", metrics, re.M)[1]))
                  for name in ("draft", "accepted_draft")]
        code, errors = server.end()
        assert code == 0, errors
    return said, counts


def test_heads_are_trained_exported_and_used():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        text, work = folder / "text.jsonl", folder / "work"
        with Server([IBID, "serve", *default_model(), "--port", 0, "--max-sequences", 16, "--no-page"], seconds=600) as server:
            run(python(), TOOLS / "write_head_text.py", "--port", server.port, "--tokens", 4000, "--streams", 12, "--out", text)
        run(python(), TOOLS / "train_heads.py", "prepare", default_model_file(), text, work, "--outputs", 512, "--layers", "8,18,30")
        plain, _ = answered("--spec", "off")
        eagle = ["--batch", 160, "--longest", 160, "--ffn", 128, "--epochs", 40]
        heads = ["--batch", 48, "--epochs", 5]
        for kind, options in (("eagle", eagle), ("hydra", heads), ("medusa", heads)):
            whole = trained(kind, work, *options, "--until", STEPS)
            first = export(kind, work, folder / "first")
            (work / f"{kind}.pt").unlink()
            parts = trained(kind, work, *options, "--until", 20) + trained(kind, work, *options, "--until", STEPS)
            assert whole == parts and len(whole) == STEPS // 10, (whole, parts)
            assert whole[-1] < whole[0] - 0.5, whole
            again = export(kind, work, folder / "again")
            assert first.read_bytes() == again.read_bytes(), kind
            said, (n_drafted, n_accepted) = answered("--spec", ("eagle:" if kind == "eagle" else "heads:") + str(first))
            print(f"{kind}: losses {whole}, {n_drafted} drafted, {n_accepted} accepted")
            assert said == plain and all(len(text) > 200 for text in said), kind
            assert n_drafted >= 2 * 60 and n_accepted > 0, kind


def tool(kind):
    return ["train_eagle.py"] if kind == "eagle" else ["train_heads.py", "--kind", kind]


def export(kind, work, out):
    """A GGUF file of the heads that were trained last."""
    made, (script, *options) = out.with_suffix(".gguf"), tool(kind)
    run(python(), TOOLS / script, "export", work, out if kind == "eagle" else made, *options)
    if kind == "eagle":
        run(python(), TOOLS / "pack_eagle.py", out, made, "--type", "q8_0")
    return made


PICKLED = """import sys, torch
state = {"fc.weight": torch.arange(12.).reshape(3, 4).bfloat16(), "d2t": torch.arange(5), "b": torch.nn.Parameter(torch.arange(8.).reshape(2, 4)[1:])}
torch.save(state, sys.argv[1])
print({name: x.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes().hex() for name, x in state.items()})
"""


def test_what_pytorch_pickles_becomes_safetensors():
    with tempfile.TemporaryDirectory() as name:
        pickled, made = pathlib.Path(name) / "pytorch_model.bin", pathlib.Path(name) / "model.safetensors"
        expected = ast.literal_eval(run(python(), "-c", PICKLED, pickled))
        run(sys.executable, TOOLS / "to_safetensors.py", pickled, made)
        content = made.read_bytes()
        begin = 8 + int.from_bytes(content[:8], "little")
        header = json.loads(content[8:begin])
        assert {n: (x["dtype"], x["shape"]) for n, x in header.items()} == {
            "fc.weight": ("BF16", [3, 4]), "d2t": ("I64", [5]), "b": ("F32", [1, 4])}, header
        for n, x in header.items():
            first, end = x["data_offsets"]
            assert content[begin + first:begin + end].hex() == expected[n], n


if __name__ == "__main__":
    main(test_what_pytorch_pickles_becomes_safetensors, test_heads_are_trained_exported_and_used)
