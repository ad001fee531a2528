"""How a kernel's time came about: links that add up to it, each with its constant, and what the constants move."""

from __future__ import annotations

import polars as pl_frame
import pytest

import npuscope.tile as pl
from npuscope.chip.devices import with_values
from npuscope.time.reasons import reasons
from npuscope.time.run import simulate
from tests.lower.kernels import program, tensor


@pl.jit
def rows_by_hand(x: pl.Tensor, q: pl.Tensor, y: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="by_hand"):
        rows = pl.create_l1([64, 128], pl.BF16)
        for r in pl.range(64):
            rows = pl.gather_row(rows, x, [r, 0], [63 - r, 0], [1, 128])
        y[:, :] = pl.matmul(q[:, :], rows, b_trans=True, out_dtype=pl.FP32)
    return y


ARGUMENTS = tensor((64, 128), "BF16"), tensor((16, 128), "BF16"), tensor((16, 64), "FP32")


def test_links_of_the_chain_add_up_to_the_block_and_name_their_constants() -> None:
    lowered = program(rows_by_hand, *ARGUMENTS)
    found = reasons(simulate(lowered), "by_hand")
    assert found.chain["time_ns"].sum() == pytest.approx(found.whole_ns)
    first = found.chain.row(0, named=True)
    assert (first["name"], first["where"], first["times"]) == ("gather_row x", "AIC MTE2", 64)
    for row in found.chain.iter_rows(named=True):
        table, key = row["constant"].split(".")
        assert row["confidence"] == getattr(lowered.device, table)[key].confidence
        assert row["origin"]
    # 64 short loads one after another: what a load takes at least decides
    assert first["constant"] == "timing.load_fixed"


def test_what_a_fifth_of_a_constant_does_is_what_the_block_takes_with_it() -> None:
    lowered = program(rows_by_hand, *ARGUMENTS)
    found = reasons(simulate(lowered), "by_hand")
    first = found.depends.row(0, named=True)
    assert first["constant"] == "timing.load_fixed"
    value = lowered.device.timing["load_fixed"].value
    for change, key in ((0.8, "less"), (1.2, "more")):
        other = with_values(lowered.device, {"timing.load_fixed": value * change})
        moved = reasons(simulate(lowered.with_timing(other)), "by_hand").whole_ns / found.whole_ns - 1
        assert first[key] == pytest.approx(moved)
    moves = [max(abs(row["less"]), abs(row["more"])) for row in found.depends.iter_rows(named=True)]
    assert moves == sorted(moves, reverse=True)


@pl.jit
def squares(x: pl.Tensor, y: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="squares"):
        tile = x[:, :]
        for _ in pl.range(8):
            tile = pl.mul(tile, tile)
        y[:, :] = tile
    return y


def test_the_cost_of_an_op_is_among_what_the_time_depends_on() -> None:
    found = reasons(simulate(program(squares, *2 * (tensor((64, 256), "FP32"),))), "squares")
    row = found.depends.row(by_predicate=pl_frame.col("constant") == "op.vmul", named=True)
    assert row["less"] < 0 < row["more"]
    assert (row["value"], row["confidence"]) == ("25 + 2 a 256 B cycles", "measured")


@pl.jit
def all_load(x: pl.Tensor, y: pl.Out[pl.Tensor]):
    for block in pl.spmd(48, name_hint="all_load"):
        total = pl.full([16, 256], dtype=pl.FP32, value=0.0)
        for n in pl.range(32):
            total = pl.add(total, x[block * 16 : block * 16 + 16, n * 256 : n * 256 + 256])
        y[block * 16 : block * 16 + 16, :] = total
    return y


def test_where_all_cores_wait_for_hbm_its_rate_decides_and_a_cores_own_does_not() -> None:
    lowered = program(all_load, tensor((768, 8192), "FP32"), tensor((768, 256), "FP32"))
    simulated = simulate(lowered)
    found = reasons(simulated, "all_load")
    first = found.depends.row(0, named=True)
    assert first["constant"] == "timing.hbm_rate"
    assert "timing.load_vector_hbm" in found.chain["constant"].to_list()
    assert "timing.load_vector_hbm" not in found.depends["constant"].head(3).to_list()
    rate = lowered.device.timing["hbm_rate"].value
    other = simulate(lowered.with_timing(with_values(lowered.device, {"timing.hbm_rate": 0.8 * rate})))
    before, after = (float((one.times.end - one.times.start).mean()) for one in (simulated, other))
    assert first["less"] == pytest.approx(after / before - 1)
