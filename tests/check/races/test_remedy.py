"""What is said of a race: its regions, why nothing orders the two, and which deps= would."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from planted_races import CORE, X, Y, arguments
from recordings import buffer

import npuscope.tile as pl
from npuscope.check.phrases import region_text
from npuscope.check.races import Race, races
from npuscope.chip.devices import load
from npuscope.lower.program import Program
from npuscope.tile.run.execute import record

DEVICE = load("910b1")


def found(entry: Any, *given: Any) -> tuple[Race, ...]:
    return races(Program(record(entry, *(given or arguments()), mode="shapes").recording, DEVICE))


# --- regions


@given(st.data())
def test_a_region_reads_as_numpy_would_take_it(data: st.DataObject) -> None:
    shape = data.draw(st.sampled_from([(24,), (4, 6), (2, 3, 4), (1, 24), (24, 1)]))
    whole = np.arange(24).reshape(shape)
    box = [sorted(data.draw(st.lists(st.integers(0, n), min_size=2, max_size=2, unique=True))) for n in shape]
    step = data.draw(st.sampled_from([1, 1, 2]))
    part = whole[tuple(slice(a, b, step if k == 0 else 1) for k, (a, b) in enumerate(box))]
    strides = tuple(s // whole.itemsize for s in part.strides)
    text = region_text(buffer(0, *shape), part.shape, strides, [int(part.flat[0])])
    assert text.startswith("t0[")
    taken = eval(text, {"t0": whole})
    assert sorted(np.ravel(taken)) == sorted(np.ravel(part))


def test_boxes_that_make_one_are_shown_as_one() -> None:
    t = buffer(0, 16, 64)
    assert region_text(t, (16, 16), (64, 1), [0, 16, 32]) == "t0[0:16, 0:48]"
    assert region_text(t, (1, 16), (64, 1), [0, 128]) == "t0[0:1, 0:16] and 1 more"
    assert region_text(t, (8, 128), (128, 1), [0]) == "t0[0:16, 0:64]"  # a reshaped view of whole rows
    assert region_text(t, (4, 96), (96, 1), [32]) == "t0.flat[32:416]"  # and one that is no box


# --- fixes


def test_one_task_that_waits_for_all_is_the_shortest_deps() -> None:
    @pl.jit
    def entry(x: X, y: Y):
        mid = pl.create_tensor([32, 64], dtype=pl.FP32)
        tids = pl.array.create(4, pl.TASK_ID)
        with pl.manual_scope():
            for i in pl.parallel(4):
                with pl.at(level=CORE, name_hint="read") as tid:
                    y[i * 8 : i * 8 + 8, :] = pl.add(x[i * 8 : i * 8 + 8, :], mid[i * 8 : i * 8 + 8, :])
                tids[i] = tid
            with pl.at(level=CORE, name_hint="join", deps=[tids]) as join_tid:  # noqa: F841 (the fix names it)
                y[0:1, :] = x[0:1, :]
            with pl.at(level=CORE, name_hint="overwrite"):
                mid[:, :] = x[:, :]
        return y

    (race,) = found(entry)
    assert (race.hazard, race.count) == ("war", 4)
    assert race.remedy.startswith("give overwrite deps=[join_tid] (test_remedy.py:")


def test_ids_of_several_tasks_are_gathered() -> None:
    @pl.jit
    def entry(x: X, y: Y):
        mid = pl.create_tensor([32, 64], dtype=pl.FP32, init_value=0.0)
        for i in pl.parallel(4):
            with pl.at(level=CORE, name_hint="read"):
                y[i * 8 : i * 8 + 8, :] = mid[i * 8 : i * 8 + 8, :]
        for _ in pl.spmd(1, name_hint="overwrite"):
            mid[:, :] = x[:, :]
        return y

    (race,) = found(entry)
    assert race.remedy.startswith("gather the task ids (4 of read; test_remedy.py:")
    assert "write overwrite as `with pl.spmd(…, deps=[tids]) as tid:`" in race.remedy


@pl.jit.incore
def copied(source: pl.Tensor[[32, 64], pl.FP32], target: pl.Out[pl.Tensor[[32, 64], pl.FP32]]):
    return pl.store(pl.load(source, [0, 0], [32, 64]), [0, 0], target)


def test_a_call_of_a_kernel_takes_deps_in_a_region() -> None:
    @pl.jit
    def entry(x: X, y: Y):
        mid = pl.create_tensor([32, 64], dtype=pl.FP32, init_value=0.0)
        y = copied(mid, y)
        mid = copied(x, mid)
        return y

    (race,) = found(entry)
    assert race.hazard == "war"
    assert "call copied inside `with pl.at(…) as copied_tid:`" in race.remedy
    assert "call copied inside `with pl.at(…, deps=[copied_tid]):`" in race.remedy


def test_a_value_that_left_its_region_has_the_name_of_its_variable() -> None:
    @pl.jit
    def entry(x: X, y: Y):
        with pl.manual_scope():
            with pl.at(level=CORE, name_hint="make"):
                halves = pl.mul(x[:, :], 0.5)
            with pl.at(level=CORE, name_hint="use"):
                y[:, :] = pl.add(halves, 1.0)
        return y

    (race,) = found(entry)
    assert race.buffer == "halves"
    assert race.sides[1].region == "halves[0:32, 0:64]"


# --- the orchestration's own reads


def counted(manual: bool) -> Any:
    @pl.jit
    def entry(n: pl.Tensor[[8], pl.INT32], y: pl.Out[pl.Tensor[[8, 8], pl.FP32]]):
        counts = pl.create_tensor([8], dtype=pl.INT32)
        scope = pl.manual_scope() if manual else pl.scope()
        with scope, pl.at(level=CORE, name_hint="count"):
            for i in pl.range(8):
                pl.write(counts, [i], pl.read(n, [i]) + 1)
        for i in pl.range(pl.read(counts, [3])):
            with pl.at(level=CORE, name_hint="fill"):
                y[i : i + 1, :] = pl.full([1, 8], dtype=pl.FP32, value=1.0)
        return y

    return entry


def test_the_orchestration_waits_only_for_writers_that_the_runtime_knows() -> None:
    given = np.full(8, 2, np.int32), np.zeros((8, 8), np.float32)
    assert found(counted(False), *given) == ()
    (race,) = found(counted(True), *given)
    assert (race.hazard, race.sides[0].kernel, race.sides[1].kernel) == ("raw", "count", "orchestration")
    assert race.sides[1].region == "counts[3:4]"
    assert "count is in a manual scope" in race.why


def test_what_the_orchestration_waited_for_comes_before_all_it_submits_then() -> None:
    def entry_of(asks: bool) -> Any:
        @pl.jit
        def entry(n: pl.Tensor[[8], pl.INT32], y: pl.InOut[pl.Tensor[[8, 8], pl.FP32]]):
            counts = pl.create_tensor([8], dtype=pl.INT32)
            with pl.at(level=CORE, name_hint="read"):  # reads y; a later write must come after it
                pl.write(counts, [0], pl.cast(pl.read(y, [0, 0]), pl.INT32) * 0 + pl.read(n, [0]))
            rows = pl.read(counts, [0]) if asks else 2
            with pl.manual_scope(), pl.at(level=CORE, name_hint="write"):
                for i in pl.range(rows):
                    y[i : i + 1, :] = pl.full([1, 8], dtype=pl.FP32, value=1.0)
            return y

        return entry

    draw = np.full(8, 2, np.int32), np.zeros((8, 8), np.float32)
    recorded = [record(entry_of(asks), *draw).recording for asks in (False, True)]
    assert [[race.hazard for race in races(Program(one, DEVICE))] for one in recorded] == [["war"], []]
