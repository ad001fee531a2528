"""Loops whose turns wait for one another for nothing, and loops that have to."""

from __future__ import annotations

from typing import Any

import pytest
from linted import found, line_of, model, only, program

import npuscope.tile as pl
from npuscope.check.rule import Waste

SEQUENTIAL, PARALLEL = "sequential-independent", "serialised-parallel"
N, STEP = 512, 128


X: Any = pl.Tensor[[16, N], pl.FP32]
Z: Any = pl.Out[pl.Tensor[[16, N], pl.FP32]]


@pl.jit
def in_order(x: X, y: Z, z: Z):
    for n in pl.range(0, N, STEP):  # in order
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="root"):
            y[:, n : n + STEP] = pl.exp(x[:, n : n + STEP])
    return y, z


@pl.jit
def written_before(x: X, y: Z, z: Z):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="zero"):
        y[:, :] = pl.full([16, N], dtype=pl.FP32, value=0.0)
    for n in pl.range(0, N, STEP):  # written before
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="root"):
            y[:, n : n + STEP] = pl.exp(x[:, n : n + STEP])
    return y, z


@pl.jit
def side_by_side(x: X, y: Z, z: Z):
    for n in pl.parallel(0, N, STEP):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="root"):
            y[:, n : n + STEP] = pl.exp(x[:, n : n + STEP])
    return y, z


@pl.jit
def sliced(x: X, y: Z, z: Z):
    """Sequential, but each task is given its own columns: the runtime sees that they are apart."""
    for n in pl.range(0, N, STEP):
        part = pl.slice(y, [16, STEP], [0, n])
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="root"):
            part[:, :] = pl.exp(x[:, n : n + STEP])
    return y, z


@pl.jit
def running_sum(x: X, y: Z, z: Z):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="zero"):
        y[:, 0:STEP] = pl.full([16, STEP], dtype=pl.FP32, value=0.0)
    for n in pl.range(0, N, STEP):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="add"):
            y[:, 0:STEP] = pl.add(y[:, 0:STEP], x[:, n : n + STEP])
    return y, z


@pl.jit
def overwritten_later(x: X, y: Z, z: Z):
    """Each turn reads columns that the next one overwrites: its waits are for nothing, but its order matters."""
    for n in pl.range(0, N - STEP, STEP):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="shift"):
            y[:, n : n + STEP] = pl.exp(x[:, n : n + STEP])
            z[:, n : n + STEP] = y[:, n + STEP : n + 2 * STEP]
    return y, z


Y: Any = pl.InOut[pl.Tensor[[16, N], pl.FP32]]


@pl.jit
def given_whole(x: X, y: Y, z: Z):
    for n in pl.parallel(0, N, STEP):  # given whole
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="scale"):
            y[:, n : n + STEP] = pl.add(y[:, n : n + STEP], x[:, n : n + STEP])
    return y, z


@pl.jit
def left_out(x: X, y: Y, z: Z):
    for n in pl.parallel(0, N, STEP):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="scale", no_dep_args=[y]):
            y[:, n : n + STEP] = pl.add(y[:, n : n + STEP], x[:, n : n + STEP])
    return y, z


@pl.jit
def neighbours(x: X, y: Y, z: Z):
    """Declared parallel, but every turn reads what the turn before it wrote."""
    for n in pl.parallel(STEP, N, STEP):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="scale"):
            y[:, n : n + STEP] = pl.add(y[:, n - STEP : n], x[:, n : n + STEP])
    return y, z


@pl.jit
def sequential_inside(x: X, y: Z, z: Z):
    for r in pl.parallel(0, 16, 8):
        for n in pl.range(0, N, STEP):  # sequential inside
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="root"):
                y[r : r + 8, n : n + STEP] = pl.exp(x[r : r + 8, n : n + STEP])
    return y, z


def test_a_sequential_loop_in_a_parallel_one_is_told_once() -> None:
    assert list(found(SEQUENTIAL, sequential_inside)) == [line_of(__file__, "# sequential inside")]
    assert not found(PARALLEL, sequential_inside)


