"""The elements that a record says a task touched are those it did touch, one by one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from random_programs import arguments, module, source
from tiers import examples

import npuscope.tile as pl
from npuscope.ops import storage
from npuscope.tile.graph.exact import exact_accesses
from npuscope.tile.record.model import Recording
from npuscope.tile.run import state

Elements = dict[tuple[int, str, bool], set[int]]  # task, buffer, whether it wrote -> elements


class Watch:
    """Notes every element that passes between GM and the chip while a program computes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: Elements = defaultdict(set)
        load, store = storage.load, storage.store

        def noted(does: Callable[..., Any], writes: bool) -> Callable[..., Any]:
            def call(view: Any, *more: Any) -> Any:
                self.note(view, writes)
                return does(view, *more)

            return call

        monkeypatch.setattr(storage, "load", noted(load, False))
        monkeypatch.setattr(storage, "store", noted(store, True))

    def note(self, view: Any, writes: bool) -> None:
        run = state.current()
        if run.block is None:
            return
        where = view.__array_interface__["data"][0]
        for buffer in run.gm.buffers:
            first = buffer.data.__array_interface__["data"][0]
            if first <= where < first + buffer.data.nbytes:
                size = buffer.dtype.bytes
                steps = [[i * s for i in range(n)] for n, s in zip(view.shape, view.strides, strict=True)]
                elements = {(where - first + sum(at)) // size for at in product(*steps)}
                self.seen[run.block.task.id, buffer.name, writes] |= elements

    def element(self, buffer: Any, place: int) -> None:
        run = state.current()
        if run.block is not None:
            self.seen[run.block.task.id, buffer, False].add(place)


class Noted(np.ndarray):
    """An array that says which single elements are read."""

    watch: Watch | None = None
    name = ""

    def __array_finalize__(self, made_of: Any) -> None:
        self.watch, self.name = getattr(made_of, "watch", None), getattr(made_of, "name", "")

    def __getitem__(self, index: Any) -> Any:
        if self.watch is not None and self.ndim == 1 and isinstance(index, int | np.integer):
            self.watch.element(self.name, int(index))
        return super().__getitem__(index)


def noted(array: Any, name: str, watch: Watch) -> Any:
    made = array.view(Noted)
    made.watch, made.name = watch, name
    return made


def recorded(recording: Recording) -> Elements:
    found: Elements = defaultdict(set)
    for task in recording.tasks:
        for touched in exact_accesses(recording, task):
            steps = [[i * s for i in range(n)] for n, s in zip(touched.shape, touched.strides, strict=True)]
            inside = {sum(at) for at in product(*steps)}
            elements = {first + more for first in set(touched.offsets.tolist()) for more in inside}
            name = recording.buffers[touched.buffer].name
            if elements and touched.mode != "write":
                found[task.id, name, False] |= elements
            if elements and touched.mode != "read":
                found[task.id, name, True] |= elements
    return found


@given(random=st.randoms(use_true_random=False))
@examples(40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_random_programs_touch_what_their_record_says(random: Random, tmp_path: Path) -> None:
    program = module(source(random), tmp_path / f"program_{random.getrandbits(40)}.py")
    names = ["x", "W", "small", "lens", "log", "out"]
    with pytest.MonkeyPatch.context() as monkeypatch:
        watch = Watch(monkeypatch)
        values = [noted(a, name, watch) for a, name in zip(arguments(), names, strict=True)]
        computed = program.main.record(*values, mode="values").recording
    assert recorded(computed) == watch.seen
    assert recorded(program.main.record(*arguments(), mode="shapes").recording) == watch.seen


def test_a_partly_valid_load_touches_its_valid_part(monkeypatch: pytest.MonkeyPatch) -> None:
    @pl.jit
    def main(x: pl.Tensor, out: pl.Out[pl.Tensor]):
        with pl.at(level=pl.Level.CORE_GROUP):
            t = pl.slice(x, [4, 4], [4, 2], valid_shape=[2, 3])
            pl.store(t, [0, 0], out)
        return out

    watch = Watch(monkeypatch)
    run = main.record(np.ones((6, 6), np.float32), np.zeros((4, 4), np.float32), mode="values")
    assert watch.seen[0, "x", False] == {26, 27, 28, 32, 33, 34}  # rows 4 and 5, columns 2 to 4 of 6
    assert watch.seen[0, "out", True] == {0, 1, 2, 4, 5, 6}
    assert recorded(run.recording) == watch.seen
