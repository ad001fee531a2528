"""Who made an operand: the resolution against one that unrolls every loop and looks turn by turn."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import npuscope.tile as pl
from npuscope.tile.record.model import Body, Loop, Op, Ref, Segment, TileType
from npuscope.tile.record.walk import ops_of, steps_of
from npuscope.tile.run.execute import record

TILE = TileType((16, 16), "FP32")
Numbered = list[Any]  # per op its number (None where it makes no tile), per loop the turns it has: (segment, Numbered)


def unrolled(body: Body) -> dict[tuple[int, int], set[int]]:
    """Per step and operand all steps that made it in some turn, found by running through every turn of every loop."""
    count = len(body.prologue)

    def numbered(items: tuple[Op | Loop, ...]) -> Numbered:
        nonlocal count
        found: Numbered = []
        for item in items:
            if isinstance(item, Op):
                found.append((count, item))
                count += 1
            else:
                segments = [numbered(segment.items) for segment in item.segments]
                turns = [(n, segments[n]) for n, segment in enumerate(item.segments) for _ in range(segment.count)]
                found.append(turns)
        return found

    def at(items: Numbered, path: tuple[int, ...]) -> int | None:
        place = items[path[0]] if path[0] < len(items) else None
        if len(path) == 1:
            return place[0] if isinstance(place, tuple) and place[1].result is not None else None
        for _, turn in reversed(place if isinstance(place, list) else []):
            if (found := at(turn, path[1:])) is not None:
                return found
        return None

    makers: dict[tuple[int, int], set[int]] = defaultdict(set)

    def ran(items: Numbered, stack: list[tuple[list[tuple[int, Numbered]], int]]) -> None:
        for item in items:
            if isinstance(item, list):
                for turn, (_, inner) in enumerate(item):
                    ran(inner, [*stack, (item, turn)])
                continue
            number, op = item
            for place, ref in enumerate(op.operands):
                for found in sources(ref, stack):
                    if found is not None:
                        makers[number, place].add(found)

    def sources(ref: object, stack: list[tuple[list[tuple[int, Numbered]], int]]) -> list[int | None]:
        if not isinstance(ref, Ref):
            return []
        if ref.up < 0:
            return [ref.path[0]]
        if ref.up >= len(stack):
            return [at(top, ref.path)]
        turns, now = stack[-1 - ref.up]
        if ref.back == 0:
            return [at(turns[now][1], ref.path)]
        if ref.back == 1:
            return [at(turns[now - 1][1], ref.path)] if now else []
        # The turn just before is one turn ago, unless turns that ran nothing were left out of the record between them.
        just_before = {now - 1} if now and turns[now - 1][0] == turns[now][0] else set()
        return [at(turns[turn][1], ref.path) for turn in range(now) if turn not in just_before]

    top = numbered(body.items)
    ran(top, [])
    return makers


def refs(depth: int) -> st.SearchStrategy[Ref]:
    paths = st.lists(st.integers(0, 2), min_size=1, max_size=3).map(tuple)
    return st.builds(Ref, st.integers(-1, depth), st.integers(0, 2), paths).map(
        lambda ref: Ref(-1, 0, (0,)) if ref.up < 0 else ref
    )


def ops(depth: int) -> st.SearchStrategy[Op]:
    return st.builds(
        lambda operands, makes: Op("add", "vector", 0, tuple(operands), TILE if makes else None),
        st.lists(refs(depth) | st.just(1.0), max_size=2),
        st.booleans(),
    )


def items(depth: int) -> st.SearchStrategy[tuple[Op | Loop, ...]]:
    inner: st.SearchStrategy[Op | Loop] = ops(depth)
    if depth < 3:
        segments = st.lists(st.builds(Segment, st.integers(1, 4), st.deferred(lambda: items(depth + 1))), max_size=3)
        inner = inner | st.builds(lambda s: Loop("range", 1, 0, tuple(s)), segments)
    return st.lists(inner, min_size=1, max_size=3).map(tuple)


@given(items(0))
def test_operands_are_made_by_the_steps_that_made_them_turn_by_turn(made: tuple[Op | Loop, ...]) -> None:
    body = Body((Op("load", "load", 0, (), TILE),), made)
    steps = steps_of(body)
    assert [(step.op, step.counts) for step in steps] == list(ops_of(body))
    wanted = unrolled(body)
    for step in steps:
        for place, operand in enumerate(step.operands):
            assert set(operand.makers) == wanted[step.number, place]
            assert list(operand.makers) == sorted(operand.makers)


@pytest.mark.parametrize("skipped", [1, 2])
def test_a_turn_that_ran_nothing_lies_between_a_sum_and_what_it_adds_to(skipped: int) -> None:
    @pl.jit
    def main(x: pl.Tensor[[16, 64], pl.FP32], out: pl.Out[pl.Tensor[[16, 16], pl.FP32]]):
        with pl.at(level=pl.Level.CORE_GROUP):
            total = pl.full([16, 16], dtype=pl.FP32, value=0.0)
            for i in pl.range(4):
                if i != skipped:
                    total = pl.add(total, x[:, i * 16 : i * 16 + 16])
            out[:, :] = total
        return out

    recording = record(main, np.zeros((16, 64), np.float32), np.zeros((16, 16), np.float32)).recording
    steps = steps_of(recording.bodies[0])
    sums = [step for step in steps if step.op.name == "add"]
    assert sum(step.times for step in sums) == 3
    for before, step in pairwise(sums):
        assert step.operands[0].makers[-1] in (before.number, step.number)
    assert all(step.operands[0].makers for step in sums)
