"""A task that takes the record of one like it has the record that it would have left itself."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
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
from npuscope.tile.record.model import Recording
from npuscope.tile.run import execute
from npuscope.tile.run.execute import every_task_in_its_turn
from npuscope.tile.run.state import TileRun

CORE = pl.Level.CORE_GROUP
ROWS = pl.dynamic("rows")
Make = Callable[[], tuple[Any, ...]]


def squares() -> tuple[Any, ...]:
    return np.ones((64, 64), np.float32), np.zeros((64, 64), np.float32)


class Watch:
    """Counts ops as they run, and runs of the whole program."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ops = self.runs = 0
        emit, run = TileRun.emit, execute._run

        def counted(*args: Any, **kwargs: Any) -> None:
            self.ops += 1
            emit(*args, **kwargs)

        def started(*args: Any, **kwargs: Any) -> Any:
            self.runs += 1
            return run(*args, **kwargs)

        monkeypatch.setattr(TileRun, "emit", counted)
        monkeypatch.setattr(execute, "_run", started)


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    return Watch(monkeypatch)


def recorded(function: Any, make: Make, reuses: bool) -> Recording:
    with nullcontext() if reuses else every_task_in_its_turn():
        found: Recording = function.record(*make(), mode="shapes").recording
        return found


def the_same(function: Any, make: Make = squares) -> Recording:
    """The record of a program, which is the same with every task in its turn."""
    one, other = recorded(function, make, True), recorded(function, make, False)
    assert first_difference(one, other) is None
    assert one.notices == other.notices
    return one


def ops_run(watch: Watch, function: Any, make: Make = squares) -> int:
    """How many ops it takes to record a program whose record is right."""
    the_same(function, make)
    watch.ops = watch.runs = 0
    recorded(function, make, True)
    assert watch.runs == 1
    return watch.ops


def same(
    bodies: int | None = None, ops: int | None = None, of: Callable[[Recording], Any] | None = None, is_: Any = None
) -> Callable[[Callable[..., Any]], Callable[[Watch], None]]:
    """A program as a test: its record is right, has so many bodies, takes at most so many ops, and shows something."""

    def decorate(program: Callable[..., Any]) -> Callable[[Watch], None]:
        def test(watch: Watch) -> None:
            main = pl.jit(program)
            found = the_same(main)
            assert bodies is None or len(found.bodies) == bodies
            assert ops is None or ops_run(watch, main) <= ops
            assert of is None or of(found) == is_

        return test

    return decorate


