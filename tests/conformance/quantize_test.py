"""`ibid quantize` on the default model: the same numbers as the Python package `gguf`, and what it refuses.
quantize_test.py BUILD_DIR."""
import pathlib
import re
import subprocess
import tempfile

from harness import HERE, IBID, default_model, main, venv

# With the types that the package makes itself; each matrix as it would make it of the model's own.
COMPARE = """
import sys
import gguf
import numpy as np
model, made = (gguf.GGUFReader(path) for path in sys.argv[1:3])
was = {t.name: t for t in model.tensors}
assert list(was) == [t.name for t in made.tensors]
assert set(made.fields) - set(model.fields) <= {"general.file_type", "general.quantization_version"}
for t in made.tensors:
    if len(t.shape) < 2:
        assert np.array_equal(t.data, was[t.name].data), t.name
        continue
    values = gguf.quants.dequantize(was[t.name].data, was[t.name].tensor_type).astype(np.float32)
    wanted = gguf.quants.quantize(values, t.tensor_type)
    assert np.array_equal(gguf.quants.dequantize(wanted, t.tensor_type), gguf.quants.dequantize(t.data, t.tensor_type)), t.name
print(len(was))
"""


def quantize(*arguments, code=0):
    done = subprocess.run([IBID, "quantize", *(str(a) for a in arguments)], capture_output=True, text=True, timeout=600)
    assert done.returncode == code, done
    return done.stdout if code == 0 else done.stderr


def model():
    return (default_model() or ["default"])[0]


def test_it_makes_what_the_python_package_makes():
    python = venv("venv-gguf", "gguf==0.19.0", "numpy") / "python"
    path = subprocess.run([IBID, "pull", model()], capture_output=True, text=True, check=True).stdout.strip()
    with tempfile.TemporaryDirectory() as folder:
        for dtype in ("q4_0", "q8_0", "mxfp4", "bf16"):
            out = f"{folder}/{dtype}.gguf"
            quantize(model(), out, "--type", dtype, "--allow-requantize")
            done = subprocess.run([python, "-c", COMPARE, path, out], capture_output=True, text=True, timeout=600)
            assert done.returncode == 0 and int(done.stdout) > 200, done
            pathlib.Path(out).unlink()


def nll(path):
    done = subprocess.run([IBID, "perplexity", path, "-f", HERE.parent.parent / "LICENSE", "-n", "400"],
                          capture_output=True, text=True, check=True, timeout=300)
    return float(re.search(r"nll (\S+)", done.stdout).group(1))


def test_a_mixture_predicts_nearly_as_well():
    with tempfile.TemporaryDirectory() as folder:
        out = f"{folder}/q4_k_m.gguf"
        assert "Q6_K" in quantize(model(), out, "--allow-requantize")
        before, after = nll(model()), nll(out)
        assert before - 0.15 < after < before + 0.15, (before, after)
        return f"nll {before:.3f}, {after:.3f}"


def test_a_dry_run_shows_each_tensor_and_writes_nothing():
    told = quantize(model(), "--type", "q8_0", "--allow-requantize", "--dry-run", "--tensor-type", r"blk\.0\.attn_v=f16")
    assert re.search(r"^blk\.0\.attn_v\.weight .* -> F16 ", told, re.M) and re.search(r"^blk\.1\.attn_v\.weight .* -> Q8_0 ", told, re.M), told
    assert "not written: " in told, told


def test_it_refuses_by_name_and_writes_nothing():
    with tempfile.TemporaryDirectory() as folder:
        there, new = pathlib.Path(folder, "there.gguf"), pathlib.Path(folder, "new.gguf")
        there.write_text("mine")
        for said, code, arguments in (
                ("there already; --force", 1, (model(), there)),
                ("is a folder", 1, (model(), folder)),
                ("cannot open any", 1, (model(), new, "--imatrix", "any")),
                ("no GGUF file", 1, (model(), new, "--imatrix", there)),
                ("unknown value 'q9'", 2, (model(), new, "--type", "q9")),
                ("--allow-requantize", 1, (model(), new)),
                ("expected REGEX=TYPE", 2, (model(), new, "--tensor-type", "attn_v")),
                ("no file to write", 1, (model(),)),
                ("awq is for scales of groups", 2, (model(), new, "--type", "w8a8", "--search", "awq", "-f", there)),
                ("smoothquant is for w8a8", 2, (model(), new, "--type", "w4a16", "--search", "smoothquant", "-f", there)),
                ("from 0 to 1", 2, (model(), new, "--type", "w8a8", "--smoothing", "2")),
                ("is a GGUF file; a folder", 1, (model(), new, "--type", "w8a8")),
                ("cannot be averaged into 2", 1, (model(), new, "--kv-heads", "2")),
                ("cannot write", 1, (model(), pathlib.Path(folder, "not/here"), "--allow-requantize")),
                ("no GGUF file", 1, (there, new))):
            told = quantize(*arguments, code=code)
            assert said in told and told.startswith("error: "), told
        assert there.read_text() == "mine" and [p.name for p in pathlib.Path(folder).iterdir()] == ["there.gguf"]


if __name__ == "__main__":
    main(test_it_makes_what_the_python_package_makes, test_a_mixture_predicts_nearly_as_well,
         test_a_dry_run_shows_each_tensor_and_writes_nothing,
         test_it_refuses_by_name_and_writes_nothing)
