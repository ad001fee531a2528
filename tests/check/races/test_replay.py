"""Running a program in another legal order: what counts, what changes, and what cannot be replayed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from planted_races import CORE, dropped_deps, missing_barrier
from planted_races import arguments as planted_arguments
from tiers import examples

import npuscope.tile as pl
from npuscope.check.races import races
from npuscope.check.races.replay import random_order, replay, replay_races
from npuscope.chip.devices import load
from npuscope.lower.program import Program
from npuscope.tile.run.execute import Finished, record, repeatable
from npuscope.tile.run.memory import OrderPhase

DEVICE = load("910b1")


def computed(program: Any, *arguments: Any) -> Finished:
    with repeatable():
        return record(program, *arguments)


# --- any program: if nothing races, no legal order changes anything

PLAN: list[tuple[bool, list[int], int, list[tuple[str, int, int, int]]]] = []  # what the program below does


@pl.jit
def planned(a: pl.InOut[pl.Tensor[[8, 16], pl.FP32]], b: pl.InOut[pl.Tensor[[8, 16], pl.FP32]]):
    c = pl.create_tensor([8, 16], dtype=pl.FP32, init_value=0.0)
    tensors = [a, b, c]
    tids = pl.array.create(16, pl.TASK_ID)
    for n, (manual, deps, blocks, steps) in enumerate(PLAN):
        scope = pl.manual_scope() if manual else pl.scope()
        with scope:
            if blocks == 1:
                with pl.at(level=CORE, name_hint=f"k{n}", deps=[tids[d] for d in deps]) as tid:
                    _steps(steps, tensors, n, 0)
            else:
                with pl.spmd(2, name_hint=f"k{n}", deps=[tids[d] for d in deps]) as tid:
                    _steps([(how, t, row % 4, 1) for how, t, row, _ in steps], tensors, n, 4 * pl.get_block_idx())
            tids[n] = tid
    return a


def _steps(steps: list[tuple[str, int, int, int]], tensors: list[Any], n: int, first: Any) -> None:
    """Each step changes rows by what a value carried along says; whole numbers, so that adds are exact."""
    carried = pl.full([1, 16], dtype=pl.FP32, value=float(n + 1))
    for how, tensor, row, rows in steps:
        for r in range(row, min(row + rows, 8)):
            if how == "read":
                carried = pl.add(carried, pl.load(tensors[tensor], [first + r, 0], [1, 16]))
            elif how == "write":
                pl.store(carried, [first + r, 0], tensors[tensor])
            else:
                pl.store(carried, [first + r, 0], tensors[tensor], atomic=pl.AtomicType.Add)


PLACE = st.tuples(st.integers(0, 2), st.integers(0, 3), st.just(3))  # tensor, row, rows


@st.composite
def plans(draw: st.DrawFn) -> list[Any]:
    """Tasks that read, write and add to rows of three tensors, with any deps=, in and out of manual scopes."""
    found = []
    for n in range(draw(st.integers(3, 8))):
        deps = draw(st.sets(st.integers(0, n - 1), max_size=2)) if n else set()
        reads = [("read", *place) for place in draw(st.lists(PLACE, min_size=1, max_size=2))]
        places = draw(st.lists(PLACE, min_size=1, max_size=2))
        writes = [(draw(st.sampled_from(["write", "add"])), *place) for place in places]
        manual, blocks = draw(st.integers(0, 3)) == 0, draw(st.sampled_from([1, 1, 2]))
        found.append((manual, sorted(deps), blocks, [*reads, *writes]))
    return found


def mended() -> int:
    """Puts the tasks that race into each other's deps=, and blocks that race into one; how many races there were."""
    empty = [np.zeros((8, 16), np.float32) for _ in range(2)]
    found = races(Program(record(planned, *empty, mode="shapes").recording, DEVICE))
    for one, other in (race.sides for race in found):
        manual, deps, blocks, steps = PLAN[other.task]
        if other.block is None:
            deps = sorted({*deps, one.task})
        PLAN[other.task] = (manual, deps, blocks if other.block is None else 1, steps)
    return len(found)


@examples(60)
@given(plans(), st.integers(0, 99))
def test_once_the_races_are_ordered_every_legal_order_gives_the_same(plan: Any, seed: int) -> None:
    PLAN[:] = plan
    if mended():
        mended()  # blocks that are one now may race with other tasks
        assert mended() == 0
    draw = np.random.default_rng(1)
    finished = computed(planned, *(draw.integers(0, 9, (8, 16)).astype(np.float32) for _ in range(2)))
    for number in range(seed, seed + 3):
        played = replay(finished, (), DEVICE, number)
        assert (played.seeded, played.unplayed) == ((), "")


