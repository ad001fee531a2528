"""Casts that round otherwise than torch: one finding per file, and only where bits are lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripts import findings, line_of

CASTS = """
@pl.jit
def narrow(x: pl.Tensor[[16, 64], pl.FP32], out: pl.Out[pl.Tensor[[16, 64], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="narrow"):
        tile = {cast}
        for i in pl.range(3):
            out[0:1, :] = pl.cast(tile, target_type=pl.FP32)[0:1, :]
    return out

narrow(np.zeros((16, 64), np.float32), np.zeros((16, 64), np.float32))
"""


@pytest.mark.parametrize(
    ("cast", "told"),
    [
        ("pl.cast(x[:, :], target_type=pl.BF16)", "FP32 to BF16"),
        ("pl.cast(x[:, :], pl.INT32)", "FP32 to INT32"),
        ('pl.cast(pl.cast(x[:, :], pl.INT32, mode="rint"), pl.FP16)', "INT32 to FP16"),
        ('pl.cast(x[:, :], target_type=pl.BF16, mode="rint")', ""),
        ('pl.cast(x[:, :], target_type=pl.BF16, mode="round")', ""),  # said, so meant
        ("pl.cast(pl.full([16, 64], dtype=pl.FP32, value=0.0), target_type=pl.BF16)", ""),
        ("pl.cast(pl.add(pl.cast(pl.arange(0, [1, 64], dtype=pl.INT32), pl.FP32), 1.0), pl.INT32)", ""),  # a counter
    ],
)
def test_only_casts_that_lose_bits_in_the_default_mode(tmp_path: Path, cast: str, told: str) -> None:
    text = CASTS.replace("{cast}", cast)
    found = findings(tmp_path, text, "rounding-mode")
    assert [f.line for f in found] == ([line_of(text, "tile = ")] if told else [])
    assert all(told in f.message for f in found)


def test_the_mode_to_give_is_shown(tmp_path: Path) -> None:
    (found,) = findings(tmp_path, CASTS.replace("{cast}", "pl.cast(x[:, :], pl.BF16)"), "rounding-mode")
    assert found.change == 'tile = pl.cast(x[:, :], pl.BF16, mode="rint")'


def test_all_casts_of_a_file_are_one_finding(tmp_path: Path) -> None:
    text = CASTS.replace("{cast}", "pl.cast(x[:, :], pl.BF16)")
    text = text.replace("        for i", "        tile = pl.cast(pl.cast(tile, pl.FP32), pl.FP16)\n        for i")
    (found,) = findings(tmp_path, text, "rounding-mode")
    assert "casts on 2 lines (FP32 to BF16, FP32 to FP16)" in found.message
    assert [line for _, line in found.also] == [found.line + 1]
