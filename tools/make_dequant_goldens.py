#!/usr/bin/env python3
"""Writes src/tensor/testdata/quants.txt: what the Python package `gguf` makes of blocks with extreme codes and scales.

    python3 -m pip install gguf numpy
    python3 tools/make_dequant_goldens.py LIBGGML > src/tensor/testdata/quants.txt

LIBGGML is a shared library of ggml (libggml-base.so of llama.cpp, or the extension module of the package `xllamacpp`).
It dequantises what `gguf` does not know, Q1_0 and Q2_0, and has to agree with the package on all other types of
LOW_BITS.

The inputs come from a generator that src/tensor/quants_test.cc repeats (splitmix64 by index, then the rules of
`blocks` and `floats` below), so that the file holds hashes: SHA-256 over the float32 results with every NaN written as
0x7fc00000, or over the quantised bytes. A few blocks are there in full, to debug a failure.
"""
import ctypes
import hashlib
import sys

import numpy as np
from gguf import GGMLQuantizationType as T
from gguf.constants import GGML_QUANT_SIZES
from gguf.quants import dequantize, quantize

N_BLOCKS = 2048
DEQUANT = "F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS MXFP4".split()
# ggml's numbers of the types that are compared with it too.
LOW_BITS = {"IQ1_S": 19, "IQ1_M": 29, "IQ2_XXS": 16, "IQ2_XS": 17, "IQ2_S": 22, "IQ3_XXS": 18, "IQ3_S": 21, "TQ1_0": 34,
            "TQ2_0": 35, "NVFP4": 40, "Q1_0": 41, "Q2_0": 42}
NOT_IN_GGUF = {"Q1_0": (128, 18), "Q2_0": (64, 18)}
QUANT = "F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 MXFP4".split()
# Byte offsets of the half-precision fields of a block.
HALVES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0], "MXFP4": [], "F16": [], "BF16": [],
          "IQ1_S": [0], "IQ1_M": [], "IQ2_XXS": [0], "IQ2_XS": [0], "IQ2_S": [0], "IQ3_XXS": [0], "IQ3_S": [0],
          "TQ1_0": [52], "TQ2_0": [64], "NVFP4": [], "Q1_0": [0], "Q2_0": [0]}
# +-0, subnormals, the smallest normal, +-the largest, +-infinity, NaNs, one, a subnormal below zero.
SPECIAL = np.array([0x0000, 0x8000, 0x0001, 0x03FF, 0x0400, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0xFE01, 0x3C00, 0x8001],
                   dtype=np.uint16)
EXPONENTS = np.array([0, 1, 2, 127, 254, 255], dtype=np.uint8)


def splitmix64(seed, n):
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + (np.arange(n, dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def blocks(name, seed):
    """Random bytes. Odd blocks have special scales; of these every second has all codes zero or all ones, before."""
    block_len, block_bytes = NOT_IN_GGUF.get(name) or GGML_QUANT_SIZES[T[name]]
    n = N_BLOCKS if block_len > 1 else 65536
    if block_len == 1:
        return np.arange(n, dtype=np.uint16).view(np.uint8).reshape(n, 2).copy()  # every half there is
    raw = (splitmix64(seed, n * block_bytes) >> np.uint64(56)).astype(np.uint8).reshape(n, block_bytes)
    for k in range(1, n, 2):
        if k % 8 == 3:
            raw[k] = 0
        elif k % 8 == 7:
            raw[k] = 255
        for j, at in enumerate(HALVES[name]):
            raw[k, at:at + 2] = SPECIAL[(k // 2 // len(SPECIAL) ** j) % len(SPECIAL)].reshape(1).view(np.uint8)
        if name == "MXFP4":
            raw[k, 0] = EXPONENTS[(k // 2) % len(EXPONENTS)]
    return raw


def floats(seed):
    """Blocks of 32 by kind, k % 8: 0 zeros, 1 one value, 2 huge, 3 tiny, 4 the same magnitude, 5 one sign, 6-7 plain."""
    r = splitmix64(seed, N_BLOCKS * 32).reshape(N_BLOCKS, 32)
    sign = (r >> np.uint64(63)).astype(np.uint32)
    fraction = (r & np.uint64(0x7FFFFF)).astype(np.uint32)
    spread = ((r >> np.uint64(32)) & np.uint64(7)).astype(np.uint32)
    out = np.zeros((N_BLOCKS, 32), dtype=np.uint32)
    for k in range(N_BLOCKS):
        kind = k % 8
        base = {2: 140, 3: 25}.get(kind, 118)
        s, f, e = sign[k].copy(), fraction[k].copy(), base + spread[k]
        if kind == 1:
            s[:], f[:], e[:] = s[0], f[0], e[0]
        elif kind == 4:
            f[:], e[:] = f[0], e[0]
        elif kind == 5:
            s[:] = s[0]
        out[k] = 0 if kind == 0 else (s << np.uint32(31)) | (e.astype(np.uint32) << np.uint32(23)) | f
    return out.view(np.float32)


def canonical(values):
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32).copy()
    bits[np.isnan(values)] = 0x7FC00000
    return bits


class Traits(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("block_len", ctypes.c_int64), ("interleave", ctypes.c_int64),
                ("block_bytes", ctypes.c_size_t), ("is_quantised", ctypes.c_bool),
                ("to_float", ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64))]


def by_ggml(lib, number, raw):
    lib.ggml_get_type_traits.restype = ctypes.POINTER(Traits)
    traits = lib.ggml_get_type_traits(number).contents
    assert raw.shape[1] == traits.block_bytes, traits.name
    raw = np.ascontiguousarray(raw)
    out = np.empty((raw.shape[0], traits.block_len), dtype=np.float32)
    traits.to_float(raw.ctypes.data, out.ctypes.data, out.size)
    return out


def main():
    lib = ctypes.CDLL(sys.argv[1])
    print("# Made by tools/make_dequant_goldens.py; see there.")
    print("# dequantise TYPE SEED SHA-256 | block TYPE BYTES FLOAT-BITS | quantise TYPE SEED SHA-256")
    for seed, name in enumerate(DEQUANT, start=1):
        raw = blocks(name, seed)
        with np.errstate(all="ignore"):
            values = dequantize(raw.reshape(-1), T[name]).reshape(raw.shape[0], -1)
        bits = canonical(values)
        print("dequantise", name, seed, hashlib.sha256(bits.tobytes()).hexdigest())
        if GGML_QUANT_SIZES[T[name]][0] == 32:
            print("block", name, raw[0].tobytes().hex(), bits[0].astype(">u4").tobytes().hex())
    for seed, (name, number) in enumerate(LOW_BITS.items(), start=51):
        raw = blocks(name, seed)
        bits = canonical(by_ggml(lib, number, raw))
        if name not in NOT_IN_GGUF:
            with np.errstate(all="ignore"):
                assert (bits == canonical(dequantize(raw.reshape(-1), T[name]).reshape(bits.shape))).all(), name
        print("dequantise", name, seed, hashlib.sha256(bits.tobytes()).hexdigest())
    for seed, name in enumerate(QUANT, start=101):
        with np.errstate(all="ignore"):
            packed = quantize(floats(seed), T[name])
        print("quantise", name, seed, hashlib.sha256(np.ascontiguousarray(packed).tobytes()).hexdigest())


if __name__ == "__main__":
    sys.exit(main())
