"""The decode step in plain NumPy: what the tile programs are compared with.

It rounds to the storage type exactly where the programs do and follows their order of scaling (1/rms is applied after
the projections), but none of their tiling, except that attention is partial per KV page: the probabilities are rounded
to BF16 relative to their page's maximum, which no untiled softmax would reproduce. Arithmetic is float32.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from threadpoolctl import ThreadpoolController

from qwen3_14b.config import PAGE, Qwen3

Array = npt.NDArray[Any]
F32 = npt.NDArray[np.float32]
_BLOCK = 512  # rows of a weight that are widened to fp32 at a time: a full-size matrix is never copied whole


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()


def one_thread() -> AbstractContextManager[Any]:
    """BLAS with one thread: products of 16 rows are faster so, and by far where other processes want the cores."""
    return _blas().limit(limits=1, user_api="blas")


def widen(x: Array) -> F32:
    """Any storage type as float32, by shifting bits where it is BF16 (ml_dtypes' own conversion is slower)."""
    if x.dtype.name != "bfloat16":
        return np.asarray(x, dtype=np.float32)
    return (x.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)


def to_bf16(x: F32) -> F32:
    """Rounded to BF16, ties away from zero (the default of `pl.cast`), still as float32."""
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    return ((bits + np.uint32(0x8000)) & np.uint32(0xFFFF0000)).view(np.float32)


def project(x: F32, weight: Array) -> F32:
    """x @ weight, a block of the weight at a time."""
    out = np.zeros((x.shape[0], weight.shape[1]), dtype=np.float32)
    for k in range(0, weight.shape[0], _BLOCK):
        out += x[:, k : k + _BLOCK] @ widen(weight[k : k + _BLOCK])
    return out


def inverse_rms(x: F32, eps: float) -> F32:
    """1 / sqrt(mean of squares), a column."""
    mean = np.sum(x * x, axis=-1, keepdims=True) * np.float32(1.0 / x.shape[-1])
    return np.float32(1.0) / np.sqrt(mean + np.float32(eps))


def rotate(x: F32, cos: F32, sin: F32) -> F32:
    """RoPE of halves: x [..., head_dim], cos and sin broadcast against it."""
    half = x.shape[-1] // 2
    turned = np.concatenate([-x[..., half:], x[..., :half]], axis=-1)
    return x * cos + turned * sin


@dataclass(frozen=True)
class Rows:
    """What the step knows of its rows (batch.py) and the rotary tables."""

    seq_lens: Array
    block_table: Array
    slot_mapping: Array
    cos: F32
    sin: F32


def rows_of(tensors: dict[str, Any]) -> Rows:
    """From a program's arguments by name."""
    return Rows(*(tensors[name] for name in ("seq_lens", "block_table", "slot_mapping", "rope_cos", "rope_sin")))


def attention(model: Qwen3, rows: Rows, q: F32, k_cache: Array, v_cache: Array, tile: int = PAGE) -> F32:
    """Attention of rotated, rounded q [rows, q_width] over one layer's paged cache, in parts of `tile` tokens."""
    keep = to_bf16 if model.storage == "bf16" else np.asarray
    out = np.zeros((model.rows, model.q_width), dtype=np.float32)
    paged = (model.pages, model.kv_heads, PAGE, model.head_dim)
    table = rows.block_table.reshape(model.rows, model.seq_pages)
    for b in np.flatnonzero(rows.seq_lens):
        length = int(rows.seq_lens[b])
        pages = table[b, : -(-length // PAGE)]
        parts = (len(pages), model.kv_heads, PAGE // tile, tile, model.head_dim)
        k = widen(k_cache.reshape(paged)[pages]).reshape(parts)
        v = widen(v_cache.reshape(paged)[pages]).reshape(parts)
        query = q[b].reshape(1, model.kv_heads, 1, model.group, model.head_dim)
        scores = query @ k.swapaxes(-1, -2) * np.float32(model.head_dim**-0.5)
        token = np.arange(len(pages) * PAGE).reshape(len(pages), 1, PAGE // tile, 1, tile)
        scores = np.where(token < length, scores, np.finfo(np.float32).min)
        top = np.max(scores, axis=-1, keepdims=True)
        p = np.exp(scores - top)
        partial = keep(p) @ v
        part = np.where(token[..., :1] < length, np.exp(top - np.max(top, axis=(0, 2), keepdims=True)), np.float32(0.0))
        total = np.sum(part * np.sum(p, axis=-1, keepdims=True), axis=(0, 2))
        out[b] = (np.sum(part * partial, axis=(0, 2)) / total).reshape(-1)
    return keep(out)


def write_cache(model: Qwen3, rows: Rows, cache: Array, values: F32) -> None:
    """The newest K or V of each row, [rows, kv_width], into one layer's cache at its slot."""
    live = np.flatnonzero(rows.seq_lens)
    page, offset = np.divmod(rows.slot_mapping[live], PAGE)
    paged = cache.reshape(model.pages, model.kv_heads, PAGE, model.head_dim)
    paged[page, :, offset] = values[live].reshape(-1, model.kv_heads, model.head_dim).astype(cache.dtype)


def layer(
    model: Qwen3,
    weights: dict[str, Array],
    index: int,
    rows: Rows,
    hidden: F32,
    normed: F32,
    k_cache: Array,
    v_cache: Array,
) -> tuple[F32, F32]:
    """One layer: (hidden in fp32, hidden * gamma rounded) to the same of the next layer. Writes the caches in place."""
    keep = to_bf16 if model.storage == "bf16" else np.asarray

    def of(name: str) -> Array:
        count = weights[name].shape[0] // model.layers
        return weights[name][index * count : (index + 1) * count]

    scale = inverse_rms(hidden, model.eps)
    position = np.maximum(rows.seq_lens - 1, 0)
    cos, sin = rows.cos[position][:, None, :], rows.sin[position][:, None, :]
    q = (project(normed, of("wq")) * scale).reshape(model.rows, model.q_heads, model.head_dim)
    k = (project(normed, of("wk")) * scale).reshape(model.rows, model.kv_heads, model.head_dim)
    q = q * widen(of("q_norm_weight")) * inverse_rms(q, model.eps)
    k = k * widen(of("k_norm_weight")) * inverse_rms(k, model.eps)
    write_cache(model, rows, k_cache, keep(rotate(k, cos, sin)))
    write_cache(model, rows, v_cache, keep(project(normed, of("wv")) * scale))
    q = keep(rotate(q, cos, sin)).reshape(model.rows, model.q_width)
    residual = project(attention(model, rows, q, k_cache, v_cache), of("wo")) + hidden

    scale = inverse_rms(residual, model.eps)
    normed = keep(residual * widen(of("post_rms_weight")))
    gate, up = project(normed, of("w_gate")) * scale, project(normed, of("w_up")) * scale
    active = keep(gate * (np.float32(1.0) / (np.exp(-gate) + np.float32(1.0))) * up)
    hidden = project(active, of("w_down")) + residual
    following = min(index + 1, model.layers - 1)
    return hidden, keep(hidden * widen(weights["input_rms_weight"][following : following + 1]))


def step(
    model: Qwen3, weights: dict[str, Array], rows: Rows, tokens: Array, k_cache: Array, v_cache: Array
) -> tuple[F32, Array]:
    """One decode step: token ids [rows] to (logits [rows, vocab_padded], greedy ids). Writes the caches in place."""
    keep = to_bf16 if model.storage == "bf16" else np.asarray
    hidden = widen(weights["embed"][tokens])
    normed = keep(hidden * widen(weights["input_rms_weight"][:1]))
    for index in range(model.layers):
        rows_of = slice(index * model.cache_rows, (index + 1) * model.cache_rows)
        hidden, normed = layer(model, weights, index, rows, hidden, normed, k_cache[rows_of], v_cache[rows_of])
    last = keep(hidden * inverse_rms(hidden, model.eps) * widen(weights["final_norm_weight"]))
    logits = last @ widen(weights["lm_head"]).T
    return logits, np.argmax(logits[:, : model.vocab], axis=-1).astype(np.int32)
