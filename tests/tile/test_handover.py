"""A cube function and a vector function of one Group hand tiles to each other by hand: tpush, tpop, tfree."""

# No `from __future__ import annotations`: signatures below name types that are local to a function.

from typing import Any, cast

import numpy as np
import pytest

import npuscope.tile as pl
from npuscope.chip.devices import load
from npuscope.lower.program import Program
from npuscope.ops.transfers import POP, PUSH
from npuscope.tile.fault import TileError
from npuscope.tile.run.execute import record

TURNS = 3
RNG = np.random.default_rng(3)


def chain(split: int, frees: bool = True, slots: int = 2, pushes: int = TURNS) -> Any:
    """(x + 1) · w on the cube, twice that on the vector cores: there and back again, turn by turn."""
    rows, columns = (16, 64) if split == 1 else (32, 32)
    halves = [rows // 2, columns] if split == 1 else [rows, columns // 2] if split == 2 else [rows, columns]
    tensor = pl.Tensor[[TURNS * rows, columns], pl.FP32]

    @pl.program
    class Chain:
        @pl.function(type=pl.FunctionType.AIV)
        def vector(self, x: tensor, w: pl.Tensor[[columns, columns], pl.FP32], y: pl.Out[tensor]):  # type: ignore[valid-type]
            pl.aiv_initialize_pipe(dir_mask=3, slot_size=rows * columns * 4, slot_num=slots)
            pl.import_peer_buffer(name="ring", peer_func="cube")
            lane = pl.tile.get_subblock_idx()
            down = halves[0] * lane if split == 1 else 0
            right = halves[1] * lane if split == 2 else 0
            for i in pl.range(pushes):
                pl.tpush_to_aic(pl.add(pl.load(x, [i * rows + down, right], halves), 1.0), split=split)
                back = pl.tpop_from_aic(shape=halves, dtype=pl.FP32, split=split)
                y = pl.store(pl.mul(back, 2.0), [i * rows + down, right], y)
                if frees:
                    pl.tfree_to_aic(back)
            return y

        @pl.function(type=pl.FunctionType.AIC)
        def cube(self, x: tensor, w: pl.Tensor[[columns, columns], pl.FP32], y: pl.Out[tensor]):  # type: ignore[valid-type]
            pl.reserve_buffer(name="ring", size=slots * rows * columns * 4, base=pl.AUTO)
            pl.aic_initialize_pipe(dir_mask=3, slot_size=rows * columns * 4, slot_num=slots)
            weights = pl.load(w, [0, 0], [columns, columns], target_memory=pl.Mem.Mat)
            for _ in pl.range(TURNS):
                tile = pl.tpop_from_aiv(split=split)
                pl.tpush_to_aiv(pl.matmul(tile, weights), split=split)
                pl.tfree_to_aiv(tile)
            return y

        @pl.function(type=pl.FunctionType.Group)
        def group(self, x: tensor, w: pl.Tensor[[columns, columns], pl.FP32], y: pl.Out[tensor]):  # type: ignore[valid-type]
            y = self.cube(x, w, y)  # waits for the vector function, which is called after it
            self.vector(x, w, y)
            return y

        @pl.function(type=pl.FunctionType.Orchestration)
        def main(self, x: tensor, w: pl.Tensor[[columns, columns], pl.FP32], y: pl.Out[tensor]):  # type: ignore[valid-type]
            y = self.group(x, w, y)
            return y

    shape = (TURNS * rows, columns)
    x, w = (RNG.integers(-3, 4, n).astype(np.float32) for n in (shape, (columns, columns)))
    return Chain, x, w, np.full(shape, np.nan, np.float32)


@pytest.mark.parametrize("split", [0, 1, 2])
def test_tiles_go_there_and_back_whole_and_in_halves(split: int) -> None:
    program, x, w, y = chain(split)
    program(x, w, y)
    np.testing.assert_array_equal(y, 2 * ((x + 1) @ w))


def test_a_group_that_says_its_split_is_written_for_whole_tiles() -> None:
    tensor = pl.Tensor[[16, 16], pl.FP32]

    @pl.program
    class Narrowed:
        @pl.function(type=pl.FunctionType.AIC)
        def cube(self, x: tensor, y: pl.Out[tensor]):  # type: ignore[valid-type]
            product = pl.set_validshape(pl.matmul(x, x), 9, 16)
            pl.tpush_to_aiv(product, split=3)
            return y

        @pl.function(type=pl.FunctionType.AIV)
        def vector(self, x: tensor, y: pl.Out[tensor]):  # type: ignore[valid-type]
            popped: pl.Tile[[16, 16], pl.FP32, pl.Mem.Vec, pl.TileView(valid_shape=[9, 16])] = pl.tpop_from_aic(split=3)
            y = pl.store(pl.add(popped, 1.0), [0, 0], y)
            pl.tfree_to_aic(popped)
            return y

        @pl.function(type=pl.FunctionType.Group, attrs={"split": pl.SplitMode.UP_DOWN})
        def group(self, x: tensor, y: pl.Out[tensor]):  # type: ignore[valid-type]
            y = self.vector(x, y)
            self.cube(x, y)
            return y

        @pl.function(type=pl.FunctionType.Orchestration)
        def main(self, x: tensor, y: pl.Out[tensor]):  # type: ignore[valid-type]
            y = self.group(x, y)
            return y

    x, y = RNG.integers(-3, 4, (16, 16)).astype(np.float32), np.zeros((16, 16), np.float32)
    recording = record(Narrowed.entry, x, y).recording  # type: ignore[attr-defined]
    np.testing.assert_array_equal(y[:9], (x @ x + 1)[:9])
    assert not y[9:].any()
    assert recording.tasks[0].split == "up_down"


def test_the_record_is_of_one_mixed_task_whose_tiles_cross() -> None:
    program, *arguments = chain(0)
    recording = record(program.entry, *arguments, mode="shapes").recording
    (task,) = recording.tasks
    assert task.core == "MIX"
    program_on_chip = Program(recording, load("910b1"))
    (body,) = program_on_chip.planned.values()
    names = [one.name for one in body.lowered.instructions]
    assert names.count(PUSH.name) == names.count(POP.name) == 2 * TURNS
    assert {ring.direction: ring.slots for ring in body.lowered.rings} == {"C2V": 2, "V2C": 2}


@pytest.mark.parametrize(
    ("change", "about"),
    [
        ({"frees": False, "slots": 1}, "vector waits for a tile of pipe 0.*cube waits for a free slot of 1"),
        ({"pushes": 2}, "nobody can go on: cube waits for a tile of pipe 0"),
    ],
    ids=["slots are never freed", "a push is missing"],
)
def test_who_waits_for_ever_is_named(change: dict[str, Any], about: str) -> None:
    program, *arguments = chain(0, **change)
    with pytest.raises(TileError) as caught:
        program(*arguments)
    words = about.split(".*")
    assert all(word in str(caught.value) for word in words)


def test_a_push_needs_somebody_beside_it() -> None:
    @pl.jit
    def alone(x: pl.InOut[pl.Tensor[[16, 16], pl.FP32]]):
        with pl.at(level=pl.Level.CORE_GROUP):
            pl.tpush_to_aic(pl.load(x, [0, 0], [16, 16]), split=0)
        return x

    with pytest.raises(TileError, match="outside a Group"):
        alone(np.zeros((16, 16), np.float32))


def test_the_consumer_keeps_the_memory_that_it_reserves() -> None:
    def reserved(held: int, local: int | None = None) -> dict[str, int]:
        @pl.program
        class Doubled:
            @pl.function(type=pl.FunctionType.AIC)
            def cube(self, x: pl.Tensor[[32, 32], pl.FP32], y: pl.Out[pl.Tensor[[32, 32], pl.FP32]]):
                ring = pl.import_peer_buffer(name="ring", peer_func="vector")
                pl.aic_initialize_pipe(ring, dir_mask=1, slot_size=4096, slot_num=4, local_slot_num=local)
                tile = pl.load(x, [0, 0], [32, 32], target_memory=pl.Mem.Mat)
                pl.tpush_to_aiv(pl.matmul(tile, tile), split=0)
                return y

            @pl.function(type=pl.FunctionType.AIV)
            def vector(self, x: pl.Tensor[[32, 32], pl.FP32], y: pl.Out[pl.Tensor[[32, 32], pl.FP32]]):
                ring = pl.reserve_buffer(name="ring", size=held)
                pl.aiv_initialize_pipe(ring, dir_mask=1, slot_size=4096, slot_num=4, local_slot_num=local)
                tile = pl.tpop_from_aic(split=0)
                y = pl.store(pl.mul(tile, 2.0), [0, 0], y)
                pl.tfree_to_aic(tile, split=0)
                return y

            @pl.function(type=pl.FunctionType.Group)
            def group(self, x: pl.Tensor[[32, 32], pl.FP32], y: pl.Out[pl.Tensor[[32, 32], pl.FP32]]):
                self.cube(x, y)
                return self.vector(x, y)

            @pl.function
            def main(self, x: pl.Tensor[[32, 32], pl.FP32], y: pl.Out[pl.Tensor[[32, 32], pl.FP32]]):
                return self.group(x, y)

        x, y = np.eye(32, dtype=np.float32), np.zeros((32, 32), np.float32)
        recording = record(cast(Any, Doubled).entry, x, y).recording
        (body,) = Program(recording, load("ascend910b1")).planned.values()
        return {ring.direction: ring.bytes for ring in body.lowered.rings}

    assert reserved(4 * 4096) == {"C2V": 4 * 4096}
    assert reserved(8 * 4096) == {"C2V": 8 * 4096}
    assert reserved(2 * 4096, local=2) == {"C2V": 2 * 4096}
    with pytest.raises(TileError, match="16,384 bytes of slots in 8,192 reserved"):
        reserved(2 * 4096)
    with pytest.raises(TileError, match="local_slot_num=5 of 4 slots"):
        reserved(8 * 4096, local=5)
