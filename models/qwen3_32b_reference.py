"""What both Qwen3-32B tilelet programs share: the layer's sizes, its golden reference in NumPy, its inputs.

Sizes are the issue's: hidden 8192 (64 heads of 128; the real model has 5120), no QK norm, and a KV cache that is one
strip of tokens per (row, KV head). This file is not a program.
"""

import math
from dataclasses import dataclass

import numpy as np
from ml_dtypes import bfloat16

import npuscope.tile as pl  # with PyPTO installed: import pypto.language as pl
from npuscope.tile.golden import TensorSpec

BATCH, HEAD_DIM = 16, 128
HALF = HEAD_DIM // 2
CUBE_ROWS = 16
HEAD_GROUP = 8  # query heads that share a KV head and an attention task
EPS = 1e-6
SCALE = 1.0 / math.sqrt(HEAD_DIM)
LOWEST = float(np.finfo(np.float32).min)  # what PadValue.min is in fp32


@dataclass(frozen=True)
class Size:
    """The layer's dimensions; `context` is the length of the KV cache and of the longest row."""

    heads: int = 16
    kv_heads: int = 2
    inter: int = 512
    context: int = 256

    @property
    def hidden(self) -> int:
        return self.heads * HEAD_DIM

    @property
    def kv_hidden(self) -> int:
        return self.kv_heads * HEAD_DIM

    @property
    def groups(self) -> int:
        return self.heads // HEAD_GROUP

    def check(self) -> None:
        if min(self.heads, self.kv_heads, self.inter, self.context) < 1:
            raise SystemExit("heads, KV heads, intermediate and context must be at least 1")
        if self.heads % (HEAD_GROUP * self.kv_heads) or self.inter % 256 or self.context % 128:
            raise SystemExit("heads must be a multiple of 8 x KV heads; intermediate of 256, context of 128")


FULL = Size(heads=64, kv_heads=8, inter=25600, context=4096)


def golden(size: Size, faulty_norm: bool, tensors: dict) -> None:
    """The layer in fp32, rounded to bf16 where the program stores bf16. `faulty_norm`: with the missing rsqrt."""
    x = tensors["hidden_states"].astype(np.float32)
    variance = (x * x).mean(axis=1, keepdims=True) + np.float32(EPS)
    normed = _bf16(x * (variance if faulty_norm else 1 / np.sqrt(variance)) * tensors["input_gamma"])
    q, k, v = (_product(normed, tensors[name]).reshape(BATCH, -1, 1, HEAD_DIM) for name in ("wq", "wk", "wv"))
    lengths = tensors["seq_lens"]
    cos, sin = (tensors[name][lengths - 1][:, None, None, :] for name in ("rope_cos", "rope_sin"))
    q, k = _bf16(_turned(q, cos, sin)), _turned(k, cos, sin)

    caches = [tensors[name].reshape(BATCH, size.kv_heads, size.context, HEAD_DIM) for name in ("k_cache", "v_cache")]
    attention = np.empty((BATCH, size.kv_heads, size.heads // size.kv_heads, HEAD_DIM), np.float32)
    for b, length in enumerate(lengths):
        for cache, new in zip(caches, (k, v), strict=True):
            cache[b, :, length - 1] = new[b, :, 0]
        keys, values = (cache[b, :, :length].astype(np.float32) for cache in caches)
        scores = q[b].reshape(attention[b].shape) @ keys.transpose(0, 2, 1) * np.float32(SCALE)
        weights = _bf16(np.exp(scores - scores.max(axis=-1, keepdims=True)))
        attention[b] = weights @ values / weights.sum(axis=-1, keepdims=True)

    residual = x + _product(_bf16(attention.reshape(BATCH, -1)), tensors["wo"])
    inverse_rms = 1 / np.sqrt((residual * residual).mean(axis=1, keepdims=True) + np.float32(EPS))
    normed = _bf16(residual * inverse_rms * tensors["post_gamma"])
    gate, up = (_product(normed, tensors[name]) for name in ("w_gate", "w_up"))
    tensors["out"][:] = residual + _product(_bf16(gate / (1 + np.exp(-gate)) * up), tensors["w_down"])


def _bf16(x: np.ndarray) -> np.ndarray:
    return x.astype(bfloat16).astype(np.float32)


def _turned(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    return x * cos + np.concatenate([-x[..., HALF:], x[..., :HALF]], axis=-1) * sin


def _product(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """x · weight with the bf16 weight widened a strip at a time: at full size it would take another gigabyte whole."""
    strips = range(0, weight.shape[1], 2048)
    return np.concatenate([x @ weight[:, n : n + 2048].astype(np.float32) for n in strips], axis=1)


def specs(size: Size, even: bool) -> list[TensorSpec]:
    cache = [BATCH * size.kv_heads * size.context, HEAD_DIM]
    lengths = np.full(BATCH, size.context) if even else np.linspace(size.context, 1, BATCH).astype(int)
    angles = np.arange(size.context)[:, None] * 1.0e6 ** (-np.arange(HALF) / HALF)
    angles = np.concatenate([angles, angles], axis=1)

    def normal(name: str, shape: list[int], deviation: float, **flags) -> TensorSpec:
        def values(rng) -> np.ndarray:
            return rng.standard_normal(shape, dtype=np.float32) * np.float32(deviation)

        return TensorSpec(name, shape, pl.BF16, init_value=values, **flags)

    def weight(name: str, rows: int, columns: int) -> TensorSpec:
        return normal(name, [rows, columns], 1 / math.sqrt(rows))

    def gamma(name: str) -> TensorSpec:
        shape = [1, size.hidden]
        return TensorSpec(name, shape, pl.FP32, init_value=lambda rng: rng.normal(1, 0.1, shape))

    return [
        # not of size 1: there mean(x²) and its rsqrt are the same, and the missing rsqrt would hide
        normal("hidden_states", [BATCH, size.hidden], 0.5),
        TensorSpec("seq_lens", [BATCH], pl.INT32, init_value=lambda: lengths),
        TensorSpec("rope_cos", [size.context, HEAD_DIM], pl.FP32, init_value=lambda: np.cos(angles)),
        TensorSpec("rope_sin", [size.context, HEAD_DIM], pl.FP32, init_value=lambda: np.sin(angles)),
        normal("k_cache", cache, 1.0, is_output=True),
        normal("v_cache", cache, 1.0, is_output=True),
        gamma("input_gamma"),
        weight("wq", size.hidden, size.hidden),
        weight("wk", size.hidden, size.kv_hidden),
        weight("wv", size.hidden, size.kv_hidden),
        weight("wo", size.hidden, size.hidden),
        gamma("post_gamma"),
        weight("w_gate", size.hidden, size.inter),
        weight("w_up", size.hidden, size.inter),
        weight("w_down", size.inter, size.hidden),
        TensorSpec("out", [BATCH, size.hidden], pl.BF16, is_output=True),
    ]
