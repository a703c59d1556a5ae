#!/usr/bin/env python3
"""Packs an EAGLE head as its programs publish it (config.json, *.safetensors) into one GGUF file, for --spec eagle:FILE.

    pip install gguf numpy safetensors
    tools/pack_eagle.py FOLDER head.gguf [--type q8_0]

Names of tensors and keys of the configuration stay as they are, under the architecture "eagle"; t2d, which d2t implies,
is left out. `--type` is that of the matrices (f32, f16, bf16, q8_0, q4_0 or q4_1; without it each keeps its own).
Of a pytorch_model.bin tools/to_safetensors.py makes a model.safetensors first.
"""
import argparse
import json
import struct
import sys
from pathlib import Path

import gguf
import numpy as np

KINDS = {"f32": gguf.GGMLQuantizationType.F32, "f16": gguf.GGMLQuantizationType.F16,
         "bf16": gguf.GGMLQuantizationType.BF16, "q8_0": gguf.GGMLQuantizationType.Q8_0,
         "q4_0": gguf.GGMLQuantizationType.Q4_0, "q4_1": gguf.GGMLQuantizationType.Q4_1}
NUMBERS = {"F32": np.float32, "F16": np.float16, "I64": np.int64, "I32": np.int32}


def flat(value, key=""):
    """config.json with dots, as ibid reads folders."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from flat(inner, f"{key}.{name}" if key else name)
    elif value is not None and value != []:
        yield key, value


def add(writer, key, value):
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_int64(key, value)
    elif isinstance(value, float):
        writer.add_float64(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    elif isinstance(value, list) and all(isinstance(v, (int, float)) for v in value):
        writer.add_array(key, value)
    else:
        print(f"{key} is left out", file=sys.stderr)


def tensors(path):
    """Names, dtypes as safetensors writes them, and arrays; bf16 as float32."""
    data = path.read_bytes()
    (n,) = struct.unpack("<Q", data[:8])
    for name, entry in json.loads(data[8:8 + n]).items():
        if name == "__metadata__" or name == "t2d" or name.endswith(".rotary_emb.inv_freq"):
            continue
        begin, end = (8 + n + at for at in entry["data_offsets"])
        if entry["dtype"] == "BF16":
            numbers = (np.frombuffer(data[begin:end], np.uint16).astype(np.uint32) << 16).view(np.float32)
        elif entry["dtype"] in NUMBERS:
            numbers = np.frombuffer(data[begin:end], NUMBERS[entry["dtype"]])
        else:
            sys.exit(f"{path}: {name} is {entry['dtype']}; {', '.join(NUMBERS)} and BF16 are read")
        yield name, entry["dtype"], numbers.reshape(entry["shape"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--type", choices=KINDS)
    options = parser.parse_args()
    files = sorted(options.folder.glob("*.safetensors"))
    if not files:
        sys.exit(f"{options.folder} has no .safetensors file")
    writer = gguf.GGUFWriter(options.out, "eagle")
    for key, value in flat(json.loads((options.folder / "config.json").read_text(encoding="utf-8"))):
        add(writer, key, value)
    for path in files:
        for name, dtype, x in tensors(path):
            if x.dtype in (np.int64, np.int32):
                writer.add_tensor(name, x)
                continue
            is_matrix = x.ndim == 2
            own = {"BF16": "bf16", "F16": "f16"}.get(dtype, "f32")
            kind = KINDS[options.type or own] if is_matrix else KINDS["f32"]
            packed = gguf.quants.quantize(np.ascontiguousarray(x, np.float32), kind)
            writer.add_tensor(name, packed, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    print(f"{options.out}: {options.out.stat().st_size / 1e6:.1f} MB")


main()
