#!/usr/bin/env python3
"""A vision tower beside llama.cpp's: random weights of real shapes, one picture, in turns: bench/compare_tower.py LLAMA [SHAPE ...]

    pip install numpy gguf; pip download --no-binary :all: --no-deps llama-cpp-python; tar xzf ...
    cmake -S .../vendor/llama.cpp -B .../vendor/llama.cpp/build -DGGML_NATIVE=ON -DBUILD_SHARED_LIBS=OFF && ninja -C .../build mtmd
    ninja -C build tower_bench && bench/compare_tower.py .../vendor/llama.cpp

LLAMA is the source tree, built in LLAMA/build. SHAPE: qwen3vl-2b, gemma4-e2b (others in SHAPES below). --grid ROWS COLUMNS of patches,
--type of matrices (f32, f16, bf16, q8_0). Prints seconds a picture (medians of --rounds processes in turns) and the ratio, theirs over
ours, and how far the rows of the two are apart: the same values go in, so this is the towers' rounding.
"""
import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import gguf
import numpy as np

ROOT = Path(__file__).resolve().parent.parent
SHAPES = {
    "qwen3vl-2b": dict(kind="qwen3vl_merger", layers=24, width=1024, ffn=4096, heads=16, patch=16, merge=2, out=2048,
                       deep=(5, 11, 17), side=48),
    "gemma4-e2b": dict(kind="gemma4v", layers=16, width=768, ffn=3072, heads=12, patch=16, merge=3, out=1536, deep=(), side=1024),
}
TYPES = {"f32": gguf.GGMLQuantizationType.F32, "f16": gguf.GGMLQuantizationType.F16, "bf16": gguf.GGMLQuantizationType.BF16,
         "q8_0": gguf.GGMLQuantizationType.Q8_0}
PEER = r"""
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstdint>
#include <vector>
#include "clip.h"
#include "clip-impl.h"
int main(int argc, char ** argv) {  // MMPROJ WIDTH HEIGHT THREADS VALUES ROWS
    clip_context_params params = {};
    params.use_gpu = false;
    params.flash_attn_type = CLIP_FLASH_ATTN_TYPE_AUTO;
    params.image_min_tokens = params.image_max_tokens = -1;
    clip_ctx * ctx = clip_init(argv[1], params).ctx_v;
    if (ctx == nullptr) return 1;
    clip_image_f32 image;
    image.set_size({std::atoi(argv[2]), std::atoi(argv[3])}, false, false);
    std::vector<float> values(3 * image.nx() * image.ny());
    FILE * f = fopen(argv[5], "rb");
    if (fread(values.data(), 4, values.size(), f) != values.size()) return 2;
    fclose(f);
    image.cpy_buf(values);
    std::vector<float> rows((size_t) clip_n_output_tokens(ctx, &image) * clip_n_mmproj_embd(ctx));
    auto run = [&] {
        auto begin = std::chrono::steady_clock::now();
        if (!clip_image_encode(ctx, std::atoi(argv[4]), &image, rows)) exit(3);
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    };
    run();
    std::vector<double> times = {run(), run(), run()};
    std::sort(times.begin(), times.end());
    printf("%.4f\n", times[1]);
    f = fopen(argv[6], "wb");
    fwrite(rows.data(), 4, rows.size(), f);
    fclose(f);
}
"""


