"""Rows below the line of global memory, where the tensor has longer ones."""

from __future__ import annotations

from typing import Any

import pytest
from linted import found, line_of, only, program

import npuscope.tile as pl
from npuscope.check.rule import Waste

ROWS, COLUMNS = 128, 1024


def copied(tile: int, columns: int = COLUMNS) -> Any:
    """A tensor copied in tiles of so many columns."""

    @pl.jit
    def copy(x: pl.Tensor[[ROWS, columns], pl.BF16], y: pl.Out[pl.Tensor[[ROWS, columns], pl.BF16]]):
        for block in pl.spmd(columns // tile, name_hint="copy"):
            n = block * tile
            part = pl.add(x[:, n : n + tile], 1.0)  # read
            y[:, n : n + tile] = part  # written
        return y

    return copy


def test_short_rows_are_told_once_per_tensor_with_what_the_lines_cost() -> None:
    findings = found("short-row", copied(64))
    assert sorted(findings) == [line_of(__file__, "# read"), line_of(__file__, "# written")]
    read = findings[line_of(__file__, "# read")]
    assert "reads 16,384 bytes of x as 128 x 128 B" in read.message
    assert "256 columns of BF16 fill a line" in read.remedy
    assert read.waste == Waste(bytes=(512 - 128) * ROWS * COLUMNS // 64)
    assert read.count == COLUMNS // 64


@pytest.mark.parametrize(
    ("tile", "columns"),
    [
        (256, COLUMNS),  # a line
        (64, 64),  # rows without gaps are one long one
    ],
)
def test_long_rows_are_fine(tile: int, columns: int) -> None:
    assert not found("short-row", copied(tile, columns))


def test_the_line_is_the_chips() -> None:
    checked = program(copied(64), device="ascend950")
    assert not found("short-row", checked)  # 128 B there


@pl.jit
def strided(x: pl.Tensor[[ROWS, 96], pl.BF16], y: pl.Out[pl.Tensor[[ROWS, 32], pl.BF16]]):
    for block in pl.spmd(1, name_hint="strided"):
        y[:, :] = pl.add(x[:, block * 32 : block * 32 + 32], 1.0)
    return y


def test_a_tensor_with_short_rows_gives_no_more_than_it_has() -> None:
    finding = only("short-row", strided)
    assert "96 columns of BF16 are a whole row" in finding.remedy
    assert finding.waste == Waste(bytes=(192 - 64) * ROWS)
