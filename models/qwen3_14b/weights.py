"""Weights from a seed: nothing is stored, every tensor has a stream of its own, every value is exact in BF16.

One random byte is one of 256 quantiles of a normal distribution. Two bytes at a time through a table make the 660 MB of
a full-size layer in about a second; because the values are exact in BF16, the FP32 and BF16 models have the same
weights.
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
_BLOCK = 1 << 17  # pairs of values
_QUANTILES = np.array([NormalDist().inv_cdf((i + 0.5) / 256) for i in range(256)], dtype=np.float32)


def storage(model: Qwen3) -> np.dtype[Any]:
    return BF16 if model.storage == "bf16" else np.dtype(np.float32)


def is_norm(name: str) -> bool:
    return name.endswith(("norm_weight", "rms_weight"))


def shapes(model: Qwen3) -> dict[str, tuple[int, int]]:
    """Name to shape, layers stacked along the rows; matrices are (in, out), the LM head, as published, (out, in)."""
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


# Greedy text of random weights is worth looking at only if it neither stands still nor forgets where it is. So, as in
# trained models, one coordinate is large and the same for every token; queries and keys read it strongly, nothing else
# reads or writes it. Attention is then sharp and positional: the next token is a function of tokens at certain
# distances.
_ANCHOR = 8.0  # coordinate 0 of every embedding
_ANCHOR_GAIN = {"wq": 8.0, "wk": 8.0, "wv": 0.0, "w_gate": 0.0, "w_up": 0.0}  # of row 0, over the other rows'
_NORM_MEAN = {"q_norm_weight": 2.5, "k_norm_weight": 2.5}
_GAIN = {"wo": 4.0, "embed": 0.5}


def draw(name: str, model: Qwen3, seed: int = 0) -> Array:
    """One tensor, norms in fp32, matrices in the model's storage type; sums of theirs are of the order of a gain."""
    rows, columns = shapes(model)[name]
    if is_norm(name):
        mean = _NORM_MEAN.get(name, 1.0)
        return normal(name, rows * columns, seed, mean, 0.1 * mean).reshape(rows, columns).astype(np.float32)
    values = normal(name, rows * columns, seed, 0.0, _deviation(name, model)).reshape(rows, columns)
    if name == "embed":
        values[:, 0] = _ANCHOR
    elif name in _ANCHOR_GAIN:
        deviation = _ANCHOR_GAIN[name] * _deviation(name, model)
        anchors = normal(f"{name}.anchor", model.layers * columns, seed, 0.0, deviation)
        values[:: model.hidden] = anchors.reshape(model.layers, columns)
    else:
        values[:, 0] = 0  # wo and w_down leave the coordinate alone, the LM head does not see it
    if name == "lm_head":
        values[model.vocab :] = 0  # padding: never sampled
    return values.astype(storage(model), copy=False)


def draw_int8(name: str, model: Qwen3, seed: int = 0) -> Array:
    """The same matrix in INT8, from the same bytes: times int8_scales it is the BF16 one up to rounding and factors."""
    rows, columns = shapes(model)[name]
    step, deviation = _int8_step(name, model), _deviation(name, model)
    values = _looked_up(name, rows * columns, seed, _levels(deviation / step)).reshape(rows, columns)
    if name in _ANCHOR_GAIN:
        levels = _levels(_ANCHOR_GAIN[name] * deviation / step)
        values[:: model.hidden] = _looked_up(f"{name}.anchor", model.layers * columns, seed, levels).reshape(
            -1, columns
        )
    else:
        values[:, 0] = 0
    return values


def int8_scales(name: str, model: Qwen3, seed: int = 0) -> Array:
    """[layers, columns] in fp32, another factor for every column, so that a scale taken from the wrong one is seen."""
    columns = shapes(model)[name][1]
    factors = normal(f"{name}.scale", model.layers * columns, seed, 1.0, 0.1).astype(np.float32)
    return np.float32(_int8_step(name, model)) * factors.reshape(model.layers, columns)


def _int8_step(name: str, model: Qwen3) -> float:
    """What one step of INT8 is worth: the largest weight is 127 steps."""
    return float(max(_ANCHOR_GAIN.get(name, 0.0), 1.0) * _deviation(name, model) * _QUANTILES[-1] / 127)


def _levels(scale: float) -> Array:
    return np.rint(scale * _QUANTILES).astype(np.int8)


def _deviation(name: str, model: Qwen3) -> float:
    """Standard deviation of a matrix: 1 / sqrt(what one of its outputs sums over), times a gain."""
    rows, columns = shapes(model)[name]
    summed = 1 if name == "embed" else columns if name == "lm_head" else rows // model.layers
    return float(_GAIN.get(name, 1.0) * summed**-0.5)


def normal(name: str, count: int, seed: int, mean: float, std: float) -> Array:
    """`count` BF16 values of a normal distribution, from the stream of this name and seed."""
    return _looked_up(name, count, seed, (mean + std * _QUANTILES).astype(BF16))


def _looked_up(name: str, count: int, seed: int, table: Array) -> Array:
    """`count` entries of a table of 256, drawn two bytes at a time, a block that stays in the cache at a time."""
    bits = table.dtype.itemsize * 8
    single, double = (np.uint8, np.uint16) if bits == 8 else (np.uint16, np.uint32)
    low, high = np.meshgrid(table.view(single).astype(double), table.view(single).astype(double))
    pairs = (low | (high << double(bits))).reshape(-1)
    found = np.empty(-(-count // 8) * 4, dtype=double)
    bytes_of = np.random.PCG64([seed, crc32(name.encode())])
    for at in range(0, len(found), _BLOCK):
        part = found[at : at + _BLOCK]
        pairs.take(bytes_of.random_raw(len(part) // 4).view(np.uint16), out=part, mode="clip")
    return found.view(table.dtype)[:count]


def all_weights(model: Qwen3, seed: int = 0) -> dict[str, Array]:
    return {name: draw(name, model, seed) for name in shapes(model)}
