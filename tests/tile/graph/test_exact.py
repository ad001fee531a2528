"""What tasks really touched, against a check that follows every element one by one."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from recordings import box, buffer, recording, row_major, task, touching, whole
from tiers import examples

from npuscope.tile.graph import exact_accesses, exact_edges
from npuscope.tile.record.model import Access, Alias, Argument, BlockGroup, Body, Loop, Op, Recording, Segment, Task

MODES = ("read", "write", "add")


def elements_of(shape: tuple[int, ...], strides: tuple[int, ...], offsets: np.ndarray) -> list[int]:
    found = np.asarray(offsets).ravel()
    for size, stride in zip(shape, strides, strict=True):
        found = np.add.outer(found, np.arange(size) * stride).ravel()
    return found.tolist()


def by_element(made: Recording) -> set[tuple[int, int, str, int]]:
    """The definition, element by element."""
    writer: dict[tuple[int, int], int] = {}
    readers: dict[tuple[int, int], set[int]] = defaultdict(set)
    edges = set()
    for one in made.tasks:
        reads, writes = set(), set()
        for touched in exact_accesses(made, one):
            places = {(touched.buffer, e) for e in elements_of(touched.shape, touched.strides, touched.offsets)}
            reads |= places if touched.mode != "write" else set()
            writes |= places if touched.mode != "read" else set()
        edges |= {(writer[p], one.id, "raw", p[0]) for p in reads if p in writer}
        edges |= {(writer[p], one.id, "waw", p[0]) for p in writes if p in writer}
        edges |= {(reader, one.id, "war", p[0]) for p in writes for reader in readers[p]}
        for place in writes:
            writer[place] = one.id
        for place in reads | writes:
            readers[place] = {one.id} | readers[place] if place not in writes else set()
    return edges


@st.composite
def accesses(draw: st.DrawFn) -> tuple[Any, tuple[int, ...], tuple[int, ...], np.ndarray]:
    """A few equal boxes of a [6, 8] or [4, 3, 4] tensor of 48 elements: slices, transposed, flat, or with a step."""
    strides = draw(st.sampled_from([(8, 1), (12, 4, 1), (1, 8), (1,), (2,), (5, 2), (0, 1)]))
    shape = tuple(draw(st.integers(1, 5)) for _ in strides)
    room = 48 - sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    if room < 1:
        shape, room = (1,) * len(strides), 48
    offsets = draw(st.lists(st.integers(0, room - 1), min_size=1, max_size=3))
    return draw(st.sampled_from(MODES)), shape, strides, np.array(offsets)


@st.composite
def recordings(draw: st.DrawFn) -> Recording:
    bodies, tasks = [], []
    for n in range(draw(st.integers(1, 6))):
        ops, offsets = [], []
        for mode, shape, strides, places in draw(st.lists(accesses(), max_size=3)):
            ops.append(Op(mode, "load", 0, accesses=(Access(draw(st.integers(0, 1)), mode, shape, strides),)))
            offsets.append(places[:, None])
        # one op per access in a loop of as many iterations as there are places
        items = tuple(Loop("range", 1, 0, (Segment(len(o), (op,)),)) for op, o in zip(ops, offsets, strict=True))
        bodies.append(Body((), items))
        group = BlockGroup(n, np.array([0]), tuple(offsets))
        arguments = tuple(Argument(b, 0, (48,), (1,), True, True) for b in range(2))
        tasks.append(task(n, *arguments, groups=(group,)))
    return recording([buffer(0, 48), buffer(1, 6, 8)], tasks, bodies=tuple(bodies))


@examples(300, deadline=None)
@given(recordings())
def test_the_edges_are_those_of_every_single_element(made: Recording) -> None:
    edges = exact_edges(made)
    assert {tuple(edge) for edge in edges} == by_element(made)
    assert len(set(edges)) == len(edges)
    assert [edge.dst for edge in edges] == sorted(edge.dst for edge in edges)


@examples(60, deadline=None)
@given(recordings(), st.booleans())
def test_layers_that_touch_their_buffers_alike(made: Recording, first_once_more: bool) -> None:
    """The same tasks on buffers of their own; perhaps one more on the first layer's, so that it is like no other."""
    count, buffers = len(made.tasks), len(made.buffers)
    tasks = []
    for layer in range(3):
        for one in made.tasks:
            moved = tuple(replace(a, buffer=a.buffer + layer * buffers) for a in one.arguments)
            tasks.append(replace(one, id=one.id + layer * count, arguments=moved))
    if first_once_more and tasks:
        tasks.append(replace(made.tasks[0], id=len(tasks)))
    held = [replace(b, id=b.id + layer * buffers) for layer in range(3) for b in made.buffers]
    layers = replace(made, buffers=tuple(held), tasks=tuple(tasks))
    assert {tuple(edge) for edge in exact_edges(layers)} == by_element(layers)


