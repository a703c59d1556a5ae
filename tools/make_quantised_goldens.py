#!/usr/bin/env python3
"""Makes tests/golden/quantised: one tiny llama as folders of every quantised kind that ibid reads, and digests of what
their matrices dequantise to.

    python3 -m venv v && v/bin/pip install -r tools/requirements-golden.txt
    v/bin/python tools/make_quantised_goldens.py        # all of them, or those named

Codes, scales and zeros are random (fixed seeds). A matrix's value comes from the package that writes the format:
compressed-tensors' compressors, bitsandbytes' CPU library and MLX; of GPTQ, AWQ, DeepSeek's FP8 and ModelOpt, whose
packages need other hardware or no longer install, from their formulas, written element by element here (with
--autoawq FOLDER, that package's awq/utils/packing_utils.py is compared too). A line of digests.txt: folder, matrix,
type that the reference has, SHA-256 of its values + 0 as F32.
"""
import hashlib
import importlib.util
import json
import sys
from pathlib import Path

import bitsandbytes.functional as bnb
import mlx.core as mx
import numpy as np
import torch
from compressed_tensors.compressors import (FloatQuantizationCompressor, IntQuantizationCompressor,
                                            MXFP4PackedCompressor, MXFP8QuantizationCompressor, NVFP4PackedCompressor,
                                            PackedQuantizationCompressor)
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from safetensors.torch import save_file

ROOT = Path(__file__).resolve().parent.parent / "tests" / "golden" / "quantised"
WIDTH, FFN, HEADS, KV_HEADS, VOCABULARY = 64, 160, 4, 2, 32
HEAD = WIDTH // HEADS
LAYER = "model.layers.0."
MATRICES = {"self_attn.q_proj": (WIDTH, WIDTH), "self_attn.k_proj": (KV_HEADS * HEAD, WIDTH),
            "self_attn.v_proj": (KV_HEADS * HEAD, WIDTH), "self_attn.o_proj": (WIDTH, WIDTH),
            "mlp.gate_proj": (FFN, WIDTH), "mlp.up_proj": (FFN, WIDTH), "mlp.down_proj": (WIDTH, FFN)}
KINDS = {}
AWQ = None  # the package's packing_utils


def kind(recipe, where="quantization_config"):
    def add(make):
        KINDS[make.__name__] = (make, recipe, where)
        return make
    return add


def floats(rng, *shape, at=0.1):
    return torch.from_numpy((rng.standard_normal(shape) * at).astype(np.float32))


def scales_of(rng, *shape, dtype):
    return torch.from_numpy(rng.uniform(0.003, 0.02, shape).astype(np.float32)).to(dtype)


def codes_of(rng, bits, *shape):
    return rng.integers(0, 1 << bits, shape)


def words(codes, bits, axis):
    """Dense codes in words of 32 bits along an axis, low bits first."""
    codes = np.moveaxis(np.asarray(codes, dtype=np.uint8), axis, 0)
    stream = ((codes[:, None] >> np.arange(bits).reshape(1, bits, *[1] * (codes.ndim - 1))) & 1)
    stream = stream.reshape(-1, *codes.shape[1:])
    stream = np.concatenate([stream, np.zeros((-len(stream) % 32, *stream.shape[1:]), dtype=stream.dtype)])
    stream = stream.reshape(-1, 32, *stream.shape[1:]).astype(np.uint64)
    packed = (stream << np.arange(32, dtype=np.uint64).reshape(1, 32, *[1] * (codes.ndim - 1))).sum(1)
    return torch.from_numpy(np.ascontiguousarray(np.moveaxis(packed.astype(np.uint32).view(np.int32), 0, axis)))


