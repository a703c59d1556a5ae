"""tools/to_safetensors.py over checkpoints as PyTorch writes them, damaged ones and hostile ones. PyTorch is not needed: modules of
its names write the same pickles. to_safetensors_test.py SOURCE_DIR
"""
import io
import json
import pathlib
import pickle
import random
import struct
import subprocess
import sys
import tempfile
import types
import zipfile
from collections import OrderedDict

SOURCE = pathlib.Path(sys.argv[1]).resolve()
TORCH, UTILS = types.ModuleType("torch"), types.ModuleType("torch._utils")
sys.modules["torch"], sys.modules["torch._utils"] = TORCH, UTILS


def _rebuild_tensor_v2(*_):
    raise AssertionError("only named, never called")


_rebuild_tensor_v2.__module__, UTILS._rebuild_tensor_v2 = "torch._utils", _rebuild_tensor_v2
for kind in ("FloatStorage", "BFloat16Storage", "LongStorage"):
    setattr(TORCH, kind, type(kind, (), {"__module__": "torch"}))


class Numbers:
    """A storage: what the pickle refers to instead of having it."""

    def __init__(self, kind, key, n):
        self.id = ("storage", getattr(TORCH, kind), key, "cpu", n)


class Made:
    def __init__(self, storage, first, shape, strides):
        self.args = (storage, first, shape, strides, False, OrderedDict())

    def __reduce__(self):
        return _rebuild_tensor_v2, self.args


class Calls:
    def __init__(self, function, *args):
        self.call = function, args

    def __reduce__(self):
        return self.call


class Writer(pickle.Pickler):
    def persistent_id(self, said):
        return said.id if isinstance(said, Numbers) else None


def pickled(said):
    out = io.BytesIO()
    Writer(out, 2).dump(said)
    return out.getvalue()


def checkpoint(path, program, data, compression=zipfile.ZIP_STORED, order=b"little"):
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("archive/data.pkl", program)
        archive.writestr("archive/byteorder", order)
        for key, content in data.items():
            archive.writestr(f"archive/data/{key}", content)


def convert(folder, path):
    """Exit code, output, and the file's tensors: dtype, shape, bytes."""
    target = folder / "out.safetensors"
    target.unlink(missing_ok=True)
    done = subprocess.run([sys.executable, SOURCE / "tools" / "to_safetensors.py", path, target], capture_output=True, text=True)
    assert "Traceback" not in done.stderr, done.stderr
    if not target.exists():
        return done.returncode, done.stderr, {}
    content = target.read_bytes()
    (n,) = struct.unpack("<Q", content[:8])
    assert n % 8 == 0
    header = json.loads(content[8:8 + n])
    begin = 8 + n
    return done.returncode, done.stderr, {
        name: (x["dtype"], x["shape"], content[begin + x["data_offsets"][0]:begin + x["data_offsets"][1]]) for name, x in header.items()}


FLOATS = struct.pack("<12f", *range(12))
HALVES = bytes(range(12))
LONGS = struct.pack("<5q", *range(5))
DATA = {"0": FLOATS, "1": HALVES, "2": LONGS}


def state(floats=("FloatStorage", "0", 12)):
    said = OrderedDict()
    said["layers.0.weight"] = Made(Numbers(*floats), 0, (3, 4), (4, 1))
    said["layers.0.tail"] = Made(Numbers(*floats), 8, (4,), (1,))  # of the same numbers
    said["fc.weight"] = Made(Numbers("BFloat16Storage", "1", 6), 0, (2, 3), (3, 1))
    said["d2t"] = Made(Numbers("LongStorage", "2", 5), 0, (5,), (1,))
    said._metadata = OrderedDict(version=1)  # as modules have it
    return said


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    path = folder / "pytorch_model.bin"

    checkpoint(path, pickled({**state(), "epoch": 3}), DATA)
    code, said, tensors = convert(folder, path)
    assert code == 0 and "'epoch'" in said, said
    assert tensors == {"layers.0.weight": ("F32", [3, 4], FLOATS), "layers.0.tail": ("F32", [4], FLOATS[32:]),
                       "fc.weight": ("BF16", [2, 3], HALVES), "d2t": ("I64", [5], LONGS)}, tensors
    checkpoint(path, pickled(state()), DATA)
    assert convert(folder, path)[0] == 0

    # What a pickle calls is refused by name and not called.
    witness = folder / "witness"
    for hostile in (Calls(__import__("os").system, f"touch {witness}"), Calls(eval, f"open({str(witness)!r}, 'w')"),
                    Calls(getattr, TORCH.FloatStorage, "mro"), Calls(subprocess.Popen, ["touch", str(witness)])):
        checkpoint(path, pickled({"a": hostile}), DATA)
        code, said, _ = convert(folder, path)
        assert code == 1 and "which no dictionary of tensors needs" in said and not witness.exists(), said

    def refused(why, program, data=None, **more):
        checkpoint(path, program, DATA if data is None else data, **more)
        code, said, tensors = convert(folder, path)
        assert code == 1 and why in said and not tensors, (why, said)

    refused("longer than its numbers", pickled({"a": Made(Numbers("FloatStorage", "0", 12), 1, (3, 4), (4, 1))}))
    refused("not lie in their order", pickled({"a": Made(Numbers("FloatStorage", "0", 12), 0, (4, 3), (1, 4))}))
    refused("numbers that it should", pickled(state(("FloatStorage", "0", 13))))
    refused("numbers that it should", pickled(state()), compression=zipfile.ZIP_DEFLATED)
    refused("cannot be read", pickled(state()), {"0": FLOATS, "1": HALVES})
    refused("something else than numbers", pickled({"a": Made(3, 0, (1,), (1,))}))
    refused("without a length", pickled({"a": Made(Numbers("FloatStorage", "0", -1), 0, (0,), (1,))}))
    refused("order of bytes", pickled(state()), order=b"big")
    refused("no dictionary", pickled([1, 2]))
    refused("no tensors", pickled({"a": 1}))
    refused("cannot be read", b"\x80\x02}q\x00(X")
    path.write_bytes(b"no zip at all")
    assert convert(folder, path)[0] == 1

    # Damaged in a byte or cut: an error or the same numbers, never more.
    random.seed(1)
    good = pickled(state())
    for _ in range(40):
        damaged = bytearray(good)
        damaged[random.randrange(len(damaged))] = random.randrange(256)
        checkpoint(path, bytes(damaged[:random.choice((len(damaged), random.randrange(len(damaged))))]), DATA)
        code, said, tensors = convert(folder, path)
        assert code in (0, 1) and not list(folder.glob("*.part")), said
print("ok")