@examples(150, deadline=None)
@given(recordings(), st.integers(0, 4), st.integers(0, 4))
def test_an_assembled_part_is_its_box_of_the_whole(made: Recording, row: int, column: int) -> None:
    # GIVEN buffer 1, [6, 8], assembled at (row, column) of a [10, 12] tensor that a last task reads whole
    parent = buffer(2, 10, 12)
    alias = Alias(1, 2, row * 12 + column, (6, 8), (12, 1), len(made.tasks), 0)
    reader = touching(recording([*made.buffers, parent], [task(0, whole(parent))]))
    body, one = reader.bodies[0], reader.tasks[0]
    last = Task(**{**_fields(one), "id": len(made.tasks)})
    last = Task(**{**_fields(last), "groups": (BlockGroup(len(made.bodies), np.array([0]), one.groups[0].offsets),)})
    whole_run = recording([*made.buffers, parent], [*made.tasks, last], bodies=(*made.bodies, body), aliases=(alias,))

    # THEN the boxes lie where the assemble put them, element by element
    def moved(element: int) -> int:
        return (row + element // 8) * 12 + column + element % 8

    for one in made.tasks:
        before, after = exact_accesses(made, one), exact_accesses(whole_run, one)
        for old, new in zip(before, after, strict=True):
            places = elements_of(old.shape, old.strides, old.offsets)
            assert sorted(elements_of(new.shape, new.strides, new.offsets)) == sorted(
                map(moved, places) if old.buffer == 1 else places
            )
            assert len(new.blocks) == len(new.offsets)
    assert {tuple(edge) for edge in exact_edges(whole_run)} == by_element(whole_run)


def _fields(one: Task) -> dict[str, Any]:
    return {name: getattr(one, name) for name in one.__slots__}


def test_blocks_and_iterations_are_told_apart() -> None:
    # GIVEN two blocks that each read rows tile by tile (2 tiles) and a scale that no loop moves
    x, scale = buffer(0, 4, 8), buffer(1, 8)
    loads = Op("load", "load", 7, accesses=(Access(0, "read", (1, 8), (8, 1)),))
    once = Op("load", "load", 8, accesses=(Access(1, "read", (8,), (1,)),))
    body = Body((once,), (Loop("range", 1, 0, (Segment(2, (loads,)),)),))
    rows = np.array([[0, 16], [8, 24]])  # iteration × block
    group = BlockGroup(0, np.array([0, 1]), (np.array([0]), rows))
    made = recording([x, scale], [task(0, whole(x), whole(scale), blocks=2, groups=(group,))], bodies=(body,))

    scales, tiles = exact_accesses(made, made.tasks[0])
    assert (scales.offsets.tolist(), scales.blocks.tolist(), scales.site) == ([0, 0], [0, 1], 8)
    assert (tiles.offsets.tolist(), tiles.blocks.tolist(), tiles.site) == ([0, 16, 8, 24], [0, 1, 0, 1], 7)


def test_disjoint_halves_have_no_edge_and_a_reader_of_all_waits_for_both() -> None:
    x = buffer(0, 16, 128)
    halves = [task(n, box(x, [0, 64 * n], [16, 64], "w")) for n in range(2)]
    made = touching(recording([x], [*halves, task(2, whole(x)), task(3, box(x, [0, 0], [16, 64], "w"))]))
    assert [tuple(edge) for edge in exact_edges(made)] == [
        (0, 2, "raw", 0),
        (1, 2, "raw", 0),
        (0, 3, "waw", 0),
        (2, 3, "war", 0),
    ]


def test_row_major_helper_agrees_with_numpy() -> None:
    array = np.empty((3, 4, 5), np.int8)
    assert row_major(array.shape) == array.strides
