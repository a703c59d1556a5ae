#!/usr/bin/env python3
"""Writes the default model in other dtypes: bench/make_variants.py [Q4_0 Q8_0 F16 ...] [--model FILE] [--force]

All matrices are dequantised from the default model (Q4_1 with a Q8_0 embedding) and quantised again by the Python
package gguf. The tied embedding stays Q8_0 beside types of four and five bits, as other quantisers leave it; norms stay
F32. The files go to $XDG_CACHE_HOME/ibid/models/variants and are made once. Prints their paths.
"""
import argparse
import os
import sys
from pathlib import Path

MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"
DTYPES = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "F16", "BF16", "F32")


def cache_dir() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ibid" / "models"


def default_model() -> Path:
    return Path(os.environ.get("IBID_MODEL") or cache_dir() / MODEL)


def copy_fields(reader, writer) -> None:
    from gguf import GGUFValueType

    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type"):
            continue
        kind = field.types[0]
        value = field.contents()
        if kind == GGUFValueType.ARRAY:
            writer.add_array(name, value)
        else:
            writer.add_key_value(name, value, kind)


def write_variant(model: Path, dtype: str, out: Path) -> None:
    import gguf
    import numpy as np

    reader = gguf.GGUFReader(model)
    writer = gguf.GGUFWriter(None, arch=reader.fields["general.architecture"].contents())
    copy_fields(reader, writer)
    wanted = gguf.GGMLQuantizationType[dtype]
    for tensor in reader.tensors:
        keep = tensor.name == "token_embd.weight" and dtype.startswith(("Q4", "Q5"))
        if len(tensor.shape) < 2 or keep:
            writer.add_tensor(tensor.name, np.array(tensor.data), raw_dtype=tensor.tensor_type)
            continue
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        writer.add_tensor(tensor.name, gguf.quants.quantize(values, wanted), raw_dtype=wanted)
    part = out.with_suffix(".part")
    writer.write_header_to_file(path=part)
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    part.rename(out)


def variant(model: Path, dtype: str, force: bool = False) -> Path:
    """The path of the model in `dtype`, made if it is not there."""
    out = cache_dir() / "variants" / f"{model.name.removesuffix('.Q4_1.gguf')}.{dtype}.gguf"
    if force or not out.exists():
        out.parent.mkdir(parents=True, exist_ok=True)
        print(f"writing {out}", file=sys.stderr)
        write_variant(model, dtype, out)
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dtypes", nargs="*", metavar="DTYPE", help=f"of {', '.join(DTYPES)}; default Q4_0 Q8_0 F16")
    parser.add_argument("--model", type=Path, default=default_model())
    parser.add_argument("--force", action="store_true", help="make them again")
    args = parser.parse_args()
    dtypes = [d.upper() for d in args.dtypes] or ["Q4_0", "Q8_0", "F16"]
    for dtype in dtypes:
        if dtype not in DTYPES:
            print(f"{dtype} is not among {', '.join(DTYPES)}: rows of 576 hold no K-quants", file=sys.stderr)
            return 2
    if not args.model.exists():
        print(f"{args.model} is not there; run ./quickstart once or set IBID_MODEL", file=sys.stderr)
        return 2
    for dtype in dtypes:
        print(variant(args.model, dtype, args.force))
    return 0


if __name__ == "__main__":
    sys.exit(main())