@pl.jit
def sequential_outside(x: X, y: Z, z: Z):
    for _ in pl.range(2):
        for n in pl.parallel(0, N, STEP):  # sequential outside
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="root"):
                y[:, n : n + STEP] = pl.exp(x[:, n : n + STEP])
    return y, z


def test_a_parallel_loop_in_a_sequential_one() -> None:
    finding = only(PARALLEL, sequential_outside, "# sequential outside")
    assert finding.waste == Waste(waits=2 * (N // STEP - 1))
    assert "because of a pl.range loop around it" in finding.message
    assert not found(SEQUENTIAL, sequential_outside)  # its second turn overwrites what the first wrote


def test_a_sequential_loop_over_columns() -> None:
    finding = only(SEQUENTIAL, in_order, "# in order")
    assert finding.waste == Waste(waits=N // STEP - 1)
    assert finding.remedy == "Make it a pl.parallel loop."
    assert finding.change == "for n in pl.parallel(0, N, STEP):"


def test_parallel_alone_does_not_help_what_was_written_before() -> None:
    finding = only(SEQUENTIAL, written_before, "# written before")
    assert "its own slice of y, written before the loop" in finding.remedy


def test_a_parallel_loop_whose_tasks_are_given_the_whole_tensor() -> None:
    assert not found(SEQUENTIAL, given_whole)
    finding = only(PARALLEL, given_whole, "# given whole")
    assert finding.waste == Waste(waits=N // STEP - 1)
    assert "the whole of y" in finding.message


@pytest.mark.parametrize(
    "entry", [side_by_side, sliced, running_sum, overwritten_later, left_out, neighbours], ids=lambda e: e.__name__
)
def test_loops_that_do_not_wait_or_have_to(entry: Any) -> None:
    assert not found(SEQUENTIAL, entry)
    assert not found(PARALLEL, entry)


def test_the_advice_holds() -> None:
    """With pl.parallel, and with slices where something wrote before, no turn waits for another."""
    for entry, waits in ((in_order, N // STEP - 1), (side_by_side, 0), (sliced, 0)):
        edges = program(entry).graph.edges
        assert len([edge for edge in edges if edge.origin in ("raw", "waw")]) == waits


def test_the_tilelet_as_found() -> None:
    made = model("qwen3_32b_tilelet", "--as-found")
    sequential, parallel = found(SEQUENTIAL, made), found(PARALLEL, made)
    file = next(iter(parallel.values())).file
    # zeros of q and attention, of k and v, then q, then k and v: 32, 4, 32 and 4 turns of one, one, one and two tasks
    assert [finding.waste.waits for finding in sequential.values()] == [31, 3, 31, 6]
    assert next(iter(sequential)) == line_of(file, "First zeros, one task") + 1
    rows, out_proj, down_proj = parallel.items()
    assert rows[0] == line_of(file, "for b in pl.parallel(BATCH)")
    assert rows[1].waste == Waste(waits=15)  # each row's cache update waits for the row before
    assert "k_cache and v_cache" in rows[1].message
    # loops that the compiler cut into chunks, each given a tensor that was filled with zeros before
    assert out_proj[0] == line_of(file, "for block in pl.parallel(0, N_BLOCKS, 1, chunk=8)")
    assert out_proj[1].waste == Waste(waits=3)
    assert "first_residual" in out_proj[1].message
    assert down_proj[0] == line_of(file, "for step in pl.parallel(0, K_BLOCKS, 1, chunk=4)")
    assert "down_proj" in down_proj[1].message


@pytest.mark.parametrize("name", ["qwen3_32b_tilelet", "paged_attention"])
def test_nothing_in_the_improved_tilelet_and_in_paged_attention(name: str) -> None:
    made = model(name)
    assert not found(SEQUENTIAL, made)
    assert not found(PARALLEL, made)
