"""Races against the definition: every pair of accesses, every element, every path, one by one."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from recordings import buffer, recording, task
from tiers import examples

from npuscope.check.races import races
from npuscope.chip.devices import load
from npuscope.lower.program import Program
from npuscope.tile.graph import exact_accesses, task_graph
from npuscope.tile.record.model import Access, Argument, BlockGroup, Body, Loop, Op, Recording, Segment, Site

DEVICE = load("910b1")
MODES = ("read", "write", "add")
CONFLICTS = {  # earlier, later -> hazard
    ("write", "read"): "raw", ("add", "read"): "raw", ("write", "add"): "raw",
    ("write", "write"): "waw", ("add", "write"): "waw",
    ("read", "write"): "war", ("read", "add"): "war",
}  # fmt: skip
Found = set[tuple[Any, ...]]


def elements(shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> set[int]:
    return {offset + sum(i * s for i, s in zip(at, strides, strict=True)) for at in product(*map(range, shape))}


def between_tasks(made: Recording) -> Found:
    """kernel and site of both, hazard, buffer, for tasks without a path between them."""
    paths = {(src, dst) for src, dst in task_graph(made).pairs if src >= 0}
    for k, i, j in product(range(len(made.tasks)), repeat=3):  # Warshall: k outermost
        if (i, k) in paths and (k, j) in paths:
            paths.add((i, j))
    touched = [
        [(t.mode, t.site, t.buffer, set.union(*(elements(t.shape, t.strides, o) for o in t.offsets.tolist())))
         for t in exact_accesses(made, one)]
        for one in made.tasks
    ]  # fmt: skip
    return {
        (made.tasks[a].kernel, one[1], made.tasks[b].kernel, other[1], hazard, made.buffers[one[2]].name)
        for b in range(len(made.tasks))
        for a in range(b)
        if (a, b) not in paths
        for one, other in product(touched[a], touched[b])
        if (hazard := CONFLICTS.get((one[0], other[0]))) and one[2] == other[2] and one[3] & other[3]
    }


def found(made: Recording) -> Found:
    return {
        (one.kernel, one.line, other.kernel, other.line, race.hazard, race.buffer)
        for race in races(Program(made, DEVICE))
        for one, other in [race.sides]
    }


@st.composite
def accesses(draw: st.DrawFn) -> tuple[Any, int, tuple[int, ...], tuple[int, ...], list[int]]:
    """Mode, argument, and a few equal boxes of 64 elements: slices, transposed, flat, or with a step."""
    strides = draw(st.sampled_from([(8, 1), (16, 4, 1), (1, 8), (1,), (2,), (5, 2)]))
    shape = tuple(draw(st.integers(1, 4)) for _ in strides)
    room = 64 - sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    offsets = draw(st.lists(st.integers(0, room - 1), min_size=1, max_size=3))
    return draw(st.sampled_from(MODES)), draw(st.integers(0, 1)), shape, strides, offsets


@st.composite
def recordings(draw: st.DrawFn, kernels: int = 99) -> Recording:
    """Tasks in and out of manual scopes, with any deps=; every op on a line of its own, line n being site n."""
    bodies, tasks = [], []
    for n in range(draw(st.integers(2, 7))):
        parts = draw(st.lists(accesses(), max_size=3))
        items = []
        for k, (mode, argument, shape, strides, offsets) in enumerate(parts):
            op = Op(mode, "load", 3 * (n % kernels) + k, accesses=(Access(argument, mode, shape, strides),))
            items.append(Loop("range", 1, 0, (Segment(len(offsets), (op,)),)))
        bodies.append(Body((), tuple(items)))
        arguments = []
        for b in range(2):
            modes = [mode for mode, argument, *_ in parts if argument == b]
            reads, writes = any(m != "write" for m in modes), any(m != "read" for m in modes)
            arguments.append(Argument(b, 0, (64,), (1,), reads, writes))
        group = BlockGroup(n, np.array([0]), tuple(np.array(offsets)[:, None] for *_, offsets in parts))
        deps = tuple(draw(st.sets(st.integers(0, n - 1), max_size=3))) if n else ()
        manual = draw(st.booleans())
        tasks.append(task(n, *arguments, kernel=f"k{n % kernels}", deps=deps, manual_scope=manual, groups=(group,)))
    made = recording([buffer(0, 64), buffer(1, 8, 8)], tasks, bodies=tuple(bodies))
    return Recording(made.program, made.mode, tuple(Site("made.py", n, "main") for n in range(21)), *_rest(made))


def _rest(made: Recording) -> tuple[Any, ...]:
    return made.buffers, made.bodies, made.tasks


@examples(300)
@given(recordings())
def test_the_races_are_those_of_every_single_element(made: Recording) -> None:
    assert found(made) == between_tasks(made)
    assert all(race.count == 1 for race in races(Program(made, DEVICE)))


@examples(150)
@given(recordings(kernels=2))
def test_races_of_equal_lines_are_counted_together(made: Recording) -> None:
    told = [
        (*(part for side in race.sides for part in (side.kernel, side.line)), race.hazard, race.buffer)
        for race in races(Program(made, DEVICE))
    ]
    assert len(set(told)) == len(told)
    assert set(told) == between_tasks(made)


@st.composite
def launches(draw: st.DrawFn) -> Recording:
    """One launch of a few blocks, in groups of equal bodies; barriers between ops, or at the end of a loop's turns."""
    blocks, phases, looped = draw(st.integers(2, 4)), draw(st.integers(1, 3)), draw(st.booleans())
    shared = draw(st.integers(1, blocks))  # blocks of the first body
    sync = Op("syncall", "sync", 0)
    bodies, groups = [], []
    for numbers in filter(len, (range(shared), range(shared, blocks))):
        items: list[Any] = []
        offsets: list[Any] = []
        for _ in range(1 if looped else phases):
            for mode, argument, shape, strides, _places in draw(st.lists(accesses(), max_size=2)):
                room = 64 - sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
                items.append(Op(mode, "load", len(offsets), accesses=(Access(argument, mode, shape, strides),)))
                turns = phases if looped else 1
                offsets.append(np.array([[draw(st.integers(0, room - 1)) for _ in numbers] for _ in range(turns)]))
            items.append(sync)
        if looped:
            items = [Loop("range", 1, 0, (Segment(phases, tuple(items)),))]
        bodies.append(Body((), tuple(items)))
        groups.append(BlockGroup(len(bodies) - 1, np.array(numbers), tuple(offsets)))
    arguments = tuple(Argument(b, 0, (64,), (1,), True, True) for b in range(2))
    made = recording(
        [buffer(0, 64), buffer(1, 8, 8)],
        [task(0, *arguments, kernel="k", blocks=blocks, groups=tuple(groups), form="spmd")],
        bodies=tuple(bodies),
    )
    return Recording(made.program, made.mode, tuple(Site("made.py", n, "main") for n in range(21)), *_rest(made))