@examples(60)
@given(plans(), st.integers(0, 99))
def test_an_order_drawn_by_chance_is_legal_and_always_the_same(plan: Any, seed: int) -> None:
    PLAN[:] = plan
    arguments = [np.zeros((8, 16), np.float32) for _ in range(2)]
    program = Program(record(planned, *arguments, mode="shapes").recording, DEVICE)
    phases = random_order(program, seed)
    assert sorted(task for phase in phases for task in phase) == list(range(len(plan)))
    when = {task: n for n, phase in enumerate(phases) for task in phase}
    assert all(when[src] <= when[dst] for src, dst in program.graph.pairs if src >= 0)
    assert phases == random_order(program, seed)


# --- what a phase keeps apart


def in_phases(finished: Finished, *phases: set[int]) -> dict[str, Any]:
    """The parameters after these phases, by name."""
    assert finished.rerun is not None
    contents = finished.rerun.initial
    for tasks in phases:
        contents, _ = finished.rerun.run(OrderPhase(finished.rerun.initial, contents, frozenset(tasks)))
    named = {finished.recording.buffers[number].name: number for number in finished.rerun.initial}
    return {name: contents[number] for name, number in named.items()}


@pl.jit
def value_that_leaves(x: pl.Tensor[[4, 8], pl.FP32], y: pl.Out[pl.Tensor[[4, 8], pl.FP32]]):
    with pl.at(level=CORE, name_hint="make"):
        value = pl.add(x[:, :], 1.0)  # used by the next task: it goes through GM
    with pl.at(level=CORE, name_hint="use"):
        y[:, :] = pl.mul(value, 2.0)
    return y


def test_a_value_that_leaves_its_region_belongs_to_the_task_that_made_it() -> None:
    finished = computed(value_that_leaves, np.ones((4, 8), np.float32), np.zeros((4, 8), np.float32))
    assert np.all(in_phases(finished, {0}, {1})["y"] == 4.0)
    assert np.all(np.isnan(in_phases(finished, {1}, {0})["y"]))  # read before it was there


@pl.jit
def parts(x: pl.Tensor[[4, 8], pl.FP32], y: pl.Out[pl.Tensor[[8, 8], pl.FP32]]):
    upper = pl.create_tensor([4, 8], dtype=pl.FP32)
    with pl.at(level=CORE, name_hint="make"):
        upper[:, :] = pl.add(x[:, :], 1.0)
    y = pl.assemble(y, upper, [0, 0])  # from here on `upper` is these rows of y
    with pl.at(level=CORE, name_hint="change"):
        y[0:2, :] = pl.full([2, 8], dtype=pl.FP32, value=9.0)
    with pl.at(level=CORE, name_hint="rest"):
        y[4:8, :] = pl.full([4, 8], dtype=pl.FP32, value=5.0)
    return y


def test_a_part_joined_in_one_phase_is_not_joined_again_in_the_next() -> None:
    # GIVEN a part that is made and assembled, and the whole changed after that
    finished = computed(parts, np.ones((4, 8), np.float32), np.zeros((8, 8), np.float32))
    wanted = np.repeat([9.0, 2.0, 5.0], [16, 16, 32])
    # THEN the order of the program gives the same in any phases, and what came first is not put back
    assert np.all(in_phases(finished, {0, 1, 2})["y"] == wanted)
    assert np.all(in_phases(finished, {0, 1}, {2})["y"] == wanted)
    assert np.all(in_phases(finished, {0}, {1}, {2})["y"] == wanted)
    # and the other order of the first two leaves the part on top
    assert np.all(in_phases(finished, {1}, {0}, {2})["y"] == np.repeat([2.0, 5.0], 32))


@pl.jit.extern(core_type="aiv", source="double.cpp")
def doubled(x: pl.Tensor, y: pl.InOut[pl.Tensor]): ...


doubled.bind(lambda x, y: y.__setitem__(..., 2 * x + y))


@pl.jit
def with_extern(x: pl.Tensor[[4, 8], pl.FP32], y: pl.InOut[pl.Tensor[[4, 8], pl.FP32]]):
    with pl.at(level=CORE, name_hint="fill"):
        y[:, :] = pl.full([4, 8], dtype=pl.FP32, value=3.0)
    y = doubled(x, y)
    return y


def test_an_extern_kernel_runs_once_in_its_phase() -> None:
    finished = computed(with_extern, np.ones((4, 8), np.float32), np.full((4, 8), 7.0, np.float32))
    assert np.all(in_phases(finished, {0}, {1})["y"] == 5.0)  # 2 * 1 + 3
    assert np.all(in_phases(finished, {1}, {0})["y"] == 3.0)
    assert np.all(in_phases(finished, {1})["y"] == 9.0)  # 2 * 1 + 7


