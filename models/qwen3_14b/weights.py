"""Weights from a seed: nothing is stored, every tensor has a stream of its own, every value is exact in BF16.

One random byte is one of 256 quantiles of a normal distribution. Two bytes at a time through a table make the 660 MB of a
full-size layer in about a second; because the values are exact in BF16, the FP32 and BF16 models have the same weights.
"""

from __future__ import annotations

from statistics import NormalDist
from typing import Any
from zlib import crc32

import ml_dtypes
import numpy as np
import numpy.typing as npt

from qwen3_14b.config import Qwen3

Array = npt.NDArray[Any]
BF16 = np.dtype(ml_dtypes.bfloat16)
_QUANTILES = np.array([NormalDist().inv_cdf((i + 0.5) / 256) for i in range(256)], dtype=np.float32)


def storage(model: Qwen3) -> np.dtype[Any]:
    return BF16 if model.storage == "bf16" else np.dtype(np.float32)


def shapes(model: Qwen3) -> dict[str, tuple[int, int]]:
    """Name to shape, layers stacked along the rows; matrices as (in, out), but the LM head as it is published, (out, in)."""
    h, layers = model.hidden, model.layers
    return {
        "input_rms_weight": (layers, h),
        "wq": (layers * h, model.q_width),
        "wk": (layers * h, model.kv_width),
        "wv": (layers * h, model.kv_width),
        "q_norm_weight": (layers, model.head_dim),
        "k_norm_weight": (layers, model.head_dim),
        "wo": (layers * model.q_width, h),
        "post_rms_weight": (layers, h),
        "w_gate": (layers * h, model.intermediate),
        "w_up": (layers * h, model.intermediate),
        "w_down": (layers * model.intermediate, h),
        "embed": (model.vocab, h),
        "final_norm_weight": (1, h),
        "lm_head": (model.vocab_padded, h),
    }


# Greedy text of random weights is worth looking at only if it neither stands still nor forgets where it is. So, as in trained
# models, one coordinate is large and the same for every token; queries and keys read it strongly, nothing else reads or
# writes it. Attention is then sharp and positional: the next token is a function of tokens at certain distances.
_ANCHOR = 8.0  # coordinate 0 of every embedding
_ANCHOR_GAIN = {"wq": 0.5, "wk": 0.5, "wv": 0.0, "w_gate": 0.0, "w_up": 0.0}  # standard deviation of row 0
_NORM_MEAN = {"q_norm_weight": 2.5, "k_norm_weight": 2.5}
_GAIN = {"wo": 3.0}


def draw(name: str, model: Qwen3, seed: int = 0) -> Array:
    """One tensor, in the model's storage type. Matrices keep the scale of what they multiply, up to a gain."""
    rows, columns = shapes(model)[name]
    if name.endswith(("norm_weight", "rms_weight")):
        mean = _NORM_MEAN.get(name, 1.0)
        values = normal(name, rows * columns, seed, mean, 0.1 * mean).reshape(rows, columns)
    elif name == "embed":
        values = normal(name, rows * columns, seed, 0.0, 1.0).reshape(rows, columns)
        values[:, 0] = _ANCHOR
    else:
        fan_in = columns if name == "lm_head" else rows // model.layers
        values = normal(name, rows * columns, seed, 0.0, _GAIN.get(name, 1.0) * fan_in**-0.5).reshape(rows, columns)
        if name in _ANCHOR_GAIN:
            anchors = normal(f"{name}.anchor", model.layers * columns, seed, 0.0, _ANCHOR_GAIN[name])
            values[:: model.hidden] = anchors.reshape(model.layers, columns)
        else:
            values[:, 0] = 0  # wo and w_down leave the coordinate alone, the LM head does not see it
        if name == "lm_head":
            values[model.vocab :] = 0  # padding: never sampled
    return values.astype(storage(model), copy=False)


def normal(name: str, count: int, seed: int, mean: float, std: float) -> Array:
    """`count` BF16 values of a normal distribution, from the stream of this name and seed."""
    table = (mean + std * _QUANTILES).astype(BF16).view(np.uint16).astype(np.uint32)
    low, high = np.meshgrid(table, table)  # one look-up of two bytes gives two values
    pairs = (low | (high << 16)).reshape(-1)
    raw = np.random.PCG64([seed, crc32(name.encode())]).random_raw(-(-count // 8))
    return pairs.take(raw.view(np.uint16), mode="clip").view(np.uint16)[:count].view(BF16)


def all_weights(model: Qwen3, seed: int = 0) -> dict[str, Array]:
    return {name: draw(name, model, seed) for name in shapes(model)}
