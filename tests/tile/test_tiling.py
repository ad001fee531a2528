"""Tiled programs compute what the plain formula does, whatever the shapes, the tiles and their remainders.

fp32: the sums are taken in another order, so results differ by the rounding of a sum: `eps · terms` of the sum of
absolute terms, with eps = 2^-24. bf16 inputs are exact in fp32 and products of two are too, so a bf16 gemm has the same
bound, plus one rounding of the result to bf16 (2^-8) where it is stored so.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import npuscope.tile as pl

EPS = 2.0**-24
CORE = pl.Level.CORE_GROUP

extents = st.integers(1, 40)
tiles = st.sampled_from([7, 16, 32])
kinds = st.sampled_from([np.float32, ml_dtypes.bfloat16])
seeds = st.integers(0, 2**31)


def drawn(seed: int, *shape: int, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(seed).standard_normal(shape, np.float32).astype(dtype)


def gemm(tm: int, tn: int, tk: int) -> Any:
    @pl.jit
    def main(a: pl.Tensor, b: pl.Tensor, c: pl.Out[pl.Tensor]):
        rows, depth, columns = a.shape[0], a.shape[1], b.shape[1]
        for m in pl.parallel(0, rows, tm):
            for n in pl.parallel(0, columns, tn):
                with pl.at(level=CORE, name_hint="gemm"):
                    high, wide = pl.min(tm, rows - m), pl.min(tn, columns - n)
                    deep = pl.min(tk, depth)
                    left = pl.slice(a, [tm, tk], [m, 0], valid_shape=[high, deep])
                    right = pl.slice(b, [tk, tn], [0, n], valid_shape=[deep, wide])
                    acc = pl.matmul(left, right)
                    for k in pl.pipeline(tk, depth, tk, stage=2):
                        deep = pl.min(tk, depth - k)
                        left = pl.slice(a, [tm, tk], [m, k], valid_shape=[high, deep])
                        right = pl.slice(b, [tk, tn], [k, n], valid_shape=[deep, wide])
                        acc = pl.matmul_acc(acc, left, right)
                    pl.store(acc, [m, n], c)
        return c

    return main


@given(extents, extents, extents, tiles, tiles, tiles, kinds, seeds)
def test_gemm(m: int, n: int, k: int, tm: int, tn: int, tk: int, kind: Any, seed: int) -> None:
    a, b = drawn(seed, m, k, dtype=kind), drawn(seed + 1, k, n, dtype=kind)
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    bound = EPS * (k + 1) * (np.abs(wide_a) @ np.abs(wide_b))
    c = gemm(tm, tn, tk)(a, b, np.zeros((m, n), np.float32))
    assert np.all(np.abs(c - wide_a @ wide_b) <= bound)
    narrow = gemm(tm, tn, tk)(a, b, np.zeros((m, n), ml_dtypes.bfloat16)).astype(np.float64)
    assert np.all(np.abs(narrow - wide_a @ wide_b) <= bound + 2.0**-8 * np.abs(wide_a @ wide_b) * (1 + 2.0**-8))


def attention(tq: int, tk: int, scale: float) -> Any:
    """Online softmax: the maximum so far rescales what was summed before."""

    @pl.jit
    def main(q: pl.Tensor, k: pl.Tensor, v: pl.Tensor, o: pl.Out[pl.Tensor]):
        rows, keys, size = q.shape[0], k.shape[0], q.shape[1]
        for b in pl.spmd((rows + tq - 1) // tq):
            high = pl.min(tq, rows - b * tq)
            queries = pl.slice(q, [tq, size], [b * tq, 0], valid_shape=[high, size])
            top = pl.full([tq, 1], dtype=pl.FP32, value=-1e30)
            total = pl.full([tq, 1], dtype=pl.FP32, value=0.0)
            acc = pl.full([tq, size], dtype=pl.FP32, value=0.0)
            for n in pl.range(0, keys, tk):
                wide = pl.min(tk, keys - n)
                scores = pl.mul(
                    pl.matmul(queries, pl.slice(k, [tk, size], [n, 0], valid_shape=[wide, size]), b_trans=True), scale
                )
                higher = pl.maximum(top, pl.row_max(scores))
                p = pl.exp(pl.row_expand_sub(scores, higher))
                fade = pl.exp(pl.sub(top, higher))
                total = pl.add(pl.mul(total, fade), pl.row_sum(p))
                weights = pl.cast(p, v.dtype, mode="rint")
                part = pl.matmul(weights, pl.slice(v, [tk, size], [n, 0], valid_shape=[wide, size]))
                acc = pl.add(pl.row_expand_mul(acc, fade), part)
                top = higher
            out = pl.row_expand_div(acc, total)
            pl.store(pl.set_validshape(out, high, size), [b * tq, 0], o)
        return o

    return main


@given(st.integers(1, 20), st.integers(1, 70), st.sampled_from([4, 16]), tiles, tiles, kinds, seeds)
def test_attention(m: int, n: int, size: int, tq: int, tk: int, kind: Any, seed: int) -> None:
    q, k, v = (drawn(seed + i, rows, size, dtype=kind) for i, rows in enumerate((m, n, n)))
    scale = size**-0.5
    scores = q.astype(np.float64) @ k.astype(np.float64).T * scale
    e = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights = e / e.sum(axis=1, keepdims=True)
    o = attention(tq, tk, scale)(q, k, v, np.zeros((m, size), np.float32))
    # Per weight: exp of a score that errs by eps · (size + 2) · |q| |k| scale, and again for each rescaling; in bf16
    # weights are rounded once, by 2^-8 of themselves, after the sum of the unrounded ones was taken.
    most = float(np.max(np.abs(q.astype(np.float64)) @ np.abs(k.astype(np.float64)).T)) * scale
    error = EPS * ((size + 4) * 2 * (most + 1) + n + 8) + (2.0**-8 if kind is not np.float32 else 0)
    assert np.all(np.abs(o - weights @ v.astype(np.float64)) <= error * (weights @ np.abs(v.astype(np.float64))))