def between_blocks(made: Recording) -> Found:
    """The same for blocks: each runs its ops in order and counts the barriers it passes."""
    ran: list[tuple[int, int, str, int, int, set[int]]] = []  # block, phase, mode, site, buffer, elements
    (one,) = made.tasks
    for group in one.groups:
        items = made.bodies[group.body].items
        turns = 1
        if items and isinstance(items[0], Loop):
            turns, items = items[0].segments[0].count, items[0].segments[0].items
        for k, block in enumerate(group.blocks.tolist()):
            phase = 0
            for turn in range(turns):
                number = 0
                for op in items:
                    assert isinstance(op, Op)
                    if op.name == "syncall":
                        phase += 1
                        continue
                    (access,) = op.accesses
                    touched = elements(access.shape, access.strides, int(group.offsets[number][turn, k]))
                    ran.append((block, phase, access.mode, op.site, access.argument, touched))
                    number += 1
    return {
        ("k", a[3], "k", b[3], hazard, made.buffers[a[4]].name)
        for a, b in product(ran, ran)
        if a[0] < b[0] and a[1] == b[1] and a[4] == b[4] and a[5] & b[5]
        if (hazard := CONFLICTS.get((a[2], b[2])))
    }


@examples(300)
@given(launches())
def test_the_races_of_blocks_are_those_of_every_single_element(made: Recording) -> None:
    assert found(made) == between_blocks(made)
