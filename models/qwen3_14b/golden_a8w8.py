"""The A8W8 layer in NumPy: activations quantised per row, INT8 weights with a scale per column, exact integer sums.

Residual and down projection are in the storage type. Whatever the flags, the numbers are these: fused or not, the
kernels round at the same places. (The faulty batched RoPE is the exception, and this is what it is held against.)
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from qwen3_14b import golden
from qwen3_14b.config import Qwen3
from qwen3_14b.golden import F32, Rows, inverse_rms, project, rotate, to_bf16, widen, write_cache

Array = npt.NDArray[Any]
INT8 = ("wq", "wk", "wv", "wo", "w_gate", "w_up")
_EXACT = 1024  # 127 * 127 * 1024 < 2^24: sums of so many products are exact in float32
SMALLEST_AMAX = 1e-4


def quantise(x: F32) -> tuple[F32, F32]:
    """Per row: whole numbers in -127 … 127 (as float32) and the scale that gives x back."""
    amax = np.maximum(np.max(np.abs(x), axis=-1, keepdims=True), np.float32(SMALLEST_AMAX))
    whole = np.clip(np.rint(x * (np.float32(1.0) / amax * np.float32(127.0))), -127, 127)
    return whole, amax * np.float32(1.0 / 127.0)


def int8_project(whole: F32, weight: Array) -> F32:
    """The integer product, as float32."""
    total = np.zeros((whole.shape[0], weight.shape[1]), dtype=np.float64)
    for k in range(0, weight.shape[0], _EXACT):
        total += whole[:, k : k + _EXACT] @ weight[k : k + _EXACT].astype(np.float32)
    return total.astype(np.float32)


def layer(
    model: Qwen3, weights: dict[str, Array], index: int, rows: Rows, hidden: F32, k_cache: Array, v_cache: Array
) -> F32:
    """One layer: hidden (values of the storage type) to the next layer's. The caches are written in place."""
    keep = to_bf16 if model.storage == "bf16" else np.asarray

    def of(name: str) -> Array:
        count = weights[name].shape[0] // model.layers
        return weights[name][index * count : (index + 1) * count]

    def projected(whole: F32, scale: F32, name: str) -> F32:
        return int8_project(whole, of(name)) * of(f"{name}_scale") * scale

    rms = inverse_rms(hidden, model.eps)
    whole, scale = quantise(keep(hidden * of("input_rms_weight")))
    q = (projected(whole, scale, "wq") * rms).reshape(model.rows, model.q_heads, model.head_dim)
    k = (projected(whole, scale, "wk") * rms).reshape(model.rows, model.kv_heads, model.head_dim)
    q = q * of("q_norm_weight") * inverse_rms(q, model.eps)
    k = k * of("k_norm_weight") * inverse_rms(k, model.eps)
    position = np.maximum(rows.seq_lens - 1, 0)
    cos, sin = rows.cos[position][:, None, :], rows.sin[position][:, None, :]
    write_cache(model, rows, k_cache, keep(rotate(k, cos, sin)))
    write_cache(model, rows, v_cache, keep(projected(whole, scale, "wv") * rms))
    q = keep(rotate(q, cos, sin)).reshape(model.rows, model.q_width)

    whole, scale = quantise(golden.attention(model, rows, q, k_cache, v_cache, tile=model.tiles.a8_attn))
    residual = projected(whole, scale, "wo") + hidden
    rms = inverse_rms(residual, model.eps)
    whole, scale = quantise(keep(residual * of("post_rms_weight")))
    gate, up = projected(whole, scale, "w_gate") * rms, projected(whole, scale, "w_up") * rms
    active = keep(gate * (np.float32(1.0) / (np.exp(-gate) + np.float32(1.0))) * up)
    return keep(keep(project(active, of("w_down"))) + keep(residual))


def step(
    model: Qwen3, weights: dict[str, Array], rows: Rows, tokens: Array, k_cache: Array, v_cache: Array
) -> tuple[F32, Array]:
    """One decode step, as golden.step: token ids [rows] to (logits, greedy token ids)."""
    keep = to_bf16 if model.storage == "bf16" else np.asarray
    hidden = widen(weights["embed"][tokens])
    for index in range(model.layers):
        of_layer = slice(index * model.cache_rows, (index + 1) * model.cache_rows)
        hidden = layer(model, weights, index, rows, hidden, k_cache[of_layer], v_cache[of_layer])
    last = keep(hidden * inverse_rms(hidden, model.eps) * weights["final_norm_weight"])
    logits = last @ widen(weights["lm_head"]).T
    return logits, np.argmax(logits[:, : model.vocab], axis=-1).astype(np.int32)
