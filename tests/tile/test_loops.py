"""Loops, branches and the values they carry: as PyPTO's parser means them, turn by turn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import npuscope.tile as pl
from npuscope.base.errors import NpuscopeError
from npuscope.tile.fault import TileError
from npuscope.tile.record import recorder
from npuscope.tile.record.model import Mode
from npuscope.tile.run.execute import record

CORE = pl.Level.CORE_GROUP
MODES = pytest.mark.parametrize("mode", ["values", "shapes"])


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


@pl.jit
def summed(x: pl.Tensor, n: pl.Scalar[pl.INT32], y: pl.Out[pl.Tensor]):
    with pl.at(level=CORE):
        start = pl.full([1, 16], dtype=pl.FP32, value=100.0)
        for i, (total, count) in pl.range(n, init_values=(start, 0)):
            row = pl.add(total, x[i : i + 1, :])
            total_out, count_out = pl.yield_(row, count + 1)
        pl.store(total_out, [0, 0], y)
        pl.write(y, [1, 0], pl.cast(count_out, pl.FP32))
    return y


@pytest.mark.parametrize("turns", [0, 1, 4])
def test_carried_values_end_as_the_last_turn_left_them_or_as_they_began(turns: int) -> None:
    x, y = np.arange(64, dtype=np.float32).reshape(4, 16), np.zeros((2, 16), np.float32)
    summed(x, turns, y)
    np.testing.assert_array_equal(y[0], 100 + x[:turns].sum(0))
    assert y[1, 0] == turns


@pl.jit
def halved(x: pl.Tensor, y: pl.Out[pl.Tensor]):
    n = pl.read(x, [0])
    for left, steps in pl.while_(init_values=(n, 0)):
        pl.cond(left > 1)
        left_out, steps_out = pl.yield_(left // 2, steps + 1)
    with pl.at(level=CORE):
        pl.write(y, [0], left_out)
        pl.write(y, [1], steps_out)
    return y


@pytest.mark.parametrize(("n", "steps"), [(1, 0), (2, 1), (40, 5)])
@MODES
def test_a_while_loop_goes_on_as_long_as_its_condition_holds(n: int, steps: int, mode: Mode) -> None:
    x, y = np.array([n], np.int32), np.zeros(2, np.int32)
    finished = record(halved, x, y, mode=mode)
    np.testing.assert_array_equal(finished.named["y"], [1, steps])


@pl.jit
def first_negative(x: pl.Tensor, y: pl.Out[pl.Tensor]):
    with pl.at(level=CORE):
        found = 16
        for i in pl.range(16):
            if pl.read(x, [0, i]) >= 0:
                continue
            found = i
            break
        pl.write(y, [0], found)
    return y


@pytest.mark.parametrize("at", [0, 7, 16])
def test_break_and_continue(at: int) -> None:
    x, y = ones(1, 16), np.zeros(1, np.int32)
    x[0, at:] = -1
    first_negative(x, y)
    assert y[0] == at


@pl.jit
def chosen(x: pl.Tensor, flag: pl.Scalar[pl.INT32], y: pl.Out[pl.Tensor]):
    with pl.at(level=CORE):
        base = pl.add(x, 1.0)
        if flag > 0:  # noqa: SIM108
            value = pl.yield_(pl.mul(base, 2.0))
        else:
            value = pl.yield_(base)
        y[:] = value
    return y


@pytest.mark.parametrize(("flag", "want"), [(1, 4.0), (0, 2.0)])
def test_both_arms_of_a_branch_may_give_a_name_its_value(flag: int, want: float) -> None:
    y = np.zeros((2, 16), np.float32)
    chosen(ones(2, 16), flag, y)
    assert (y == want).all()


@pl.jit
def nested(x: pl.Tensor, y: pl.Out[pl.Tensor]):
    with pl.at(level=CORE):
        for _i, (outer,) in pl.range(3, init_values=(x[0:1, :],)):
            for _j, (inner,) in pl.pipeline(2, stage=2, init_values=(outer,)):
                inner_out = pl.yield_(pl.add(inner, 1.0))
            outer_out = pl.yield_(pl.mul(inner_out, 2.0))
        y[:] = outer_out
    return y


def test_loops_carry_through_each_other() -> None:
    y = np.zeros((1, 16), np.float32)
    nested(ones(1, 16), y)
    assert (y == 36).all()  # (1 + 2) · 2 = 6, (6 + 2) · 2 = 16, (16 + 2) · 2 = 36


@pl.jit
def steps(y: pl.Out[pl.Tensor]):
    with pl.at(level=CORE):
        for i in pl.range(10, 0, -3):
            pl.write(y, [i], 1)
        for i in pl.unroll(2):
            pl.write(y, [i], 2)
    return y


@MODES
def test_bounds_count_up_and_down(mode: Mode) -> None:
    finished = record(steps, np.zeros(12, np.int32), mode=mode)
    np.testing.assert_array_equal(np.flatnonzero(finished.named["y"] == 1), [4, 7, 10])
    np.testing.assert_array_equal(np.flatnonzero(finished.named["y"] == 2), [0, 1])


@pl.jit
def marked(x: pl.Tensor, y: pl.Out[pl.Tensor]):
    for i in pl.parallel(2):
        for j in pl.range(2):
            with pl.at(level=CORE, name_hint="inner"):
                row = i * 2 + j
                y[row : row + 1, :] = x[row : row + 1, :]
    return y


def test_a_task_knows_the_loops_around_it() -> None:
    tasks = record(marked, ones(4, 16), ones(4, 16)).recording.tasks
    assert [[(t.kind, t.turn) for t in task.turns] for task in tasks] == [
        [("parallel", i), ("range", j)] for i in range(2) for j in range(2)
    ]


def test_a_run_of_endlessly_many_tasks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "MOST_TASKS", 3)

    @pl.jit
    def many(y: pl.Out[pl.Tensor]):
        for i in pl.parallel(0, 64, 16):
            with pl.at(level=pl.Level.CORE_GROUP):
                y = pl.assemble(y, pl.full([16, 16], dtype=pl.FP32, value=0.0), [i, 0])
        return y

    with pytest.raises(NpuscopeError, match="more than 3 tasks"):
        many(np.zeros((64, 16), np.float32))


# --- loops that do not end


@pl.jit
def waits_for_ever(x: pl.Tensor[[16, 16], pl.FP32], y: pl.Out[pl.Tensor[[16, 16], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP):
        rows = 16
        while rows > 0:  # never changed
            y[0:1, :] = x[0:1, :]
    return y


@pl.jit
def counts_for_ever(x: pl.Tensor[[16, 16], pl.FP32], y: pl.Out[pl.Tensor[[16, 16], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP):
        for (n,) in pl.while_(init_values=(0,)):
            pl.cond(n < 10)
            y[0:1, :] = x[0:1, :]
            n = pl.yield_(n)  # forgot to count
    return y


@pl.jit
def ends(x: pl.Tensor[[16, 16], pl.FP32], y: pl.Out[pl.Tensor[[16, 16], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP):
        rows = 16
        while rows > 0:
            rows = rows - 1
            y[rows : rows + 1, :] = x[rows : rows + 1, :]
    return y


@MODES
@pytest.mark.parametrize(
    ("program", "line"), [(waits_for_ever, "while rows > 0:  # never"), (counts_for_ever, "while_(")]
)
def test_an_endless_loop_is_stopped_at_its_line(
    program: Any, line: str, mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NPUSCOPE_MOST_TURNS", "200")
    x = np.zeros((16, 16), np.float32)
    with pytest.raises(TileError, match="gone on for 200 turns") as stopped:
        record(program, x, np.zeros_like(x), mode=mode)
    text = Path(__file__).read_text().splitlines()
    assert line in text[(stopped.value.line or 0) - 1]


def test_a_limit_is_a_whole_number_and_each_loop_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.ones((16, 16), np.float32)
    monkeypatch.setenv("NPUSCOPE_MOST_TURNS", "16")
    np.testing.assert_array_equal(record(ends, x, np.zeros_like(x)).result, x)
    monkeypatch.setenv("NPUSCOPE_MOST_TURNS", "15")
    with pytest.raises(TileError, match="gone on for 15 turns"):
        record(ends, x, np.zeros_like(x))
    monkeypatch.setenv("NPUSCOPE_MOST_TURNS", "many")
    with pytest.raises(NpuscopeError, match="NPUSCOPE_MOST_TURNS is 'many'"):
        record(ends, x, np.zeros_like(x))
