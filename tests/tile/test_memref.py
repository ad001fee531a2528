"""Buffers that the author of a program declares: `pl.MemRef`, alone or in slots, in memory, values and time."""

# No `from __future__ import annotations`: signatures below name types that are local to a function.

from typing import Any

import numpy as np
import pytest

import npuscope.tile as pl
from npuscope.chip.devices import load
from npuscope.lower.program import Program
from npuscope.tile.fault import TileError
from npuscope.tile.run.execute import record

CORE = pl.Level.CORE_GROUP
ROWS, TURNS = 64, 4
BYTES = ROWS * 64 * 4
WHOLE = pl.Tensor[[TURNS * ROWS, 64], pl.FP32]
ring = pl.MemRef(slots=3)


@pl.jit
def in_slots(a: WHOLE, b: WHOLE, out: pl.Out[WHOLE]):  # type: ignore[valid-type]
    with pl.at(level=CORE, name_hint="sum"):
        for i in pl.range(TURNS):
            x: pl.Tile[[ROWS, 64], pl.FP32, ring[i % 3], pl.Mem.Vec] = pl.load(a, [i * ROWS, 0], [ROWS, 64])
            y: pl.Tile[[ROWS, 64], pl.FP32, ring[(i + 1) % 3], pl.Mem.Vec] = pl.load(b, [i * ROWS, 0], [ROWS, 64])
            out = pl.store(pl.add(x, y), [i * ROWS, 0], out)
    return out


@pl.jit
def in_one_slot(a: WHOLE, b: WHOLE, out: pl.Out[WHOLE]):  # type: ignore[valid-type]
    with pl.at(level=CORE, name_hint="sum"):
        for i in pl.range(TURNS):
            x: pl.Tile[[ROWS, 64], pl.FP32, pl.MemRef("one"), pl.Mem.Vec] = pl.load(a, [i * ROWS, 0], [ROWS, 64])
            y: pl.Tile[[ROWS, 64], pl.FP32, pl.MemRef("one"), pl.Mem.Vec] = pl.load(b, [i * ROWS, 0], [ROWS, 64])
            out = pl.store(pl.add(x, y), [i * ROWS, 0], out)
    return out


@pl.jit
def undeclared(a: WHOLE, b: WHOLE, out: pl.Out[WHOLE]):  # type: ignore[valid-type]
    with pl.at(level=CORE, name_hint="sum"):
        for i in pl.range(TURNS):
            x: pl.Tile[[ROWS, 64], pl.FP32, pl.Mem.Vec] = pl.load(a, [i * ROWS, 0], [ROWS, 64])
            y = pl.load(b, [i * ROWS, 0], [ROWS, 64])
            out = pl.store(pl.add(x, y), [i * ROWS, 0], out)
    return out


def operands() -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal((TURNS * ROWS, 64)).astype(np.float32) for _ in range(2))
    return [a, b, np.zeros_like(a)]


def plan(program: Any) -> Any:
    recording = record(program, *operands(), mode="shapes").recording
    (body,) = Program(recording, load("910b1")).planned.values()
    (space,) = body.plan
    return space


def test_tiles_in_different_slots_keep_their_values() -> None:
    a, b, out = operands()
    finished = record(in_slots, a, b, out)
    np.testing.assert_array_equal(out, a + b)
    assert not finished.recording.notices


def test_a_tile_overwrites_what_lay_in_its_slot_and_who_reads_that_is_named() -> None:
    a, b, out = operands()
    finished = record(in_one_slot, a, b, out)
    np.testing.assert_array_equal(out, b + b)
    (notice,) = {notice.message for notice in finished.recording.notices}
    assert "pl.add reads [64, 64] FP32 after it is gone: slot 0 of one" in notice


def test_slots_lie_in_memory_for_the_whole_function() -> None:
    plain, slots = plan(undeclared), plan(in_slots)
    assert plain.used == 2 * BYTES  # two tiles, of which the sum takes one
    assert slots.used == 4 * BYTES  # three slots, and the sum beside them
    declared = [slot for slot in slots.slots if len(slot.tenants) == 2]
    assert [slot.bytes for slot in declared] == [BYTES] * 3
    assert plan(in_one_slot).used == 2 * BYTES  # both tiles in one place, and their sum


@pytest.mark.parametrize(
    ("slot", "about"), [(5, "slot 5 of few, which has 2"), (-1, "slot -1 of few")], ids=["past the end", "below"]
)
def test_a_slot_that_is_not_there_is_refused(slot: int, about: str) -> None:
    @pl.jit
    def wrong(a: WHOLE, out: pl.Out[WHOLE]):  # type: ignore[valid-type]
        with pl.at(level=CORE):
            x: pl.Tile[[ROWS, 64], pl.FP32, pl.MemRef("few", slots=2)[slot], pl.Mem.Vec] = pl.load(
                a, [0, 0], [ROWS, 64]
            )
            out = pl.store(x, [0, 0], out)
        return out

    with pytest.raises(TileError, match=about):
        wrong(*operands()[::2])


def test_an_annotation_says_which_part_of_a_tile_holds_data() -> None:
    @pl.jit
    def part(a: WHOLE, out: pl.Out[WHOLE]):  # type: ignore[valid-type]
        with pl.at(level=CORE):
            x: pl.Tile[[ROWS, 64], pl.FP32, pl.Mem.Vec, pl.TileView(valid_shape=[8, 32])] = pl.load(
                a, [0, 0], [ROWS, 64]
            )
            out = pl.store(x, [0, 0], out)
        return out

    a, out = np.ones((TURNS * ROWS, 64), np.float32), np.zeros((TURNS * ROWS, 64), np.float32)
    part(a, out)
    want = np.zeros_like(out)
    want[:8, :32] = 1
    np.testing.assert_array_equal(out, want)
