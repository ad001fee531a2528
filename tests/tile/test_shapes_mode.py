"""`shapes` mode records what value mode does, for every program whose control flow no float decides."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from random_programs import arguments, module, source
from same_record import first_difference
from tiers import examples

import npuscope.tile as pl
from npuscope.base.errors import NpuscopeError
from npuscope.tile.record.model import Loop, Recording
from npuscope.tile.run import execute
from npuscope.tile.run.arguments import Placeholder

CORE = pl.Level.CORE_GROUP


def in_both_modes(function: Any, make: Callable[[], tuple[Any, ...]] = arguments) -> tuple[Recording, Recording]:
    shapes, values = [function.record(*make(), mode=mode).recording for mode in ("shapes", "values")]
    return shapes, values


@given(random=st.randoms(use_true_random=False))
@examples(60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_random_programs(random: Random, tmp_path: Path) -> None:
    program = module(source(random), tmp_path / f"program_{random.getrandbits(40)}.py")
    assert first_difference(*in_both_modes(program.main)) is None


# --- what broke once


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Says of each run whether some of its tasks were turn by turn."""
    seen: list[bool] = []
    run = execute._run

    def watched(*args: Any, **kwargs: Any) -> Any:
        seen.append(bool(args[1].stepwise))
        return run(*args, **kwargs)

    monkeypatch.setattr(execute, "_run", watched)
    return seen


def the_loop(recording: Recording, task: int = 0) -> Loop:
    """The first loop of a task's first body."""
    items = recording.bodies[recording.tasks[task].groups[0].body].items
    return next(item for item in items if isinstance(item, Loop))


def segments(recording: Recording) -> list[int]:
    return [segment.count for segment in the_loop(recording).segments]


def same_in_both_modes(
    of: Callable[[Recording], Any] | None = None, is_: Any = None, rows: int = 16, table: bool = False, runs: Any = None
) -> Callable[[Callable[..., Any]], Callable[[list[bool]], None]]:
    """A program as a test: its records agree, and show something; `runs`: which of them were turn by turn."""

    def decorate(program: Callable[..., Any]) -> Callable[[list[bool]], None]:
        def test(alone: list[bool]) -> None:
            tables = [np.zeros((1, 8), np.int32)] if table else []
            x = np.ones((rows, 16), np.float32)
            shapes, values = in_both_modes(pl.jit(program), lambda: (x, *tables, np.zeros((32, 16), np.float32)))
            assert first_difference(shapes, values) is None
            assert of is None or of(shapes) == is_
            assert runs is None or alone == runs

        return test

    return decorate


turns = pl.range


@same_in_both_modes(of=segments, is_=[1])
def test_a_loop_left_at_once_has_one_turn(x: pl.Tensor, out: pl.Out[pl.Tensor]):
    with pl.at(level=CORE):
        for i in pl.range(8):
            pl.store(pl.load(x, [4 * i, 0], [4, 16]), [4 * i, 0], out)
            break
    return out


@same_in_both_modes()
def test_rows_that_no_turn_reaches_are_no_mistake(x: pl.Tensor, out: pl.Out[pl.Tensor]):
    """Turns 4 to 7 would load past x, but the loop ends before."""
    with pl.at(level=CORE):
        for i in pl.range(8):
            pl.store(pl.load(x, [4 * i, 0], [4, 16]), [4 * i, 0], out)
            if i == 3:
                break
    return out


@same_in_both_modes(of=lambda r: r.tasks[0].groups[0].offsets[0].item(), is_=4 * 16, rows=32)
def test_a_number_kept_by_some_turns_is_the_last_that_kept_it(x: pl.Tensor, out: pl.Out[pl.Tensor]):
    with pl.at(level=CORE):
        last = 0
        for i in pl.range(8):
            twice = 2 * i
            if i < 3:
                last = twice
        pl.store(pl.load(x, [last, 0], [4, 16]), [0, 0], out)
    return out


@same_in_both_modes(of=segments, is_=[1, 1, 4])
def test_a_tile_kept_over_turns_grows_older(x: pl.Tensor, out: pl.Out[pl.Tensor]):
    """Turn 1 finds it one turn back, later ones two or more: three kinds of turns."""
    with pl.at(level=CORE):
        for i in pl.range(6):
            if i == 0:
                kept = pl.load(x, [0, 0], [4, 16])
            pl.store(kept, [4 * i, 0], out)
    return out


