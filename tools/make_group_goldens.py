#!/usr/bin/env python3
"""GPTQ and AWQ in NumPy, as their papers have them, for tests/golden/group_quantise_test.cc.

    pip install numpy; python3 tools/make_group_goldens.py > tests/golden/group_codes.txt

Each line: what, and the SHA-256 of the codes [N, K] as bytes. Inputs are those of the test, from a generator of 32 bits.
GPTQ inverts H and takes the upper Cholesky factor of the inverse; src/model/group_quantise.cc gets there another way.
"""
import hashlib

import numpy as np

N, K, T, G, BITS = 24, 256, 384, 32, 4


class Numbers:
    def __init__(self, seed):
        self.state = seed

    def __call__(self, n):
        out = np.empty(n, np.float32)
        for i in range(n):
            self.state = (self.state * 1664525 + 1013904223) & 0xFFFFFFFF
            out[i] = ((self.state >> 8 & 0xFFFF) - 32768) / 65536
        return out


def inputs():
    numbers = Numbers(1)
    w = numbers(N * K).reshape(N, K)
    x = numbers(T * K).reshape(T, K)
    for k in range(1, K):  # neighbours go together
        x[:, k] = x[:, k] + np.float32(0.5) * x[:, k - 1]
    x[:, ::37] *= 32
    x[:, 5] = 0
    return w, x


def scale_of(group, clip=1.0):
    largest = np.abs(group.astype(np.float64)).max()
    return float(np.float32(np.float16(np.float32(clip * largest / (((1 << BITS) - 1) / 2)))))


def code_of(w, scale):
    half = 1 << (BITS - 1)
    return np.clip(np.rint(w / scale), -half, half - 1)


def rounded(w, clips=None):
    codes = np.empty(w.shape)
    for n in range(N):
        for i in range(0, K, G):
            scale = scale_of(w[n, i:i + G], 1.0 if clips is None else clips[n, i // G])
            codes[n, i:i + G] = code_of(w[n, i:i + G].astype(np.float64), scale)
    return codes


def gptq(w, x, damp=0.01, act_order=False):
    x = x.astype(np.float64)
    w = w.astype(np.float64).copy()
    original = w.copy()
    h = x.T @ x
    dead = np.diag(h) == 0
    h[dead, dead] = 1
    w[:, dead] = 0
    order = np.argsort(-np.diag(h), kind="stable") if act_order else np.arange(K)
    h, w = h[order][:, order], w[:, order]
    h += damp * np.mean(np.diag(h)) * np.eye(K)
    u = np.linalg.cholesky(np.linalg.inv(h)).T
    codes = np.empty((N, K))
    scales = {}
    for k in range(K):
        for n in range(N):
            group = order[k] // G
            if act_order:
                scale = scale_of(original[n, group * G:(group + 1) * G].astype(np.float32))
            else:
                if k % G == 0:
                    scales[n] = scale_of(w[n, k:k + G])
                scale = scales[n]
            code = 0 if dead[order[k]] else code_of(w[n, k], scale)
            codes[n, order[k]] = code
            error = (w[n, k] - scale * code) / u[k, k]
            w[n, k + 1:] -= error * u[k, k + 1:]
    return codes


def awq(w, x):
    x, w = x.astype(np.float64), w.astype(np.float64)
    h = x.T @ x
    size = np.abs(x).mean(0)
    groups = np.abs(w).reshape(N, K // G, G)
    share = (groups / (groups.max(2, keepdims=True) + 1e-6)).reshape(N, K).mean(0)

    def error(s, n, clip=None, span=slice(0, K)):
        scaled = w[n] * s
        codes, values = np.empty(K), np.empty(K)
        for i in range(span.start, span.stop, G):
            scale = scale_of(scaled[i:i + G], 1.0 if clip is None else clip)
            codes[i:i + G] = code_of(scaled[i:i + G], scale)
            values[i:i + G] = scale * codes[i:i + G]
        d = ((values - scaled) / s)[span]
        return d @ h[span, span] @ d

    best = None
    for a in range(-1, 20):
        s = np.ones(K)
        if a >= 0:
            s = np.maximum(np.where(size > 0, size, 1e-300 if a else 1) ** (a / 20) / (share ** (1 - a / 20) + 1e-4), 1e-4)
            s /= np.sqrt(s.min() * s.max())
        total = sum(error(s, n) for n in range(N))
        if best is None or total < best[0]:
            best = (total, s, a)
    s = best[1]
    clips = np.ones((N, K // G))
    for n in range(N):
        for i in range(K // G):
            tried = [error(s, n, 1 - c / 20, slice(i * G, (i + 1) * G)) for c in range(10)]
            clips[n, i] = 1 - int(np.argmin(tried)) / 20
    return rounded((w * s).astype(np.float32), clips.astype(np.float32))


def main():
    w, x = inputs()
    for what, codes in (("round", rounded(w)), ("gptq", gptq(w, x)), ("gptq_order", gptq(w, x, act_order=True)), ("awq", awq(w, x))):
        print(what, hashlib.sha256(codes.astype(np.int8).tobytes()).hexdigest())


if __name__ == "__main__":
    main()
