"""The graph the runtime would build: its rules one by one, and all of them against a plain O(n²) application."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from recordings import box, buffer, recording, task, turns, whole
from tiers import examples

from npuscope.base.errors import NpuscopeError
from npuscope.tile.graph import Box, Graph, overlaps, task_graph
from npuscope.tile.graph.task_graph import TensorMap, status
from npuscope.tile.record.model import Alias, Argument, Buffer, Recording, Task

X = buffer(0, 64, origin="parameter", direction="In")
LOCAL = buffer(1, 64)
ROWS = buffer(2, 4, 16)
OUT = buffer(3, 4, 16, origin="parameter", direction="Out")


def graph_of(*tasks: Task, **more: object) -> Graph:
    return task_graph(recording([X, LOCAL, ROWS, OUT], list(tasks), **more))


def waits(graph: Graph, *origins: str) -> set[tuple[int, int]]:
    """Pairs of tasks with an edge of one of the origins."""
    return {(e.src, e.dst) for e in graph.edges if e.origin in (origins or ("raw", "waw", "explicit"))}


def test_a_reader_waits_for_the_writer() -> None:
    graph = graph_of(task(0, whole(LOCAL, "w")), task(1, whole(LOCAL)))
    assert waits(graph, "raw") == {(0, 1)}
    (edge,) = (e for e in graph.edges if e.origin == "raw")
    assert (edge.buffer, edge.argument, edge.covered) == (1, 0, True)
    assert edge.src_box == edge.dst_box == (1, 0, (64,), (1,))


def in_loop(kind: str, *arguments: Argument) -> list[Task]:
    return [task(n, argument, turns=turns((0, kind, n))) for n, argument in enumerate(arguments)]


WRITE, READ = whole(LOCAL, "w"), whole(LOCAL)
CASES = {
    "a writer never waits for a reader": ([task(0, READ), task(1, WRITE)], set()),
    "parallel writers do not wait, their reader waits for all": (
        [*in_loop("parallel", *[WRITE] * 3), task(3, READ)],
        {(0, 3), (1, 3), (2, 3)},
    ),
    "in a sequential loop they wait for one another": (
        [*in_loop("range", *[WRITE] * 3), task(3, READ)],
        {(0, 1), (1, 2), (2, 3)},
    ),
    "whole tensors are the footprint": (in_loop("range", *[whole(ROWS, "w")] * 2), {(0, 1)}),
    "disjoint slices do not wait": (in_loop("range", *[box(ROWS, [0, 8 * n], [4, 8], "w") for n in range(2)]), set()),
    # rows 0-1, then rows 1-2 (InOut, does not cover): a reader of row 0 still finds the first
    "an InOut forgets only what it covers": (
        [
            task(0, box(ROWS, [0, 0], [2, 16], "w")),
            task(1, box(ROWS, [1, 0], [2, 16], "rw")),
            task(2, box(ROWS, [0, 0], [1, 16])),
            task(3, whole(ROWS, "rw")),
            task(4, whole(ROWS)),
        ],
        {(0, 1), (0, 2), (0, 3), (1, 3), (3, 4)},
    ),
    "views of other strides are apart when their ranges are": (
        [task(0, box(ROWS, [0, 0], [1, 4], "w")), task(1, Argument(2, 8, (8,), (1,), True, False))],
        set(),
    ),
    "and meet when their ranges do, for the runtime cannot know better": (
        [task(0, box(ROWS, [0, 0], [2, 2], "w")), task(1, Argument(2, 2, (8,), (1,), True, False))],
        {(0, 1)},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_who_waits_for_whom(case: str) -> None:
    tasks, expected = CASES[case]
    assert waits(graph_of(*tasks)) == expected


def test_a_second_writer_waits_by_waw_only_because_it_became_inout() -> None:
    graph = graph_of(task(0, WRITE), task(1, WRITE), task(2, whole(LOCAL, "rw")))
    # 2 covers 1's entry, and 1 had covered 0's: a chain
    assert waits(graph, "waw") == {(0, 1)}
    assert waits(graph, "raw") == {(1, 2)}


def test_explicit_deps_come_on_top_and_once() -> None:
    graph = graph_of(task(0, whole(LOCAL, "w")), task(1, whole(X)), task(2, whole(LOCAL), deps=(1, 0, 1)))
    assert graph.pairs[0, 2] == ("explicit", "raw")
    assert graph.pairs[1, 2] == ("explicit",)
    assert graph.counts() == {"creator": 2, "raw": 1, "waw": 0, "explicit": 2}


def test_a_tensor_made_in_the_orchestration_has_an_allocation_for_its_creator() -> None:
    graph = graph_of(task(0, whole(X), whole(LOCAL, "w")), task(1, whole(LOCAL), whole(OUT, "w")))
    assert [(a.buffers, a.before_task) for a in graph.allocations] == [((1,), 0)]
    assert waits(graph, "creator") == {(-1, 0), (-1, 1)}


def test_allocations_are_batched_per_turn_and_by_sixteen() -> None:
    many = [buffer(n, 8) for n in range(18)]
    each = [buffer(18 + n, 8, turns=turns((0, "parallel", n))) for n in range(2)]
    tasks = [task(0, *(whole(b, "w") for b in many))]
    tasks += [task(1 + n, whole(each[n], "w"), turns=turns((0, "parallel", n))) for n in range(2)]
    graph = task_graph(recording([*many, *each], tasks))
    assert [(len(a.buffers), a.before_task) for a in graph.allocations] == [(16, 0), (2, 0), (1, 1), (1, 2)]
    assert waits(graph, "creator") == {(-1, 0), (-2, 0), (-3, 1), (-4, 2)}


def test_no_dep_keeps_the_creator_and_nothing_else() -> None:
    writer, hidden = task(0, whole(LOCAL, "w")), task(1, whole(LOCAL, "rw", no_dep=True))
    graph = graph_of(writer, hidden, task(2, whole(LOCAL)))
    assert waits(graph) == {(0, 2)}
    assert waits(graph, "creator") == {(-1, 0), (-1, 1), (-1, 2)}


def test_manual_dep_takes_a_tensor_out_for_its_life() -> None:
    free = buffer(0, 64, manual_dep=True)
    graph = task_graph(recording([free], [task(0, whole(free, "w")), task(1, whole(free, "rw"))]))
    assert waits(graph) == set()
    assert waits(graph, "creator") == {(-1, 0), (-1, 1)}


def test_a_manual_scope_knows_only_what_is_declared() -> None:
    inside = task(1, whole(LOCAL, "rw"), manual_scope=True, deps=(0,))
    graph = graph_of(task(0, whole(LOCAL, "w")), inside, task(2, whole(LOCAL)))
    assert {(e.src, e.dst, e.origin) for e in graph.edges if e.dst == 1} == {(0, 1, "explicit")}
    assert waits(graph, "raw") == {(0, 2)}  # the write in the scope is not remembered


def assembled(part: Buffer, row: int, before_task: int) -> Alias:
    return Alias(part.id, OUT.id, row * 16, (1, 16), (16, 1), before_task, 0)


def test_writers_of_an_assembled_part_are_writers_of_its_box() -> None:
    # fill_row of the documented example: four parts, each filled by a task, assembled into rows of `out`
    parts = [buffer(4 + n, 1, 16, turns=turns((0, "range", n))) for n in range(4)]
    fills = [task(n, whole(X), whole(parts[n], "w"), turns=turns((0, "range", n))) for n in range(4)]
    aliases = tuple(assembled(part, n, n + 1) for n, part in enumerate(parts))
    made = recording([X, LOCAL, ROWS, OUT, *parts], [*fills, task(4, whole(OUT))], aliases=aliases)
    graph = task_graph(made)
    assert waits(graph) == {(n, 4) for n in range(4)}  # rows are apart: no waw in the loop
    assert graph.footprints[2][1] == (3, 32, (1, 16), (16, 1))
    assert graph.allocations == ()  # the parts are slices of a parameter now


def test_a_part_of_lower_rank_is_padded_in_front() -> None:
    tall, part = buffer(0, 2, 4, 8, origin="parameter"), buffer(1, 2, 4)
    alias = Alias(1, 0, 32 + 4, (2, 4), (32, 8, 1), 1, 0)
    tasks = [
        task(0, whole(part, "w")),
        task(1, box(tall, [1, 0, 4], [1, 1, 4])),
        task(2, box(tall, [1, 2, 4], [1, 1, 4])),
    ]
    graph = task_graph(recording([tall, part], tasks, aliases=(alias,)))
    assert graph.footprints[0][0] == (0, 36, (1, 2, 4), (32, 8, 1))
    assert waits(graph) == {(0, 1)}


def test_a_part_assembled_into_two_places_is_an_error() -> None:
    part = buffer(4, 1, 16)
    made = recording(
        [X, LOCAL, ROWS, OUT, part], [task(0, whole(part, "w"))], aliases=(assembled(part, 0, 1), assembled(part, 1, 1))
    )
    with pytest.raises(NpuscopeError, match=r"made\.py, line 1: 't4' is assembled into two places"):
        task_graph(made)


def test_a_reshaped_part_lies_as_it_was_assembled() -> None:
    # a [16] tensor reshaped to [1, 16] and assembled into row 2
    part = buffer(4, 16)
    alias = Alias(part.id, OUT.id, 32, (1, 16), (16, 1), 1, 0)
    tasks = [task(0, whole(part, "w")), task(1, box(OUT, [2, 0], [1, 16])), task(2, box(OUT, [3, 0], [1, 16]))]
    graph = task_graph(recording([X, LOCAL, ROWS, OUT, part], tasks, aliases=(alias,)))
    assert graph.footprints[0][0] == (3, 32, (16,), (1,))
    assert waits(graph) == {(0, 1)}


def test_parts_of_parts_lie_in_the_last_whole() -> None:
    row, cell = buffer(4, 1, 16), buffer(5, 1, 4)
    aliases = (Alias(5, 4, 8, (1, 4), (16, 1), 1, 0), Alias(4, 3, 16, (1, 16), (16, 1), 1, 0))
    graph = task_graph(recording([X, LOCAL, ROWS, OUT, row, cell], [task(0, whole(cell, "w"))], aliases=aliases))
    assert graph.footprints[0][0] == (3, 24, (1, 4), (16, 1))


@pytest.mark.parametrize(
    ("aliases", "how"),
    [
        ([Alias(4, 3, 0, (2, 4), (16, 1), 1, 0)], "only in part"),
        ([Alias(4, 5, 0, (1, 16), (16, 1), 1, 0), Alias(5, 4, 0, (1, 16), (16, 1), 1, 0)], "into itself"),
    ],
)
def test_an_assemble_that_has_no_place_is_an_error(aliases: list[Alias], how: str) -> None:
    made = recording([X, LOCAL, ROWS, OUT, buffer(4, 1, 16), buffer(5, 1, 16)], [], aliases=tuple(aliases))
    with pytest.raises(NpuscopeError, match=how):
        task_graph(made)


# --- all rules at once, applied plainly ------------------------------------------------------------------------------


def elements(box: Box | Argument) -> set[int]:
    found = np.array([box.offset])
    for size, stride in zip(box.shape, box.strides, strict=True):
        found = np.add.outer(found, np.arange(size) * stride).ravel()
    return set(found.tolist())


def meets(wanted: Argument, entry: Argument, size: int) -> str | None:
    """covered, other or None, by sets of elements where the runtime can compare axes, else by ranges."""
    mine, its = elements(wanted), elements(entry)
    if max(mine) < min(its) or max(its) < min(mine):
        return None
    comparable = wanted.strides == entry.strides and wanted.strides[-1] == 1
    comparable &= all(a % b == 0 for a, b in pairwise(wanted.strides)) and size % wanted.strides[0] == 0
    for argument in (wanted, entry):
        limits = [size, *argument.strides[:-1]]
        inside = argument.offset
        for n, step, limit in zip(argument.shape, argument.strides, limits, strict=True):
            comparable &= inside // step + n <= limit // step
            inside %= step
    if not comparable:
        return "other"
    if not mine & its:
        return None
    return "covered" if its <= mine else "other"


def plain_directions(made: Recording, one: Task) -> list[str]:
    def prior(root: Argument) -> bool:
        mine = [(t.loop, t.turn) for t in one.turns if t.kind != "unroll"]
        for other in made.tasks[: one.id]:
            if not any(_same(root, a) and a.writes for a in other.arguments):
                continue
            its = [(t.loop, t.turn) for t in other.turns if t.kind != "unroll"]
            apart = next(((a, b) for a, b in zip(mine, its, strict=False) if a != b), None)
            if apart is None or apart[0][0] != apart[1][0]:
                return True
        return False

    found = []
    for argument in one.arguments:
        owner = made.buffers[argument.buffer]
        is_whole = argument.shape == owner.shape
        if argument.no_dep:
            found.append("NoDep")
        elif not argument.writes:
            found.append("Input")
        elif argument.reads or any(t.kind in ("range", "while") for t in one.turns) or prior(argument):
            found.append("InOut")
        else:
            found.append("InOut" if is_whole and owner.direction == "InOut" else "OutputExisting")
    return found


def _same(a: Argument, b: Argument) -> bool:
    return (a.buffer, a.offset, a.shape, a.strides) == (b.buffer, b.offset, b.shape, b.strides)


def plain_edges(made: Recording) -> list[tuple[int, int, str, int]]:
    entries: list[tuple[Argument, int]] = []
    edges = []
    for one in made.tasks:
        edges += [(dep, one.id, "explicit", -1) for dep in one.deps]
        if one.manual_scope:
            continue
        ways = plain_directions(made, one)
        for n, (argument, way) in enumerate(zip(one.arguments, ways, strict=True)):
            owner = made.buffers[argument.buffer]
            if owner.origin != "parameter":
                edges.append((-1, one.id, "creator", n))
            if way in ("Input", "InOut") and not owner.manual_dep:
                for entry in list(entries):
                    status = meets(argument, entry[0], int(np.prod(owner.shape))) if _one(entry, argument) else None
                    if status:
                        reads = argument.reads or not argument.writes
                        edges.append((entry[1], one.id, "raw" if reads else "waw", n))
                    if status == "covered" and way == "InOut":
                        entries.remove(entry)
        for argument, way in zip(one.arguments, ways, strict=True):
            if way in ("InOut", "OutputExisting") and not made.buffers[argument.buffer].manual_dep:
                entries.append((argument, one.id))
    return edges


def _one(entry: tuple[Argument, int], argument: Argument) -> bool:
    return entry[0].buffer == argument.buffer


BUFFERS = [
    buffer(0, 4, 6, origin="parameter", direction="InOut"),
    buffer(1, 4, 6),
    buffer(2, 4, 6, manual_dep=True),
    buffer(3, 2, 3, 4, origin="promoted"),
]


@st.composite
def arguments(draw: st.DrawFn) -> Argument:
    of = draw(st.sampled_from(BUFFERS))
    how = draw(st.sampled_from(["r", "w", "rw"]))
    more: dict[str, Any] = {"no_dep": draw(st.sampled_from([False, False, False, True]))}
    kind = draw(st.sampled_from(["whole", "slice", "rows"]))
    if kind == "whole":
        return whole(of, how, **more)
    at = [draw(st.integers(0, n - 1)) for n in of.shape]
    if kind == "rows":  # a view of one axis fewer
        strides = (6, 1) if len(of.shape) == 3 else (1,)
        shape = tuple(draw(st.integers(1, 3)) for _ in strides)
        return Argument(of.id, at[0], shape, strides, "r" in how, "w" in how, **more)
    return box(of, at, [draw(st.integers(1, n - a)) for n, a in zip(of.shape, at, strict=True)], how, **more)


@st.composite
def programs(draw: st.DrawFn) -> Recording:
    """Tasks in a loop nest that is walked in order: outer loops of any kind, inner ones entered anew in each turn."""
    tasks: list[Any] = []
    loops = 0
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(["none", "parallel", "range", "unroll"]))
        outer, loops = loops, loops + 1
        for turn in range(1 if kind == "none" else draw(st.integers(1, 3))):
            around = () if kind == "none" else ((outer, kind, turn),)
            inner = draw(st.sampled_from([(), ("parallel",), ("unroll",)]))
            for deep in range(draw(st.integers(1, 2))):
                nest = turns(*around, *((loops, k, deep) for k in inner))
                given = draw(st.lists(arguments(), max_size=3))
                deps = tuple(draw(st.sets(st.integers(0, len(tasks) - 1), max_size=2))) if tasks else ()
                manual = draw(st.sampled_from([False, False, False, True]))
                tasks.append(task(len(tasks), *given, turns=nest, deps=deps, manual_scope=manual))
            loops += 1
    return recording(BUFFERS, tasks)


@examples(200, deadline=None)
@given(programs())
def test_the_graph_is_what_the_rules_say(made: Recording) -> None:
    graph = task_graph(made)
    assert sorted((e.src, e.dst, e.origin, e.argument) for e in graph.edges) == sorted(plain_edges(made))
    assert [list(ways) for ways in graph.directions] == [plain_directions(made, one) for one in made.tasks]
    assert all(edge.src < edge.dst for edge in graph.edges)


# --- boxes and the tensormap

AXES = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 7)), max_size=3)
BOXES = st.builds(
    lambda offset, axes: Box(0, offset, tuple(n for n, _ in axes), tuple(s for _, s in axes)), st.integers(0, 30), AXES
)


@given(BOXES, BOXES)
def test_overlap_is_a_shared_element(a: Box, b: Box) -> None:
    assert overlaps(a, b) == bool(elements(a) & elements(b))


def test_tiles_side_by_side_are_apart_though_their_ranges_cross() -> None:
    # GIVEN columns 0…63 and 64…127 of all 16 rows of a [16, 128] tensor
    left, right = Box(0, 0, (16, 64), (128, 1)), Box(0, 64, (16, 64), (128, 1))
    assert not overlaps(left, right)
    assert overlaps(left, Box(0, 63, (16, 64), (128, 1)))
    # a column of the right half, read transposed
    assert overlaps(right, Box(0, 64 + 5, (1, 16), (1, 128)))
    assert not overlaps(left, Box(0, 64 + 5, (1, 16), (1, 128)))


def test_boxes_of_other_buffers_never_meet() -> None:
    assert not overlaps(Box(0, 0, (4,), (1,)), Box(1, 0, (4,), (1,)))


RUNS = ["bgemm_Case1_L4", "dummy_DenseFanoutFanin", "hbg_paged_attention_small1", "paged_attention_CaseVarSeq4"]
RUNS += ["spmd_multiblock_mix", "sync_start_drain"]


@pytest.mark.parametrize("run", RUNS)
def test_a_replay_finds_the_edges_of_the_real_run(shared: Path, run: str) -> None:
    # GIVEN what the runtime was given: per task its arguments with directions and regions
    document = json.loads((shared / "simpler" / "swimlane" / run / "deps.json").read_text())
    numbers = {tensor["tensor_id"]: n for n, tensor in enumerate(document["tensors"])}
    known = TensorMap([int(tensor["buffer_numel"]) for tensor in document["tensors"]].__getitem__)

    # WHEN the tasks are submitted to our map
    found = set()
    for row in document["tasks"]:
        boxes = {
            arg["idx"]: (
                arg["type"],
                Box(numbers[arg["tensor_id"]], int(arg["start_offset"]), tuple(arg["shape"]), tuple(arg["strides"])),
            )
            for arg in row["args"]
            if arg["type"] != "OUTPUT"  # allocated by the task itself: not in the map
        }
        for idx, (way, place) in boxes.items():
            hits = list(known.lookup(place)) if way in ("INPUT", "INOUT") else []
            for entry, writers, covered in hits:
                found |= {(w, row["task_id"], idx, "covered" if covered else "other") for w in writers}
                if covered and way == "INOUT":
                    known.remove(entry)
        for way, place in boxes.values():
            if way in ("INOUT", "OUTPUT_EXISTING"):
                known.insert(place, row["task_id"])

    # THEN it finds the tensormap edges that the runtime wrote down, each with its kind of overlap
    wanted = {
        (edge["pred"], edge["succ"], edge["arg"], edge["overlap"])
        for edge in document["edges"]
        if edge["source"] == "tensormap"
    }
    assert found == wanted


def test_statuses() -> None:
    row = Box(0, 0, (1, 16), (16, 1))
    assert status(Box(0, 0, (4, 16), (16, 1)), row, 64) == "covered"
    assert status(row, Box(0, 0, (4, 16), (16, 1)), 64) == "other"
    assert status(Box(0, 0, (4, 8), (16, 1)), Box(0, 8, (4, 8), (16, 1)), 64) == "apart"
    assert status(Box(0, 0, (4, 8), (16, 1)), Box(0, 8, (4, 8), (16, 1)), 60) == "other"  # no whole rows: cannot tell
    assert status(Box(0, 0, (8,), (2,)), Box(0, 1, (8,), (2,)), 64) == "other"  # a step: cannot tell


def test_one_long_box_does_not_hide_short_ones() -> None:
    known = TensorMap(lambda buffer: 1000)
    boxes = [Box(0, 0, (1000,), (1,)), *(Box(0, 10 * n, (10,), (1,)) for n in range(100))]
    for n, place in enumerate(boxes):
        known.insert(place, n)
    assert sorted(w for _, writers, _ in known.lookup(Box(0, 505, (10,), (1,))) for w in writers) == [0, 51, 52]
    known.remove(boxes[0])
    assert sorted(w for _, writers, _ in known.lookup(Box(0, 505, (10,), (1,))) for w in writers) == [51, 52]