def test_counters_in_memory_steer_later_turns() -> None:
    """An atomic add, a counter in a tile, and a table that a turn reads before it stores to it."""

    @pl.jit
    def main(x: pl.Tensor, table: pl.InOut[pl.Tensor], out: pl.Out[pl.Tensor]):
        with pl.at(level=CORE, name_hint="add"):
            one = pl.full([1, 8], dtype=pl.INT32, value=1)
            for _ in pl.range(3):
                pl.store(one, [0, 0], table, atomic=pl.AtomicType.Add)
        with pl.at(level=CORE, name_hint="tile"):
            held = pl.full([1, 8], dtype=pl.INT32, value=0)
            for _ in pl.range(4):
                n = pl.read(held, [0, 0])
                pl.write(held, [0, 0], n + 1)
                for j in pl.range(n):
                    pl.store(pl.load(x, [j, 0], [4, 16]), [j, 0], out)
        with pl.at(level=CORE, name_hint="table"):
            for _ in pl.range(pl.read(table, [0, 1])):
                n = pl.read(table, [0, 2])
                pl.store(pl.load(x, [n, 0], [4, 16]), [n, 0], out)
                pl.store(pl.full([1, 8], dtype=pl.INT32, value=9), [0, 0], table)
        return out

    shapes, values = in_both_modes(
        main,
        lambda: (np.ones((16, 16), np.float32), np.zeros((1, 8), np.int32), np.zeros((16, 16), np.float32)),
    )
    assert first_difference(shapes, values) is None
    # The three adds made three turns; the first of them read 3, the others what it stored.
    loads = next(t for t in values.tasks if t.kernel == "table").groups[0].offsets[2]
    assert loads.ravel().tolist() == [3 * 16, 9 * 16, 9 * 16]


@same_in_both_modes()
def test_lists_and_swaps_and_loops_by_another_name(x: pl.Tensor, out: pl.Out[pl.Tensor]):
    with pl.at(level=CORE):
        found = []
        a, b = pl.load(x, [0, 0], [4, 16]), pl.load(x, [4, 0], [4, 16])
        cursor = 0
        for i in pl.range(4):
            found.append(pl.load(x, [i, 0], [4, 16]))
            a, b = b, a
        for i in turns(5):
            pl.store(a, [cursor, 0], out)
            cursor = cursor + i
        for i in pl.range(4):
            pl.store(pl.add(found[i], b), [4 * i, 0], out)
    return out


@same_in_both_modes(of=lambda r: [task.blocks for task in r.tasks], is_=[1, 4])
def test_blocks_take_a_tile_that_a_region_before_them_made(x: pl.Tensor, out: pl.Out[pl.Tensor]):
    with pl.at(level=CORE):
        doubled = pl.add(x[0:16, :], x[0:16, :])
    for block in pl.spmd(4):
        out[block * 4 : block * 4 + 4, :] = pl.load(doubled, [block * 4, 0], [4, 16])
    return out


@same_in_both_modes(rows=32)
def test_numbers_of_lanes_are_pythons(x: pl.Tensor, out: pl.Out[pl.Tensor]):
    with pl.at(level=CORE):
        for i in pl.range(6):
            k = (i > 1) + (i > 3) + -(i == 5) + {0: 1, 1: 2, 2: 0}[i % 3] + int(f"{i}") + pl.cast(i / 2, pl.INDEX)
            pl.store(pl.load(x, [k + (~i + 7) % 3, 0], [4, 16]), [divmod(i, 4)[1] + i**2 % 5, 0], out)
    return out


