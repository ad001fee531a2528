"""Rows without data in a matmul: told unless they are declared and the cube needs them."""

from __future__ import annotations

from typing import Any

import pytest
from linted import found, only

import npuscope.tile as pl
from npuscope.check.rule import Waste

HEADS, K, N = 8, 128, 64
FLOPS = 2 * 16 * K * N


Q: Any = pl.Tensor[[HEADS, K], pl.BF16]
B: Any = pl.Tensor[[K, N], pl.BF16]
C: Any = pl.Out[pl.Tensor[[HEADS, N], pl.FP32]]


@pl.jit
def never_written(q: Q, b: B, c: C):
    padded = pl.create_tensor([16, K], dtype=pl.BF16)
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="pad"):
        padded[0:HEADS, :] = q[:, :]
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="product"):
        tile = padded[:, :]
        product = pl.matmul(tile, b[:, :])  # never written
        c[:, :] = pl.set_validshape(product, HEADS, N)
    return c


@pl.jit
def zero_rows(q: Q, b: B, c: C):
    padded = pl.create_tensor([16, K], dtype=pl.BF16)
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="pad"):
        padded[0:HEADS, :] = q[:, :]
        padded[HEADS:16, :] = pl.cast(pl.full([16 - HEADS, K], dtype=pl.FP32, value=0.0), target_type=pl.BF16)
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="product"):
        product = pl.matmul(padded, b[:, :])  # zero rows
        c[:, :] = pl.set_validshape(product, HEADS, N)
    return c


@pl.jit
def declared(q: Q, b: B, c: C):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="product"):
        tile = pl.slice(q, [16, K], [0, 0], valid_shape=[HEADS, K])
        c[:, :] = pl.matmul(tile, b[:, :])
    return c


@pl.jit
def too_high(q: Q, b: B, c: C):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="product"):
        tile = pl.slice(q, [64, K], [0, 0], valid_shape=[HEADS, K])
        c[:, :] = pl.matmul(tile, b[:, :])  # too high
    return c


@pl.jit
def full_rows(q: Q, b: B, c: C):
    both = pl.create_tensor([16, K], dtype=pl.BF16)
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="pad"):
        both[0:HEADS, :] = q[:, :]
        both[HEADS:16, 0:64] = q[:, 0:64]
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="product"):
        product = pl.matmul(both, b[:, :])
        c[:, :] = pl.set_validshape(product, HEADS, N)
    return c


def test_rows_that_were_never_written_are_told_with_the_work_they_cause() -> None:
    finding = only("padded-rows", never_written, "# never written")
    assert finding.severity == "warning"
    assert "8 of which were never written: 50% useful" in finding.message
    assert finding.waste == Waste(bytes=8 * K * 2, flops=FLOPS // 2)  # half of the rows, loaded and multiplied
    assert finding.change == "pl.slice(padded, [16, 128], [...], valid_shape=[8, 128])"


@pl.jit
def rows_that_ended(q: Q, b: B, c: C):
    rows = pl.create_tensor([16, K], dtype=pl.BF16)
    for row in pl.spmd(16, name_hint="row"):
        if row < HEADS:
            rows[row : row + 1, :] = q[row : row + 1, :]
        else:
            rows[row : row + 1, :] = pl.cast(pl.full([1, K], dtype=pl.FP32, value=0.0), target_type=pl.BF16)
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="product"):
        product = pl.matmul(rows, b[:, :])
        c[:, :] = pl.set_validshape(product, HEADS, N)
    return c


def test_rows_of_zeros_are_told_as_a_hint() -> None:
    finding = only("padded-rows", zero_rows, "# zero rows")
    assert finding.severity == "hint"
    assert "8 of which hold zeros" in finding.message


def test_declared_padding_beyond_that_is() -> None:
    finding = only("padded-rows", too_high, "# too high")
    assert finding.waste == Waste(flops=3 * FLOPS)  # 64 rows in place of 16
    assert "16 rows high" in finding.remedy


@pytest.mark.parametrize("entry", [declared, rows_that_ended, full_rows], ids=lambda entry: entry.name)
def test_padding_that_the_cube_needs_and_rows_with_data_now_or_in_part(entry: Any) -> None:
    assert not found("padded-rows", entry)
