"""What several kernels of the layers do inside a task: inline functions, made for the sizes of a model.

Each is called in a region (`pl.at`, `pl.spmd`) of the layer that needs it. What they write, they write in place.
"""

from __future__ import annotations

from typing import Any

import npuscope.tile as pl
from qwen3_14b.config import Q_PAD, ROWS, Qwen3


def store_type(model: Qwen3) -> Any:
    return pl.BF16 if model.storage == "bf16" else pl.FP32


def split_k_tile(tk: int, tn: int, steps: int) -> Any:
    """[ROWS, tn] of a projection over `steps` cube steps of tk, added to what other K splits have put there."""

    @pl.jit.inline
    def tile(acts: pl.Tensor, weight: pl.Tensor, out: pl.Tensor, k0: pl.Scalar, weight_row: pl.Scalar, n0: pl.Scalar):
        acc = pl.matmul(acts[:, k0 : k0 + tk], weight[weight_row : weight_row + tk, n0 : n0 + tn], out_dtype=pl.FP32)
        for step in pl.pipeline(1, steps, stage=2):
            k = k0 + step * tk
            row = weight_row + step * tk
            acc = pl.matmul_acc(acc, acts[:, k : k + tk], weight[row : row + tk, n0 : n0 + tn])
        out = pl.assemble(out, acc, [0, n0], atomic=pl.AtomicType.Add)
        return out

    return tile