def first_loads(recording: Recording) -> list[int]:
    """The row that each task loads first."""
    return [int(task.groups[0].offsets[0][0]) // 64 for task in recording.tasks]


@given(random=st.randoms(use_true_random=False))
@examples(40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_random_programs(random: Random, tmp_path: Path) -> None:
    program = module(source(random, again=True), tmp_path / f"program_{random.getrandbits(40)}.py")
    the_same(program.main, arguments)


def rows_copied(tasks: int) -> Any:
    @pl.jit
    def main(x: pl.Tensor, out: pl.Out[pl.Tensor]):
        for i in pl.parallel(tasks):
            row = i * 2
            with pl.at(level=CORE):
                for j in pl.range(4):
                    out = pl.store(pl.load(x, [row, 16 * j], [2, 16]), [row, 16 * j], out)
        return out

    return main


def test_many_tasks_cost_what_two_do(watch: Watch) -> None:
    assert ops_run(watch, rows_copied(32)) == ops_run(watch, rows_copied(2)) == 2 * 2


@same(ops=2 * (2 + 3))
def test_blocks_of_many_launches_cost_what_two_launches_do(x: pl.Tensor, out: pl.Out[pl.Tensor]):
    """Two bodies, by the block: half of the blocks store twice."""
    for i in pl.range(6):
        for block in pl.spmd(8):
            row = pl.load(x, [8 * i + block, 0], [1, 64])
            out = pl.store(row, [8 * i + block, 0], out)
            if block >= 4:
                out = pl.store(row, [block, 0], out)
    return out


@same(bodies=3, ops=2 + 2 + 0 + 4)
def test_tasks_on_either_side_of_a_bound_are_told_apart(x: pl.Tensor, out: pl.Out[pl.Tensor]):
    """The first task, one of those below 40, the one at 40 and one above it run."""
    for i in pl.parallel(64):
        with pl.at(level=CORE):
            if i > 40:
                out = pl.store(pl.full([1, 64], dtype=pl.FP32, value=0.0), [i, 0], out)
            if i != 40:
                out = pl.store(pl.load(x, [i, 0], [1, 64]), [i, 0], out)
    return out


@same(bodies=2, ops=2 * (4 + 3 * 2))  # each i for the first time: at most twice
def test_a_number_that_decides_otherwise_is_known_for_itself_alone(x: pl.Tensor, out: pl.Out[pl.Tensor]):
    """Who looks at a remainder knows one number, so the four tasks of one turn run, and those of later turns do not."""
    for turn in pl.range(5):
        for i in pl.parallel(4):
            with pl.at(level=CORE):
                if i % 4 == 0:
                    out = pl.store(pl.full([1, 64], dtype=pl.FP32, value=0.0), [turn, 0], out)
                out = pl.store(pl.load(x, [i, 0], [1, 64]), [turn, 0], out)
    return out


def test_other_buffers_and_offsets_are_each_task_s_own() -> None:
    @pl.jit
    def main(x: pl.Tensor, out: pl.Out[pl.Tensor]):
        for i in pl.range(4):
            mine = pl.create_tensor([8, 64], dtype=pl.FP32)
            part = pl.slice(x, [8, 64], [8 * i, 0])
            with pl.at(level=CORE):
                mine = pl.store(pl.add(part, pl.load(part, [i, 0], [1, 64])), [0, 0], mine)
            with pl.at(level=CORE, no_dep_args=[mine]):
                out = pl.store(pl.load(mine, [0, 0], [8, 64]), [8 * i, 0], out)
        return out

    recording = the_same(main)
    assert [task.arguments[0].offset for task in recording.tasks[::2]] == [0, 512, 1024, 1536]
    assert [[a.no_dep for a in task.arguments] for task in recording.tasks[1::2]] == [[True, False]] * 4


@same(of=lambda r: [len(task.arguments) for task in r.tasks], is_=[2, 2, 3, 2])
def test_views_that_alias_otherwise_are_another_kind(x: pl.Tensor, out: pl.Out[pl.Tensor]):
    whole = pl.slice(x, [8, 64], [0, 0])
    for i in pl.range(4):
        one = pl.slice(x, [8, 64], [0, 0])
        other = one if i % 2 else pl.slice(x, [8, 64], [8 * (i // 2), 0])
        with pl.at(level=CORE):
            out = pl.store(pl.add(one, pl.add(other, whole)), [8 * i, 0], out)
    return out


@same(of=lambda r: [b.origin for b in r.buffers], is_=["parameter", "parameter", *["promoted"] * 4])
def test_a_tile_handed_on_goes_through_gm_every_time(x: pl.Tensor, out: pl.Out[pl.Tensor]):
    for i in pl.range(4):
        with pl.at(level=CORE):
            tile = pl.load(x, [i, 0], [1, 64])
        with pl.at(level=CORE):
            out = pl.store(tile, [i, 0], out)
    return out


@same()
def test_a_sum_carried_from_task_to_task(x: pl.Tensor, out: pl.Out[pl.Tensor]):
    for i in pl.range(4):
        with pl.at(level=CORE):
            row = pl.load(x, [i, 0], [1, 64])
            total = row if i == 0 else pl.add(total, row)  # type: ignore[has-type] # noqa: F821
    with pl.at(level=CORE):
        out = pl.store(total, [0, 0], out)
    return out


def test_a_name_that_only_some_tasks_bind(watch: Watch) -> None:
    """The third task leaves another tensor under the name: then every task after it runs in its turn."""

    @pl.jit
    def main(x: pl.Tensor, y: pl.InOut[pl.Tensor], out: pl.Out[pl.Tensor]):
        target = out
        for i in pl.range(4):
            with pl.at(level=CORE):
                pl.store(pl.load(x, [i, 0], [1, 64]), [i, 0], target)
                if i == 2:
                    target = y
        return out

    recording = the_same(main, lambda: (*squares(), np.zeros((64, 64), np.float32)))
    assert [task.arguments[1].buffer for task in recording.tasks] == [2, 2, 2, 1]
    assert watch.runs == 2  # one with reuse, one without


def test_whole_numbers_that_tasks_write_and_read() -> None:
    @pl.jit
    def main(x: pl.Tensor, table: pl.InOut[pl.Tensor], out: pl.Out[pl.Tensor]):
        for i in pl.range(6):
            with pl.at(level=CORE):
                pl.write(table, [0, 1], pl.read(table, [0, 0]) + i // 2)
            with pl.at(level=CORE):
                row = pl.read(table, [0, 1])
                for k in pl.range(row):
                    out = pl.store(pl.load(x, [row + k, 0], [1, 64]), [k, 0], out)
        return out

    recording = the_same(main, lambda: (*squares()[:1], np.full((1, 2), 3, np.int32), *squares()[1:]))
    loads = [recording.tasks[k].groups[0].offsets[1].ravel().tolist() for k in (1, 5, 11)]
    assert loads == [[192, 256, 320], [256, 320, 384, 448], [320, 384, 448, 512, 576]]


def test_a_table_written_anew_each_time_is_made_once(watch: Watch) -> None:
    @pl.jit
    def main(x: pl.Tensor, lens: pl.Tensor, out: pl.Out[pl.Tensor]):
        for i in pl.range(8):
            table = pl.create_tensor([1, 64], dtype=pl.INT32)
            with pl.at(level=CORE):
                count = pl.read(lens, [0]) * 0
                for row in pl.range(16):
                    for k in pl.range(pl.read(lens, [row])):
                        pl.write(table, [0, count + k], row)
                    count = count + pl.read(lens, [row])
            with pl.at(level=CORE):
                row = pl.read(table, [0, 7])
                out = pl.store(pl.load(x, [row, 0], [1, 64]), [i, 0], out)
        return out

    def make() -> tuple[Any, ...]:
        return squares()[0], np.arange(16, dtype=np.int32) % 4, squares()[1]

    once = ops_run(watch, main, make)
    watch.ops = 0
    recorded(main, make, False)
    assert once < watch.ops / 5


@same(ops=2 * 2, of=first_loads, is_=[0, 1, 2, 3, 5, 7])
def test_a_number_carried_by_the_loop_around(x: pl.Tensor, out: pl.Out[pl.Tensor]):
    for i, (row,) in pl.range(6, init_values=(0,)):
        with pl.at(level=CORE):
            out = pl.store(pl.load(x, [row, 0], [1, 64]), [i, 0], out)
        (row,) = pl.yield_(row + 1 + i // 3)
    return out


@same(ops=2 * 3)  # the first task, the rest of its arm, the other arm
def test_branches_that_yield(x: pl.Tensor, out: pl.Out[pl.Tensor]):
    for i in pl.range(8):
        with pl.at(level=CORE):
            row = pl.yield_(i + 8) if i >= 4 else pl.yield_(i)
            out = pl.store(pl.load(x, [row, 0], [1, 64]), [i, 0], out)
    return out


@same(bodies=3)
def test_numbers_that_are_more_than_offsets(x: pl.Tensor, out: pl.Out[pl.Tensor]):
    """As options, in other types, in branches, rounded: whatever a task does with its numbers, it does it plainly."""
    stages = 2
    for i in pl.range(6):
        mode = i % 2
        with pl.at(level=CORE):
            row = pl.load(x, [i, 0], [1, 64])
            for j in pl.unroll(stages):
                row = pl.cast(pl.cast(row, pl.BF16, mode=mode), pl.FP32)
                out = pl.store(row, [i + j, 0], out)
            if pl.cast(i, pl.FP32) > 2.0 or -i == -1:
                out = pl.store(row, [round(i), 0], out)
            for k in pl.pipeline(i, i + 2, stage=stages):
                out = pl.store(pl.load(x, [k, 0], [1, 64]), [divmod(k, 3)[0], 0], out)
            pl.static_assert(f"{i:02}" >= "00")
    return out


def test_a_tensor_whose_rows_a_helper_does_not_know(watch: Watch) -> None:
    """Each turn has a tensor of its own; the helper's signature says that its rows are known at run time only."""

    @pl.jit.inline
    def copied_row(t: pl.Tensor[[ROWS, 64], pl.FP32], out, row):
        return pl.store(pl.load(t, [row, 0], [1, 64]), [row, 0], out)

    @pl.jit
    def main(x: pl.Tensor, out: pl.Out[pl.Tensor]):
        for i in pl.range(4):
            mine = pl.create_tensor([8, 64], dtype=pl.FP32)
            with pl.at(level=CORE):
                mine = pl.store(pl.load(x, [i, 0], [8, 64]), [0, 0], mine)
            with pl.at(level=CORE):
                out = copied_row(mine, out, 1)
            with pl.at(level=CORE):  # reads past the last row, which is told where rows are known at run time only
                out = pl.store(pl.slice(mine, [4, 64], [6, 0]), [8 * i, 0], out)
        return out

    assert sum(notice.count for notice in the_same(main).notices) == 4


SCALE = 1


def test_a_global_that_changes_between_tasks() -> None:
    def bump() -> None:
        global SCALE
        SCALE += 1

    @pl.jit
    def main(x: pl.Tensor, out: pl.Out[pl.Tensor]):
        for i in pl.range(4):
            with pl.at(level=CORE):
                out = pl.store(pl.load(x, [SCALE, 0], [1, 64]), [i, 0], out)
            bump()
        return out

    def make() -> tuple[Any, ...]:
        global SCALE
        SCALE = 1
        return squares()

    recording = the_same(main, make)
    assert first_loads(recording) == [1, 2, 3, 4]


def test_a_global_that_changes_while_tasks_write_numbers() -> None:
    """The tasks of the second shape first run under another value than the one that they are compared with."""

    def change(value: int) -> None:
        global SCALE
        SCALE = value

    @pl.jit
    def main(x: pl.Tensor, table: pl.InOut[pl.Tensor], out: pl.Out[pl.Tensor]):
        for i in pl.range(5):
            part = pl.slice(x, [1 + (i + 1) // 2, 64], [0, 0])
            change(i % 2)
            with pl.at(level=CORE):
                pl.write(table, [0, SCALE], 7)
                out = pl.store(pl.load(part, [0, 0], [1, 64]), [SCALE, 0], out)
        return out

    recording = the_same(main, lambda: (squares()[0], np.full((1, 2), 7, np.int32), squares()[1]))
    assert [task.groups[0].offsets[0].tolist() for task in recording.tasks] == [[0], [1], [0], [1], [0]]


@same(of=first_loads, is_=[1, 2, 3, 4])
def test_a_list_that_a_task_changes(x: pl.Tensor, out: pl.Out[pl.Tensor]):
    rows = []
    for i in pl.range(4):
        with pl.at(level=CORE):
            rows.append(i)
            out = pl.store(pl.load(x, [len(rows), 0], [1, 64]), [i, 0], out)
    return out


def test_a_mistake_in_a_later_task_is_told_as_if_it_had_run_in_its_turn() -> None:
    @pl.jit
    def main(x: pl.Tensor, out: pl.Out[pl.Tensor]):
        for i in pl.range(4):
            with pl.at(level=CORE):
                out = pl.store(pl.load(x, [i * 30, 0], [1, 64]), [i, 0], out)
        raise ValueError("not reached")

    messages = []
    for reuses in (True, False):
        with pytest.raises(NpuscopeError) as caught:
            recorded(main, squares, reuses)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    assert "90 to 91 of axis 0" in messages[0]


@same()
def test_blocks_that_meet_run_in_their_turn(x: pl.Tensor, out: pl.Out[pl.Tensor]):
    for i in pl.range(3):
        for block in pl.spmd(4):
            out = pl.store(pl.load(x, [block, 0], [1, 64]), [4 * i + block, 0], out)
            pl.system.syncall()
            out = pl.store(pl.load(x, [block + 4, 0], [1, 64]), [4 * i + block, 0], out)
    return out


@same(of=lambda r: [notice.count for notice in r.notices], is_=[5])
def test_findings_are_counted_for_every_task(x: pl.Tensor, out: pl.Out[pl.Tensor]):
    for i in pl.range(5):
        with pl.at(level=CORE):
            for j in pl.parallel(2):
                out = pl.store(pl.load(x, [i, 16 * j], [1, 16]), [i, 16 * j], out)
    return out


@pl.jit.inline
def copied(x, out, row):
    tile = pl.load(x, [row, 0], [1, 64])
    if row > 2:
        return pl.store(tile, [row, 0], out)
    return pl.store(pl.add(tile, 1.0), [row, 0], out)


@same(bodies=2)
def test_helpers_run_inside_tasks(x: pl.Tensor, out: pl.Out[pl.Tensor]):
    for i in pl.range(6):
        with pl.at(level=CORE):
            out = copied(x, out, i)
    return out