# --- GPTQ ---
def gptq(rng, n, k, bits, group, symmetric, version=1, order=False):
    group = group if group > 0 else k
    g_of = np.arange(k) // group
    if order:
        g_of = rng.permutation(g_of)
    n_groups = -(-k // group)
    codes = codes_of(rng, bits, k, n)
    zeros = np.full((n_groups, n), 1 << (bits - 1)) if symmetric else codes_of(rng, bits, n_groups, n)
    if bits == 3 and not symmetric:
        zeros = zeros + 1  # AutoGPTQ's kernels do not mask what they add; gptqmodel's constants of three bits differ
    scales = scales_of(rng, n_groups, n, dtype=torch.float16)
    # Of symmetric files some store the zeros of version 2 under the name of version 1: they are not to be read.
    stored = words(zeros - 1 if bits == 3 and not symmetric else zeros, bits, 1)
    if version == 1 and bits != 3 and not symmetric:  # gptqmodel's convert_gptq_v2_to_v1_format
        less = np.uint32(0xffffffff // ((1 << bits) - 1))
        stored = torch.from_numpy((stored.numpy().view(np.uint32) - less).view(np.int32))
    difference = torch.from_numpy(codes - zeros[g_of]).to(torch.float16)
    value = (scales[torch.from_numpy(g_of)] * difference).T
    return {"qweight": words(codes, bits, 0), "qzeros": stored, "scales": scales,
            "g_idx": torch.from_numpy(g_of.astype(np.int32))}, value


def gptq_recipe(bits, group, symmetric, **more):
    return dict(quant_method="gptq", bits=bits, group_size=group, sym=symmetric, desc_act=False, **more)


@kind(gptq_recipe(4, 32, True))
def gptq4(rng, n, k):
    return gptq(rng, n, k, 4, 32, True)


@kind(gptq_recipe(4, 32, False))
def gptq4_zeros(rng, n, k):
    return gptq(rng, n, k, 4, 32, False)


@kind(gptq_recipe(4, -1, False, checkpoint_format="gptq_v2"))
def gptq4_v2(rng, n, k):
    tensors, value = gptq(rng, n, k, 4, -1, False, version=2)
    del tensors["g_idx"]
    return tensors, value


@kind(dict(gptq_recipe(4, 32, True), desc_act=True), "quantize_config.json")
def gptq4_order(rng, n, k):
    return gptq(rng, n, k, 4, 32, True, order=True)


@kind(gptq_recipe(8, 32, True))
def gptq8(rng, n, k):
    return gptq(rng, n, k, 8, 32, True)


@kind(gptq_recipe(8, 32, False))
def gptq8_zeros(rng, n, k):
    return gptq(rng, n, k, 8, 32, False)


@kind(gptq_recipe(3, 32, False))
def gptq3_zeros(rng, n, k):
    return gptq(rng, n, k, 3, 32, False)


@kind(gptq_recipe(4, 32, True, dynamic={"+:.*mlp.*": {"bits": 2, "group_size": 16}}))
def gptq2_dynamic(rng, n, k):
    return gptq(rng, n, k, 2, 16, True) if FFN in (n, k) else gptq(rng, n, k, 4, 32, True)


# --- AWQ ---
@kind(dict(quant_method="awq", bits=4, group_size=32, zero_point=True, version="gemm"))
def awq4(rng, n, k):
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    codes, zeros = codes_of(rng, 4, k, n), codes_of(rng, 4, -(-k // 32), n)
    scales = scales_of(rng, -(-k // 32), n, dtype=torch.float16)

    def packed(x):
        return words(x.reshape(len(x), -1, 8)[:, :, order].reshape(len(x), -1), 4, 1)
    g_of = np.arange(k) // 32
    value = torch.from_numpy(codes - zeros[g_of]).to(torch.float16) * scales[torch.from_numpy(g_of)]
    if AWQ is not None:
        theirs = AWQ.dequantize_gemm(packed(codes), packed(zeros), scales, 4, 32)
        assert torch.equal(theirs, value), "autoawq dequantises otherwise"
    return {"qweight": packed(codes), "qzeros": packed(zeros), "scales": scales}, value.T


# --- compressed-tensors ---
def group(format, **weights):
    return dict(quant_method="compressed-tensors", format=format, ignore=["lm_head"], quantization_status="compressed",
                config_groups={"group_0": {"targets": ["Linear"], "weights": weights}}, sparsity_config={},
                transform_config={})


def compressed(compressor, recipe, state):
    scheme = QuantizationScheme(targets=["Linear"],
                                weights=QuantizationArgs(**recipe["config_groups"]["group_0"]["weights"]))
    packed = compressor.compress(state, scheme)
    value = compressor.decompress({name: t.clone() for name, t in packed.items()}, scheme)["weight"]
    return packed, value


def ct_integers(compressor, recipe, rng, n, k, groups, dtype=torch.bfloat16):
    weights = recipe["config_groups"]["group_0"]["weights"]
    half = 1 << (weights["num_bits"] - 1)
    n_groups = k // weights["group_size"] if groups else 1
    state = {"weight": floats(rng, n, k).to(dtype), "weight_scale": scales_of(rng, n, n_groups, dtype=dtype)}
    if not weights["symmetric"]:
        state["weight_zero_point"] = torch.from_numpy(rng.integers(-half, half, (n, n_groups)).astype(np.int8))
    return compressed(compressor, recipe, state)


CT4 = group("pack-quantized", num_bits=4, type="int", symmetric=True, strategy="group", group_size=32)
CT4_ZEROS = group("pack-quantized", num_bits=4, type="int", symmetric=False, strategy="group", group_size=32)
CT8 = group("pack-quantized", num_bits=8, type="int", symmetric=True, strategy="channel")
CT3 = group("pack-quantized", num_bits=3, type="int", symmetric=True, strategy="group", group_size=32)
CT_INT8 = group("int-quantized", num_bits=8, type="int", symmetric=True, strategy="channel")
CT_FP8 = group("float-quantized", num_bits=8, type="float", symmetric=True, strategy="channel")
CT_FP8_TENSOR = group("float-quantized", num_bits=8, type="float", symmetric=True, strategy="tensor")
CT_FP8_BLOCK = group("float-quantized", num_bits=8, type="float", symmetric=True, strategy="block",
                     block_structure=[128, 128])
CT_NVFP4 = group("nvfp4-pack-quantized", num_bits=4, type="float", symmetric=True, strategy="tensor_group",
                 group_size=16, scale_dtype="torch.float8_e4m3fn", zp_dtype="torch.float8_e4m3fn")
CT_MXFP4 = group("mxfp4-pack-quantized", num_bits=4, type="float", symmetric=True, strategy="group", group_size=32,
                 scale_dtype="torch.uint8", zp_dtype="torch.uint8")
CT_MXFP8 = group("mxfp8-quantized", num_bits=8, type="float", symmetric=True, strategy="group", group_size=32,
                 scale_dtype="torch.uint8", zp_dtype="torch.uint8")


@kind(CT4)
def ct4(rng, n, k):
    return ct_integers(PackedQuantizationCompressor, CT4, rng, n, k, True)


@kind(CT4_ZEROS)
def ct4_zeros(rng, n, k):
    return ct_integers(PackedQuantizationCompressor, CT4_ZEROS, rng, n, k, True)


@kind(CT8)
def ct8(rng, n, k):
    return ct_integers(PackedQuantizationCompressor, CT8, rng, n, k, False)


@kind(CT3)
def ct3(rng, n, k):
    return ct_integers(PackedQuantizationCompressor, CT3, rng, n, k, True)


@kind(CT_INT8)
def ct_int8(rng, n, k):
    return ct_integers(IntQuantizationCompressor, CT_INT8, rng, n, k, False)


def ct_float8(recipe, rng, n, k, *shape):
    return compressed(FloatQuantizationCompressor, recipe,
                      {"weight": floats(rng, n, k).bfloat16(),
                       "weight_scale": scales_of(rng, *shape, dtype=torch.bfloat16)})


@kind(CT_FP8)
def ct_fp8(rng, n, k):
    return ct_float8(CT_FP8, rng, n, k, n, 1)


@kind(CT_FP8_TENSOR)
def ct_fp8_tensor(rng, n, k):
    packed, value = ct_float8(CT_FP8_TENSOR, rng, n, k, 1)
    return dict(packed, input_scale=torch.ones(1)), value


@kind(CT_FP8_BLOCK)
def ct_fp8_block(rng, n, k):
    return ct_float8(CT_FP8_BLOCK, rng, n, k, -(-n // 128), -(-k // 128))


@kind(CT_NVFP4)
def ct_nvfp4(rng, n, k):
    scale = torch.from_numpy(rng.uniform(2, 400, (n, k // 16)).astype(np.float32)).to(torch.float8_e4m3fn)
    state = {"weight": floats(rng, n, k).bfloat16(), "weight_scale": scale.float(),
             "weight_global_scale": torch.tensor([float(rng.uniform(5000, 9000))])}
    packed, _ = compressed(NVFP4PackedCompressor, CT_NVFP4, state)
    packed["weight_scale"] = scale
    scheme = QuantizationScheme(targets=["Linear"],
                                weights=QuantizationArgs(**CT_NVFP4["config_groups"]["group_0"]["weights"]))
    return packed, NVFP4PackedCompressor.decompress({name: t.clone() for name, t in packed.items()}, scheme)["weight"]


@kind(CT_MXFP4)
def ct_mxfp4(rng, n, k):
    scale = torch.from_numpy(2.0 ** rng.integers(-9, -4, (n, k // 32)).astype(np.float32)).bfloat16()
    return compressed(MXFP4PackedCompressor, CT_MXFP4, {"weight": floats(rng, n, k).bfloat16(), "weight_scale": scale})


@kind(CT_MXFP8)
def ct_mxfp8(rng, n, k):
    scale = torch.from_numpy(2.0 ** rng.integers(-12, -8, (n, k // 32)).astype(np.float32)).bfloat16()
    return compressed(MXFP8QuantizationCompressor, CT_MXFP8,
                      {"weight": floats(rng, n, k).bfloat16(), "weight_scale": scale})


# --- FP8 of DeepSeek, AutoFP8 and fbgemm; ModelOpt ---
def float8(rng, n, k):
    return floats(rng, n, k, at=40.0).clamp(-448, 448).to(torch.float8_e4m3fn)


@kind(dict(quant_method="fp8", activation_scheme="dynamic", weight_block_size=[128, 128], fmt="e4m3"))
def fp8_block(rng, n, k):
    codes = float8(rng, n, k)
    scale = scales_of(rng, -(-n // 128), -(-k // 128), dtype=torch.float32) * 0.1
    value = codes.float() * scale.repeat_interleave(128, 0)[:n].repeat_interleave(128, 1)[:, :k]
    return {"weight": codes, "weight_scale_inv": scale}, value.bfloat16()


@kind(dict(quant_method="fp8", activation_scheme="static"))
def fp8_tensor(rng, n, k):
    codes, scale = float8(rng, n, k), scales_of(rng, dtype=torch.float32) * 0.1
    return {"weight": codes, "weight_scale": scale, "input_scale": torch.tensor(0.5)}, (codes.float() * scale).bfloat16()


@kind(dict(quant_method="fbgemm_fp8", activation_scale_ub=1200.0))
def fbgemm(rng, n, k):
    codes, scale = float8(rng, n, k), scales_of(rng, n, 1, dtype=torch.float32) * 0.1
    return {"weight": codes, "weight_scale": scale}, (codes.float() * scale).bfloat16()


@kind(dict(quantization=dict(quant_algo="NVFP4", kv_cache_quant_algo="FP8", group_size=16, exclude_modules=["lm_head"])),
      "hf_quant_config.json")
def modelopt_nvfp4(rng, n, k):
    codes = codes_of(rng, 4, n, k)
    scale = torch.from_numpy(rng.uniform(2, 400, (n, k // 16)).astype(np.float32)).to(torch.float8_e4m3fn)
    second = torch.tensor(float(rng.uniform(1e-4, 2e-4)))
    packed = torch.from_numpy((codes[:, 0::2] | codes[:, 1::2] << 4).astype(np.uint8))
    value = e2m1(codes) * (scale.float() * second).repeat_interleave(16, 1)
    return {"weight": packed, "weight_scale": scale, "weight_scale_2": second, "input_scale": torch.tensor(0.5)}, \
        value.bfloat16()


def e2m1(codes):
    values = torch.tensor([0, .5, 1, 1.5, 2, 3, 4, 6])
    values = torch.cat([values, -values])
    return values[torch.from_numpy(np.asarray(codes, dtype=np.int64))]


# --- bitsandbytes ---
def four_bits(rng, n, k, quant_type, nested, dtype=torch.bfloat16):
    packed, state = bnb.quantize_4bit(floats(rng, n, k).to(dtype), quant_type=quant_type, compress_statistics=nested,
                                      blocksize=64)
    value = bnb.dequantize_4bit(packed.clone(), state)
    return {"weight": packed, **{f"weight.{name}": t for name, t in state.as_dict(packed=True).items()}}, value


@kind(dict(quant_method="bitsandbytes", load_in_4bit=True, bnb_4bit_quant_type="nf4"))
def bnb_nf4(rng, n, k):
    return four_bits(rng, n, k, "nf4", False)


@kind(dict(quant_method="bitsandbytes", load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True))
def bnb_nf4_nested(rng, n, k):
    return four_bits(rng, n, k, "nf4", True, torch.float32)


@kind(dict(quant_method="bitsandbytes", load_in_4bit=True, bnb_4bit_quant_type="fp4"))
def bnb_fp4(rng, n, k):
    return four_bits(rng, n, k, "fp4", False, torch.float16)


@kind(dict(quant_method="bitsandbytes", load_in_8bit=True, llm_int8_threshold=6.0))
def bnb_int8(rng, n, k):
    codes, absmax, _ = bnb.int8_vectorwise_quant(floats(rng, n, k).half())
    value = bnb.int8_vectorwise_dequant(codes, absmax)
    return {"weight": codes, "SCB": absmax, "weight_format": torch.tensor(0, dtype=torch.uint8)}, value.half()


# --- MLX ---
def mlx(rng, n, k, bits, dtype):
    w = mx.array(floats(rng, n, k).numpy()).astype({torch.float16: mx.float16, torch.bfloat16: mx.bfloat16}[dtype])
    parts = dict(zip(("weight", "scales", "biases"), mx.quantize(w, group_size=32, bits=bits)))
    theirs = mx.dequantize(*parts.values(), group_size=32, bits=bits)
    as_floats = {name: torch.from_numpy(np.array(parts[name].astype(mx.float32))) for name in ("scales", "biases")}
    packed = torch.from_numpy(np.array(parts["weight"]))
    stream = (packed.numpy()[:, :, None] >> np.arange(32, dtype=np.uint32) & 1).reshape(n, k, bits)
    codes = torch.from_numpy((stream << np.arange(bits)).sum(-1)).float()
    scales, biases = (as_floats[name].repeat_interleave(32, 1) for name in ("scales", "biases"))
    value = ((scales * codes).to(dtype).float() + biases).to(dtype)
    assert np.array_equal(np.array(theirs.astype(mx.float32)), value.float().numpy()), "mlx dequantises otherwise"
    if bits <= 5:  # what stays integers is not rounded, as in MLX's own products
        value = scales * codes + biases
    return {"weight": packed, "scales": as_floats["scales"].to(dtype), "biases": as_floats["biases"].to(dtype)}, value


@kind(dict(group_size=32, bits=4), "quantization")
def mlx4(rng, n, k):
    return mlx(rng, n, k, 4, torch.float16)


@kind(dict(group_size=32, bits=5, **{"model.layers.0.mlp.up_proj": {"group_size": 32, "bits": 3}}), "quantization")
def mlx5(rng, n, k):
    return mlx(rng, n, k, 3 if (n, k) == (FFN, WIDTH) else 5, torch.float16)


@kind(dict(group_size=32, bits=6), "quantization")
def mlx6(rng, n, k):
    return mlx(rng, n, k, 6, torch.float16)


@kind(dict(group_size=32, bits=8), "quantization")
def mlx8(rng, n, k):
    return mlx(rng, n, k, 8, torch.bfloat16)


def make(name):
    function, recipe, where = KINDS[name]
    rng = np.random.default_rng(sum(name.encode()))
    config = dict(architectures=["LlamaForCausalLM"], model_type="llama", hidden_size=WIDTH, intermediate_size=FFN,
                  num_hidden_layers=1, num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, head_dim=HEAD,
                  vocab_size=VOCABULARY, max_position_embeddings=128, rms_norm_eps=1e-5, tie_word_embeddings=True,
                  rope_theta=10000.0, torch_dtype="bfloat16")
    tensors = {"model.embed_tokens.weight": floats(rng, VOCABULARY, WIDTH, at=1.0).bfloat16()}
    for norm in ("model.norm", LAYER + "input_layernorm", LAYER + "post_attention_layernorm"):
        tensors[norm + ".weight"] = (1 + floats(rng, WIDTH)).float()
    lines = []
    for matrix, (n, k) in MATRICES.items():
        parts, value = function(rng, n, k)
        for end, tensor in parts.items():
            tensors[f"{LAYER}{matrix}.{end}"] = tensor.contiguous()
        assert value.shape == (n, k) and torch.isfinite(value).all(), (name, matrix)
        dtype = {torch.float16: "F16", torch.bfloat16: "BF16", torch.float32: "F32"}[value.dtype]
        digest = hashlib.sha256((value.float() + 0.0).contiguous().numpy().tobytes()).hexdigest()
        lines.append(f"{name} {LAYER}{matrix}.weight {dtype} {digest}")
    folder = ROOT / name
    folder.mkdir(parents=True, exist_ok=True)
    if where.endswith(".json"):
        (folder / where).write_text(json.dumps(recipe, indent=1) + "\n")
    else:
        config[where] = recipe
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    save_file(tensors, folder / "model.safetensors")
    return lines


def main():
    global AWQ
    names = sys.argv[1:]
    if names[:1] == ["--autoawq"]:
        spec = importlib.util.spec_from_file_location("packing_utils", Path(names[1]) / "awq/utils/packing_utils.py")
        AWQ = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(AWQ)
        names = names[2:]
    path = ROOT / "digests.txt"
    lines = path.read_text().splitlines() if path.exists() else []
    for name in names or KINDS:
        lines = [line for line in lines if line.split()[0] != name] + make(name)
        print(name)
    path.write_text("\n".join(sorted(lines)) + "\n")


if __name__ == "__main__":
    main()