def write_mmproj(path, s, kind):
    draw = np.random.default_rng(1)
    w = gguf.GGUFWriter(path, "clip")
    v = "clip.vision."
    w.add_bool("clip.has_vision_encoder", True)
    w.add_string("clip.projector_type", s["kind"])
    w.add_bool("clip.use_gelu", True)
    for name, value in (("block_count", s["layers"]), ("embedding_length", s["width"]), ("feed_forward_length", s["ffn"]),
                        ("attention.head_count", s["heads"]), ("patch_size", s["patch"]), ("projection_dim", s["out"]),
                        ("image_size", s["side"] * s["patch"] if s["kind"] != "gemma4v" else 224)):
        w.add_uint32(v + name, value)
    w.add_float32(v + "attention.layer_norm_epsilon", 1e-6)
    centre = (0.5, 0.5) if s["kind"] != "gemma4v" else (0.0, 1.0)
    w.add_array(v + "image_mean", [centre[0]] * 3)
    w.add_array(v + "image_std", [centre[1]] * 3)
    if s["kind"] == "qwen3vl_merger":
        w.add_uint32(v + "spatial_merge_size", s["merge"])
        w.add_array(v + "is_deepstack_layers", [l in s["deep"] for l in range(s["layers"])])

    def matrix(name, *dims, float32=False):
        x = draw.standard_normal(dims, dtype=np.float32) / np.sqrt(np.prod(dims[1:]), dtype=np.float32)
        if float32 or kind == "f32":
            return w.add_tensor(name, x)
        if kind == "f16":
            return w.add_tensor(name, x.astype(np.float16))
        w.add_tensor(name, gguf.quants.quantize(x, TYPES[kind]), raw_dtype=TYPES[kind])

    def vector(name, n, around=0.0):
        w.add_tensor(name, (around + 0.1 * draw.standard_normal(n)).astype(np.float32))

    def linear(name, outputs, inputs):
        matrix(name + ".weight", outputs, inputs)
        if s["kind"] != "gemma4v":
            vector(name + ".bias", outputs)

    W, F, cell, p = s["width"], s["ffn"], s["width"] * s["merge"] ** 2, s["patch"]
    is_qwen = s["kind"] == "qwen3vl_merger"
    for frame in ("", ".1") if is_qwen else ("",):
        matrix("v.patch_embd.weight" + frame, W, 3, p, p, float32=True)
    if is_qwen:
        vector("v.patch_embd.bias", W)
        matrix("v.position_embd.weight", s["side"] ** 2, W, float32=True)
    else:
        w.add_tensor("v.position_embd.weight", (0.1 * draw.standard_normal((2, s["side"], W))).astype(np.float32))
    for l in range(s["layers"]):
        at = f"v.blk.{l}."
        norms = ("ln1", "ln2") if is_qwen else ("ln1", "ln2", "attn_post_norm", "ffn_post_norm")
        for norm in norms:
            vector(at + norm + ".weight", W, 1.0)
            if is_qwen:
                vector(at + norm + ".bias", W)
        if is_qwen:
            linear(at + "attn_qkv", 3 * W, W)
        else:
            for name in ("attn_q", "attn_k", "attn_v"):
                linear(at + name, W, W)
            for name in ("attn_q_norm", "attn_k_norm"):
                vector(at + name + ".weight", W // s["heads"], 0.35)  # calm scores, so that roundings do not grow
            linear(at + "ffn_gate", F, W)
        linear(at + "attn_out", W, W)
        linear(at + "ffn_up", F, W)
        linear(at + "ffn_down", W, F)
    if is_qwen:
        vector("v.post_ln.weight", W, 1.0)
        vector("v.post_ln.bias", W)
        linear("mm.0", cell, cell)
        linear("mm.2", s["out"], cell)
        for l in s["deep"]:
            vector(f"v.deepstack.{l}.norm.weight", cell, 1.0)
            vector(f"v.deepstack.{l}.norm.bias", cell)
            linear(f"v.deepstack.{l}.fc1", cell, cell)
            linear(f"v.deepstack.{l}.fc2", s["out"], cell)
    else:
        matrix("mm.input_projection.weight", s["out"], W)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def pixels(s, rows, columns):
    """What tower_bench puts into its patches, as a picture [height, width, 3]."""
    is_qwen, p, m = s["kind"] == "qwen3vl_merger", s["patch"], s["merge"]
    n_frames = 2 if is_qwen else 1
    n = rows * columns * 3 * p * p * n_frames
    state, values = 1, np.empty(n, np.float32)
    for i in range(n):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        values[i] = np.float32(state >> 40) / np.float32(16777216)
    if is_qwen:  # [cells, m, m, 3, frames, p, p]; a picture's frames are alike in both, so ours are made so too
        raise SystemExit("rows are compared for gemma 4 alone: this tower's two frames are one picture in llama.cpp")
    return values.reshape(rows, columns, p, p, 3).transpose(0, 2, 1, 3, 4).reshape(rows * p, columns * p, 3)


def output(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{command[0]} failed ({done.returncode}): {done.stderr[-600:]}")
    return done.stdout


def peer_program(llama, folder):
    source, program = folder / "peer.cc", folder / "peer"
    source.write_text("#include <algorithm>\n" + PEER)
    build = llama / "build"
    libraries = [build / "tools/mtmd/libmtmd.a", build / "src/libllama.a", *build.glob("common/*.a"), *build.glob("vendor/**/*.a"),
                 build / "ggml/src/libggml.a", build / "ggml/src/libggml-cpu.a", build / "ggml/src/libggml-base.a"]
    includes = [f"-I{llama / d}" for d in ("tools/mtmd", "ggml/include", "include", "common", "vendor")]
    output("g++", "-std=c++17", "-O2", *includes, source, "-o", program, "-Wl,--start-group", *[l for l in libraries if l.exists()],
           "-Wl,--end-group", "-lgomp", "-lpthread", "-ldl")
    return program


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("llama", type=Path)
    parser.add_argument("shapes", nargs="*", default=list(SHAPES))
    parser.add_argument("--grid", nargs=2, type=int, default=(30, 30))
    parser.add_argument("--type", choices=TYPES, default="f16")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--tower-bench", default=ROOT / "build" / "tower_bench")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        peer = peer_program(args.llama.resolve(), folder)
        for name in args.shapes:
            s, (rows, columns) = SHAPES[name], args.grid
            mmproj, values = folder / f"{name}.gguf", folder / "values"
            write_mmproj(mmproj, s, args.type)
            compares = s["kind"] == "gemma4v"
            picture = pixels(s, rows, columns) if compares else np.zeros((rows * s["patch"], columns * s["patch"], 3), np.float32)
            picture.tofile(values)
            ours, theirs = [], []
            for _ in range(args.rounds):
                ours.append(float(output(args.tower_bench, mmproj, "--grid", rows, columns, "--threads", args.threads, "--rounds", 3,
                                         "--rows", folder / "ours")))
                theirs.append(float(output(peer, mmproj, columns * s["patch"], rows * s["patch"], args.threads, values,
                                           folder / "theirs").split()[-1]))
            us, them = statistics.median(ours), statistics.median(theirs)
            line = f"{name} {args.type} {rows} x {columns} patches: {us:.2f} s, llama.cpp {them:.2f} s, ratio {them / us:.2f}"
            if compares:
                a, b = (np.fromfile(folder / f, np.float32) for f in ("ours", "theirs"))
                line += f", rows apart by {np.abs(a - b).max() / np.abs(b).max():.1e} of the largest"
            print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