def zero_columns(width: int, step: int) -> Any:
    """[ROWS, width] of zeros in fp32, for split-K tiles to add to."""

    @pl.jit.inline
    def zero(out: pl.Tensor):
        for n in pl.pipeline(width // step, stage=2):
            out = pl.assemble(out, pl.full([ROWS, step], dtype=pl.FP32, value=0.0), [0, n * step])
        return out

    return zero


def inverse_rms(width: int, chunk: int, eps: float, narrow: bool = False) -> Any:
    """1 / rms of every row of x [ROWS, width] (of fp32, or `narrow`er), as a column."""
    mean = 1.0 / width

    @pl.jit.inline
    def reduce(x: pl.Tensor, inverse: pl.Tensor):
        squares = pl.full([1, ROWS], dtype=pl.FP32, value=0.0)
        for i in pl.pipeline(width // chunk, stage=4):
            part = x[:, i * chunk : (i + 1) * chunk]
            if narrow:
                part = pl.cast(part, target_type=pl.FP32)
            squares = pl.add(squares, pl.reshape(pl.row_sum(pl.mul(part, part)), [1, ROWS]))
        variance = pl.reshape(pl.add(pl.mul(squares, mean), eps), [ROWS, 1])
        inverse = pl.assemble(inverse, pl.recip(pl.sqrt(variance)), [0, 0])
        return inverse

    return reduce


def normed_heads(model: Qwen3) -> Any:
    """QK-norm of x [n, head_dim]: every head's RMS over its own dimension, times the norm's weights."""
    eps, mean = model.eps, 1.0 / model.head_dim

    @pl.jit.inline
    def normed(x: pl.Tensor, gamma: pl.Tensor):
        variance = pl.add(pl.mul(pl.row_sum(pl.mul(x, x)), mean), eps)
        return pl.row_expand_mul(pl.col_expand_mul(x, gamma), pl.recip(pl.sqrt(variance)))

    return normed


def rotated(model: Qwen3) -> Any:
    """RoPE of x [n, head_dim], all rows at the position of cos and sin [1, head_dim]."""
    half, dim = model.head_dim // 2, model.head_dim

    @pl.jit.inline
    def rotate(x: pl.Tensor, cos: pl.Tensor, sin: pl.Tensor):
        low = x[:, 0:half]
        high = x[:, half:dim]
        turned_low = pl.sub(pl.col_expand_mul(low, cos[:, 0:half]), pl.col_expand_mul(high, sin[:, 0:half]))
        turned_high = pl.add(pl.col_expand_mul(high, cos[:, half:dim]), pl.col_expand_mul(low, sin[:, half:dim]))
        return pl.concat(turned_low, turned_high)

    return rotate


def work_list(model: Qwen3, tokens: int, heads: int) -> Any:
    """The attention tiles that exist, without gaps: table[i] = (row * heads + head) * parts + part, and their number.

    `tokens` of a tile, `heads` that are items of their own (1 where one item does all KV heads).
    """
    parts = model.max_seq // tokens

    @pl.jit.inline
    def build(seq_lens: pl.Tensor, table: pl.Tensor, total: pl.Tensor):
        count = pl.read(seq_lens, [0]) * 0
        for row in pl.range(ROWS):
            filled = (pl.read(seq_lens, [row]) + (tokens - 1)) // tokens
            for head in pl.range(heads):
                for part in pl.range(filled):
                    item = (row * heads + head) * parts + part
                    pl.write(table, [count + part, 0], pl.cast(item, target_type=pl.INT32))
                count = count + filled
        pl.write(total, [0, 0], pl.cast(count, target_type=pl.INT32))
        return total

    return build


def attend(model: Qwen3, tokens: int) -> Any:
    """One KV head's queries against `tokens` cached tokens, `valid` of which exist: partial output, maximum, sum."""
    group, dim, store = model.group, model.head_dim, store_type(model)
    scale = model.head_dim**-0.5

    @pl.jit.inline
    def partial(
        queries: pl.Tensor, k_cache: pl.Tensor, v_cache: pl.Tensor, outs: pl.Tensor, tops: pl.Tensor, sums: pl.Tensor,
        query_row: pl.Scalar, cache_row: pl.Scalar, part_row: pl.Scalar, valid: pl.Scalar,
    ):  # fmt: skip
        query = queries[query_row : query_row + Q_PAD, :]
        keys = k_cache[cache_row : cache_row + tokens, :]
        scores = pl.mul(pl.matmul(query, keys, b_trans=True, out_dtype=pl.FP32), scale)
        scores = pl.fillpad(pl.set_validshape(scores, Q_PAD, valid), pad_value=pl.PadValue.min)
        top = pl.row_max(scores)
        weights = pl.exp(pl.row_expand_sub(scores, top))
        total = pl.row_sum(weights)
        values = v_cache[cache_row : cache_row + tokens, :]
        out = pl.matmul(pl.cast(weights, target_type=store), values, out_dtype=pl.FP32)
        outs = pl.assemble(outs, pl.set_validshape(out, group, dim), [part_row, 0])
        tops = pl.assemble(tops, pl.set_validshape(top, group, 1), [part_row, 0])
        sums = pl.assemble(sums, pl.set_validshape(total, group, 1), [part_row, 0])
        return outs

    return partial


def merge(model: Qwen3) -> Any:
    """The partial outputs of one (row, KV head) rescaled to one maximum, summed, divided, into the output's row."""
    group, dim, store = model.group, model.head_dim, store_type(model)

    @pl.jit.inline
    def merged(
        outs: pl.Tensor, tops: pl.Tensor, sums: pl.Tensor, attn: pl.Tensor,
        part_row: pl.Scalar, parts: pl.Scalar, row: pl.Scalar, column: pl.Scalar,
    ):  # fmt: skip
        out = pl.slice(outs, [Q_PAD, dim], [part_row, 0], valid_shape=[group, dim])
        top = pl.slice(tops, [Q_PAD, 1], [part_row, 0], valid_shape=[group, 1])
        total = pl.slice(sums, [Q_PAD, 1], [part_row, 0], valid_shape=[group, 1])
        for part in pl.pipeline(1, parts, stage=2):
            at = part_row + part * Q_PAD
            part_out = pl.slice(outs, [Q_PAD, dim], [at, 0], valid_shape=[group, dim])
            part_top = pl.slice(tops, [Q_PAD, 1], [at, 0], valid_shape=[group, 1])
            part_sum = pl.slice(sums, [Q_PAD, 1], [at, 0], valid_shape=[group, 1])
            new_top = pl.maximum(top, part_top)
            old_scale = pl.exp(pl.sub(top, new_top))
            new_scale = pl.exp(pl.sub(part_top, new_top))
            total = pl.add(pl.mul(old_scale, total), pl.mul(new_scale, part_sum))
            out = pl.add(pl.row_expand_mul(out, old_scale), pl.row_expand_mul(part_out, new_scale))
            top = new_top
        heads = pl.row_expand_div(out, total)
        flat = pl.reshape(heads[0:group, :], [1, group * dim])
        attn = pl.assemble(attn, pl.cast(flat, target_type=store), [row, column])
        return attn

    return merged


def swiglu(model: Qwen3) -> Any:
    """silu(gate) * up of one chunk, both scaled by 1 / rms [ROWS, 1], rounded to the storage type."""
    store = store_type(model)

    @pl.jit.inline
    def active(gate: pl.Tensor, up: pl.Tensor, scale: pl.Tensor):
        scaled_gate = pl.row_expand_mul(gate, scale)
        scaled_up = pl.row_expand_mul(up, scale)
        sigmoid = pl.recip(pl.add(pl.exp(pl.neg(scaled_gate)), 1.0))
        return pl.cast(pl.mul(pl.mul(scaled_gate, sigmoid), scaled_up), target_type=store)

    return active
