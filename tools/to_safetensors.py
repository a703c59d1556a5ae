#!/usr/bin/env python3
"""Makes a safetensors file of a checkpoint that PyTorch pickled, without PyTorch and without running its code.

    tools/to_safetensors.py pytorch_model.bin model.safetensors

Public draft heads often come as pytorch_model.bin or medusa_lm_head.pt, and older models too. Such a file is a zip of numbers
and of a pickle that describes them; a pickle is a program that names functions and calls them. Here it may name only the parts
of a dictionary of tensors, and its calls only record where a tensor's numbers lie.
"""
import argparse
import json
import math
import os
import pickle
import sys
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import NamedTuple

DTYPES = {"DoubleStorage": ("F64", 8), "FloatStorage": ("F32", 4), "HalfStorage": ("F16", 2), "BFloat16Storage": ("BF16", 2),
          "LongStorage": ("I64", 8), "IntStorage": ("I32", 4), "ShortStorage": ("I16", 2), "CharStorage": ("I8", 1),
          "ByteStorage": ("U8", 1), "BoolStorage": ("BOOL", 1)}
LONGEST_PICKLE = 64 << 20


class Refused(Exception):
    pass


class Storage(NamedTuple):
    dtype: str
    item: int  # bytes
    key: str   # of the zip's member
    n: int


class Tensor(NamedTuple):
    storage: Storage
    first: int
    shape: tuple


def tensor(storage, first, shape, strides, *_):
    """torch._utils._rebuild_tensor_v2, as a note."""
    shape, strides = tuple(shape), tuple(strides)
    whole = all(isinstance(n, int) and n >= 0 for n in (first, *shape, *strides)) and len(shape) == len(strides)
    if not isinstance(storage, Storage) or not whole:
        raise Refused("a tensor is made of something else than numbers of this file")
    step = 1
    for n, stride in zip(reversed(shape), reversed(strides)):
        if n != 1 and stride != step:
            raise Refused("a tensor's numbers do not lie in their order")
        step *= max(n, 1)
    if first + math.prod(shape) > storage.n:
        raise Refused("a tensor is longer than its numbers")
    return Tensor(storage, first, shape)


class Notes(pickle.Unpickler):
    """Reads a state dictionary. Every other name in the pickle is refused before it is looked up."""

    def find_class(self, module, name):
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return tensor
        if (module, name) == ("torch._utils", "_rebuild_parameter"):
            return lambda data, *_: data
        if module == "torch" and name in DTYPES:
            return name
        raise Refused(f"it names {module}.{name}, which no dictionary of tensors needs")

    def persistent_load(self, pid):
        if not isinstance(pid, tuple) or len(pid) != 5 or pid[0] != "storage" or pid[1] not in DTYPES:
            raise Refused("it refers to something else than numbers")
        _, kind, key, _, n = pid
        if not isinstance(n, int) or n < 0:
            raise Refused("it has numbers without a length")
        return Storage(*DTYPES[kind], str(key), n)


def read_notes(archive):
    """The folder of the zip's members, and tensors by name."""
    pickles = [name for name in archive.namelist() if name.endswith("data.pkl")]
    if len(pickles) != 1:
        raise Refused("it is no checkpoint of one pickle; PyTorch before 1.6 wrote others")
    folder = pickles[0][: -len("data.pkl")]
    if folder + "byteorder" in archive.namelist() and archive.read(folder + "byteorder") != b"little":
        raise Refused("its numbers have another order of bytes")
    if archive.getinfo(pickles[0]).file_size > LONGEST_PICKLE:
        raise Refused(f"its pickle is longer than {LONGEST_PICKLE >> 20} MiB")
    with archive.open(pickles[0]) as file:
        found = Notes(file).load()
    if not isinstance(found, dict):
        raise Refused("it is no dictionary of tensors")
    tensors = {name: x for name, x in found.items() if isinstance(name, str) and isinstance(x, Tensor)}
    for name in found.keys() - tensors.keys():
        print(f"{name!r} is no tensor and left out", file=sys.stderr)
    if not tensors:
        raise Refused("it has no tensors")
    return folder, tensors


def numbers(archive, folder, x):
    """The bytes of a tensor."""
    member = archive.getinfo(f"{folder}data/{x.storage.key}")
    if member.compress_type != zipfile.ZIP_STORED or member.file_size < x.storage.n * x.storage.item:
        raise Refused(f"{member.filename} does not hold the numbers that it should")
    with archive.open(member) as file:
        file.seek(x.first * x.storage.item)
        return file.read(math.prod(x.shape) * x.storage.item)


def convert(source, target):
    with zipfile.ZipFile(source) as archive:
        folder, tensors = read_notes(archive)
        header, end = {}, 0
        for name, x in sorted(tensors.items()):
            begin, end = end, end + math.prod(x.shape) * x.storage.item
            header[name] = {"dtype": x.storage.dtype, "shape": list(x.shape), "data_offsets": [begin, end]}
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        unfinished = target.with_name(target.name + ".part")
        try:
            with open(unfinished, "wb") as out:
                out.write(len(text).to_bytes(8, "little") + text)
                for _, x in sorted(tensors.items()):
                    out.write(numbers(archive, folder, x))
            os.replace(unfinished, target)
        finally:
            unfinished.unlink(missing_ok=True)
    print(f"{target}: {len(tensors)} tensors, {target.stat().st_size / 1e6:.1f} MB")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    options = parser.parse_args()
    # A damaged pickle may fail at any of its instructions.
    try:
        convert(options.source, options.target)
    except Refused as refusal:
        sys.exit(f"{options.source}: {refusal}")
    except (zipfile.BadZipFile, pickle.UnpicklingError, OSError, EOFError, KeyError, IndexError, AttributeError, TypeError,
            ValueError, MemoryError, ArithmeticError, RuntimeError) as error:
        sys.exit(f"{options.source} cannot be read as a checkpoint: {error}")


main()