def test_division_by_a_turn_that_is_zero() -> None:
    @pl.jit
    def main(x: pl.Tensor, out: pl.Out[pl.Tensor]):
        with pl.at(level=CORE):
            for i in pl.range(4):
                pl.store(pl.load(x, [8 // (2 - i), 0], [4, 16]), [0, 0], out)
        return out

    for mode in ("values", "shapes"):
        with pytest.raises(NpuscopeError, match="integer division or modulo by zero"):
            main.record(np.ones((32, 16), np.float32), np.zeros((16, 16), np.float32), mode=mode)


def test_a_tensor_used_whole_is_loaded_when_it_is_out_of_date() -> None:
    @pl.jit
    def main(x: pl.Tensor, small: pl.InOut[pl.Tensor]):
        with pl.at(level=CORE):
            t = pl.load(x, [0, 0], [4, 16])
            for _ in pl.range(5):
                t = pl.add(t, small)
                pl.store(t, [0, 0], small)
            for _ in pl.range(5):
                t = pl.add(t, small)
        return small

    shapes, values = in_both_modes(main, lambda: (np.ones((16, 16), np.float32), np.zeros((4, 16), np.float32)))
    assert first_difference(shapes, values) is None


@same_in_both_modes(table=True, runs=[False, True, False])  # shapes, shapes again, values
def test_blocks_that_tell_each_other_numbers_are_run_block_by_block(
    x: pl.Tensor, table: pl.InOut[pl.Tensor], out: pl.Out[pl.Tensor]
):
    for b in pl.spmd(4):
        pl.write(table, [0, b], b + 1)
        pl.system.syncall()
        for i in pl.range(pl.read(table, [0, 3 - b])):
            pl.store(pl.load(x, [i, 0], [4, 16]), [4 * b, 0], out)
    return out


@same_in_both_modes(runs=[False, True, False])
def test_a_number_that_lanes_do_not_compute_is_computed_when_it_is_needed(x: pl.Tensor, out: pl.Out[pl.Tensor]):
    with pl.at(level=CORE):
        for i in pl.range(4):
            row = pl.full([1, 8], dtype=pl.INT32, value=i)
            for j in pl.range(pl.read(row, [0, 0])):
                pl.store(pl.load(x, [j, 0], [4, 16]), [4 * i, 0], out)
    return out


def test_only_the_task_that_lanes_cannot_say_is_run_turn_by_turn(alone: list[bool]) -> None:
    turns: list[str] = []
    note = turns.append  # a list that a body names itself would be looked at, block by block

    @pl.jit
    def main(x: pl.Tensor, table: pl.InOut[pl.Tensor], out: pl.Out[pl.Tensor]):
        for b in pl.spmd(4):
            note("many")
            pl.store(pl.load(x, [4 * b, 0], [4, 16]), [4 * b, 0], out)
        for b in pl.spmd(4):
            note("meeting")
            pl.write(table, [0, b], b + 1)
            pl.system.syncall()
            for i in pl.range(pl.read(table, [0, 3 - b])):
                pl.store(pl.load(x, [i, 0], [4, 16]), [4 * b, 0], out)
        return out

    tensors = [np.ones((16, 16), np.float32), np.zeros((1, 8), np.int32), np.zeros((32, 16), np.float32)]
    main.record(*tensors, mode="shapes")
    assert alone == [False, True]
    assert turns == ["many", "meeting", "many"] + ["meeting"] * 4


def test_flow_that_a_float_decides_is_refused_where_nobody_can_make_it(alone: list[bool]) -> None:
    @pl.jit
    def main(x: pl.Tensor, out: pl.Out[pl.Tensor]):
        with pl.at(level=CORE):
            if pl.read(x, [0, 0]) > 0:
                pl.store(pl.load(x, [0, 0], [4, 16]), [0, 0], out)
        return out

    with pytest.raises(NpuscopeError, match="control flow depends on a value"):
        main.record(Placeholder((16, 16), pl.FP32), Placeholder((16, 16), pl.FP32), mode="shapes")
    assert alone == [False, False]


def test_equal_turns_are_run_once() -> None:
    """Long loops cost no more than short ones: an accumulator settles after its first turn."""
    turns = 0

    def counted() -> Iterator[None]:
        nonlocal turns
        turns += 1
        yield

    @pl.jit
    def main(x: pl.Tensor, out: pl.Out[pl.Tensor]):
        for b in pl.spmd(4):
            t = pl.load(x, [0, 0], [4, 16])
            for i in pl.pipeline(4096, stage=2):
                t = pl.add(t, pl.load(x, [(b + i) % 60, 0], [4, 16]))
                next(counted())
            pl.store(t, [4 * b, 0], out)
        return out

    main.record(pl.Placeholder((64, 16), pl.FP32), pl.Placeholder((16, 16), pl.FP32), mode="shapes")
    assert turns == 2


def test_a_list_of_rows_written_one_by_one_is_written_by_turns_run_as_one() -> None:
    """What turns only write, they write together; a turn that looks at what the one before wrote is run by itself."""
    turns = 0

    def counted() -> Iterator[None]:
        nonlocal turns
        turns += 1
        yield

    @pl.jit
    def main(x: pl.Tensor, table: pl.InOut[pl.Tensor], out: pl.Out[pl.Tensor]):
        with pl.at(level=CORE):
            rows, held = pl.full([1, 64], dtype=pl.INT32, value=-1), pl.full([1, 8], dtype=pl.INT32, value=2)
            for i in pl.range(64):
                next(counted())
                if i < 40:
                    pl.write(rows, [0, i], (i * 7) % 60)
                    pl.write(rows, [0, 63], i)
            stage = pl.full([64, 16], dtype=pl.FP32, value=0.0)
            for i in pl.range(64):
                next(counted())
                row = pl.read(rows, [0, i])
                if row >= 0:
                    stage[i : i + 1, :] = x[row : row + 1, :]
            for _ in pl.range(3):
                next(counted())
                pl.write(held, [0, 1], pl.read(held, [0, 1]) * 3)
            table[:, 0:8] = held
            table[:, 8:72] = rows
            pl.store(stage, [pl.read(held, [0, 1]) - 54 + pl.read(table, [0, 71]) - 39, 0], out)
        return out

    tables: list[np.ndarray] = []

    def tensors() -> tuple[np.ndarray, ...]:
        tables.append(np.zeros((1, 72), np.int32))
        return np.ones((64, 16), np.float32), tables[-1], np.zeros((64, 16), np.float32)

    shapes, values = in_both_modes(main, tensors)
    assert first_difference(shapes, values) is None
    assert tables[1][0].tolist() == [2, 54, *[2] * 6, *[i * 7 % 60 for i in range(40)], *[-1] * 23, 39]
    # Rows before the 40th and after; a stage just made, written (39), kept, kept longer (22), written; three counts.
    assert turns == (2 + 5 + 3) + (64 + 64 + 3)
