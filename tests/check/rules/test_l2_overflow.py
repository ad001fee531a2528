"""A weight larger than L2, read again for every tile of rows, and read once for all of them."""

from __future__ import annotations

from linted import found, line_of, program

import npuscope.tile as pl
from npuscope.check.rule import Waste

M, K, N, TILE = 32, 4096, 32768, 2048
SHAPES = (("BF16", M, K), ("BF16", K, N), ("FP32", M, N))
WEIGHT = K * N * 2  # 268 MB; L2 has 201


@pl.jit
def rows_outside(a: pl.Tensor[[M, K], pl.BF16], b: pl.Tensor[[K, N], pl.BF16], c: pl.Out[pl.Tensor[[M, N], pl.FP32]]):
    for m in pl.parallel(0, M, 16):
        for n in pl.parallel(0, N, TILE):
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="product"):
                acc = pl.matmul(a[m : m + 16, 0:64], b[0:64, n : n + TILE], out_dtype=pl.FP32)  # rows outside
                for k in pl.pipeline(64, K, 64, stage=2):
                    acc = pl.matmul_acc(acc, a[m : m + 16, k : k + 64], b[k : k + 64, n : n + TILE])
                c[m : m + 16, n : n + TILE] = acc
    return c


@pl.jit
def rows_inside(a: pl.Tensor[[M, K], pl.BF16], b: pl.Tensor[[K, N], pl.BF16], c: pl.Out[pl.Tensor[[M, N], pl.FP32]]):
    for n in pl.parallel(0, N, TILE):
        for m in pl.parallel(0, M, 16):
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="product"):
                acc = pl.matmul(a[m : m + 16, 0:64], b[0:64, n : n + TILE], out_dtype=pl.FP32)
                for k in pl.pipeline(64, K, 64, stage=2):
                    acc = pl.matmul_acc(acc, a[m : m + 16, k : k + 64], b[k : k + 64, n : n + TILE])
                c[m : m + 16, n : n + TILE] = acc
    return c


@pl.jit
def blocks_rows_outside(
    a: pl.Tensor[[M, K], pl.BF16], b: pl.Tensor[[K, N], pl.BF16], c: pl.Out[pl.Tensor[[M, N], pl.FP32]]
):
    for item in pl.spmd(M // 16 * (N // TILE), name_hint="product"):
        m = item // (N // TILE) * 16
        n = item % (N // TILE) * TILE
        acc = pl.matmul(a[m : m + 16, 0:64], b[0:64, n : n + TILE], out_dtype=pl.FP32)  # blocks
        for k in pl.pipeline(64, K, 64, stage=2):
            acc = pl.matmul_acc(acc, a[m : m + 16, k : k + 64], b[k : k + 64, n : n + TILE])
        c[m : m + 16, n : n + TILE] = acc
    return c


def test_the_weight_is_read_again_after_all_of_it_has_passed() -> None:
    for entry, mark in ((rows_outside, "# rows outside"), (blocks_rows_outside, "# blocks")):
        (finding,) = found("l2-overflow", program(entry, *SHAPES)).values()
        assert finding.line == line_of(__file__, mark)
        assert finding.waste == Waste(bytes=WEIGHT)
        assert "reads 537 MB of b, which has 268 MB" in finding.message
        assert finding.severity == "warning"


def test_read_by_neighbours_it_stays_in_the_cache() -> None:
    assert not found("l2-overflow", program(rows_inside, *SHAPES))