@pl.jit
def counted(n: pl.Tensor[[1], pl.INT32], y: pl.InOut[pl.Tensor[[8, 8], pl.FP32]]):
    total = pl.create_tensor([1], dtype=pl.INT32)
    with pl.manual_scope():
        with pl.at(level=CORE, name_hint="count"):
            pl.write(total, [0], pl.read(n, [0]) + 1)
        with pl.at(level=CORE, name_hint="fill"):
            for i in pl.range(pl.read(total, [0])):
                y[i : i + 1, :] = pl.full([1, 8], dtype=pl.FP32, value=1.0)
    return y


def test_loops_inside_a_task_follow_what_it_reads() -> None:
    finished = computed(counted, np.array([3], np.int32), np.zeros((8, 8), np.float32))
    (race,) = races(Program(finished.recording, DEVICE))
    assert (race.hazard, race.buffer) == ("raw", "total")
    (played,) = replay(finished, [race], DEVICE).races
    # a total that is not there yet is the lowest number: not one row is filled
    assert played.changes is not None
    assert [(c.output, c.elements, c.largest, c.first) for c in played.changes] == [("y", 32, 1.0, (0, 0))]


def test_the_callers_arrays_are_left_alone() -> None:
    x, y = np.full((32, 64), 5.0, np.float32), np.zeros((32, 64), np.float32)
    program = dropped_deps(False)
    finished = computed(program, x, y)
    kept = y.copy()
    assert replay(finished, races(Program(finished.recording, DEVICE)), DEVICE).races[0].changes
    assert np.array_equal(y, kept)
    assert np.all(x == 5.0)


def test_without_being_asked_nothing_is_kept() -> None:
    assert record(value_that_leaves, np.ones((4, 8), np.float32), np.zeros((4, 8), np.float32)).rerun is None


def test_inputs_that_changed_in_between_are_noticed() -> None:
    x = np.ones((4, 8), np.float32)
    finished = computed(value_that_leaves, x, np.zeros((4, 8), np.float32))
    x += 1.0
    assert "inputs changed" in replay(finished, (), DEVICE).unplayed


# --- scripts

SCRIPT = """
import numpy as np
import npuscope.tile as pl

@pl.jit
def manual(x: pl.Tensor[[{rows}, 8], pl.FP32], y: pl.Out[pl.Tensor[[{rows}, 8], pl.FP32]]):
    mid = pl.create_tensor([{rows}, 8], dtype=pl.FP32)
    with pl.manual_scope():
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="make"):
            mid[:, :] = pl.add(x[:, :], 1.0)
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="use"):
            y[:, :] = mid[:, :]
    return y

for _ in range({times}):
    manual(np.random.default_rng().random(({rows}, 8), np.float32), np.zeros(({rows}, 8), np.float32))
"""


def test_a_script_is_run_once_with_values_whatever_its_inputs(tmp_path: Path) -> None:
    # GIVEN a script whose inputs are drawn anew each time it runs, and that calls its program twice
    path = tmp_path / "twice.py"
    path.write_text(SCRIPT.format(rows=4, times=2))
    from npuscope.tile.script.run import run_script

    found = [races(Program(r, DEVICE)) for r in run_script(path, mode="shapes").recordings]
    played = replay_races(path, [], found, DEVICE)
    # THEN each race is replayed on the inputs of its own run
    assert [len(one.races) for one in played] == [1, 1]
    for one in played:
        (change,) = one.races[0].changes or ()
        assert (change.output, change.elements, change.largest) == ("y", 32, None)  # NaN: nothing was there


def test_a_script_that_does_something_else_with_values_is_not_replayed(tmp_path: Path) -> None:
    path = tmp_path / "some.py"
    path.write_text(SCRIPT.format(rows=4, times=1))
    from npuscope.tile.script.run import run_script

    found = [races(Program(r, DEVICE)) for r in run_script(path, mode="shapes").recordings]
    (played,) = replay_races(path, [], [*found], DEVICE)
    assert not played.unplayed
    two = replay_races(path, [], [*found, *found], DEVICE)
    assert all("runs 1 programs, not 2" in one.unplayed for one in two)
    assert two[0].races[0].as_dict()["unplayed"]


def test_blocks_in_another_order_still_meet_at_their_barrier() -> None:
    finished = computed(missing_barrier(True), *planted_arguments())
    assert finished.rerun is not None
    (number,) = finished.rerun.final
    for order in ((3, 2, 1, 0), (1, 3, 0, 2)):
        contents, _ = finished.rerun.run(OrderPhase(finished.rerun.initial, blocks={0: order}))
        assert np.array_equal(contents[number], finished.rerun.final[number])
    # without the barrier a block that runs first finds zeros where its neighbour will write
    torn = computed(missing_barrier(False), *planted_arguments())
    assert torn.rerun is not None
    contents, _ = torn.rerun.run(OrderPhase(torn.rerun.initial, blocks={0: (3, 2, 1, 0)}))
    assert np.count_nonzero(contents[number] == 0) == 3 * 8 * 64
