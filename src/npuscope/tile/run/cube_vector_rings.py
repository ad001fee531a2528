"""A cube function and a vector function that hand tiles to each other by hand, in one block of a Group function.

Each runs in a stepped thread, the vector function once for each of the two vector cores where it takes or gives halves.
A ring for each direction and pipe id holds as many tiles as it has slots; who finds it full or empty waits for the
others. Where nobody can go on, the error says who waits for what. What the second vector core does is computed and not
recorded a second time: it does what the first one does, on the other half. A Group that says its split
(`attrs={"split": …}`) is written for whole tiles, which the compiler halves: then the vector function runs once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Literal

import numpy as np

from npuscope.ops.dtypes import Array
from npuscope.tile.fault import fault
from npuscope.tile.record import sites
from npuscope.tile.record.recorder import Frame
from npuscope.tile.run.block import Block, SteppedThread
from npuscope.tile.values.checks import describe
from npuscope.tile.values.tensors import Shape, Tile

SLOTS = 8  # of a ring that nobody sized
Way = Literal["C2V", "V2C"]
RingKey = tuple[Way, int, int]  # direction, pipe id, vector core


class _Half:
    """One of the functions: its thread, what it waits for, and where it writes down what it does."""

    def __init__(self, name: str, core: int, frame: Frame, vector: bool) -> None:
        self.name, self.core, self.frame, self.vector = name, core, frame, vector
        self.thread: SteppedThread | None = None
        self.waits = ""
        self.result: object = None


class HandedTiles:
    """The functions of one block and the rings between them."""

    def __init__(self, block: Block, enter: Callable[[Block], None], whole: bool = False) -> None:
        self._block, self._enter, self._whole = block, enter, whole
        self._halves: list[_Half] = []
        self._now: _Half | None = None
        self._again: dict[str, Callable[[], object]] = {}  # vector functions, for their second core
        self._full: dict[RingKey, deque[tuple[Tile, Array | None, Shape]]] = {}
        self._taken: dict[RingKey, int] = {}  # popped and not yet freed
        self._popped: dict[int, tuple[int, list[RingKey]]] = {}  # its split, where it lies
        self._sizes: dict[int, int] = {}
        self._kept: dict[tuple[Way, int], int] = {}  # bytes of the consumer, by direction and pipe
        self._moved = False
        self.reserved: set[str] = set()
        self.imported: dict[str, str] = {}  # name of a ring's memory -> the function that should reserve it

    def size(self, pipe: int, slots: int) -> None:
        """How many tiles the rings of a pipe hold."""
        self._sizes[pipe] = slots
        self._block.task.launch.ring_slots = max(self._block.task.launch.ring_slots, slots)

    def keep(self, way: Way, pipe: int, bytes: int) -> None:
        """How much of the consumer's memory a pipe takes; 0 where this side does not say."""
        self._kept[way, pipe] = max(bytes, self._kept.get((way, pipe), 0))
        total = [sum(n for (one, _), n in self._kept.items() if one == way) for way in ("C2V", "V2C")]
        self._block.task.launch.ring_bytes = (total[0], total[1])

    # --- the functions

    def start(self, name: str, vector: bool, work: Callable[[], object], otherwise: object) -> object:
        """A function begins: what it returns, or, where it has to wait, the tensor that it will have written."""
        half = self._begin(name, 0, vector, work)
        if vector:
            self._again[name] = work
        self._advance(half)
        return half.result if half.thread is not None and half.thread.ended else otherwise

    def _begin(self, name: str, core: int, vector: bool, work: Callable[[], object]) -> _Half:
        root = self._block.root
        half = _Half(name, core, root if core == 0 else Frame(root, ("range", 1, sites.here())), vector)

        def body() -> None:
            half.result = work()

        half.thread = SteppedThread(body)
        self._halves.append(half)
        return half

    def _advance(self, half: _Half) -> None:
        assert half.thread is not None
        before, self._now = self._now, half
        frame, core = self._block.frame, self._block.vector.core
        self._block.frame, self._block.vector.core = half.frame, half.core
        try:
            half.thread.advance()
        finally:
            self._now = before
            self._block.frame, self._block.vector.core = frame, core
            self._enter(self._block)

    def finish(self) -> None:
        """All functions to their end."""
        self._run_all()
        for name, peer in self.imported.items():
            if name not in self.reserved:
                raise fault(f"pl.import_peer_buffer: {peer} reserves no buffer '{name}'", "Give both the same name.")

    def _run_all(self) -> None:
        while going := [half for half in self._halves if half.thread is not None and not half.thread.ended]:
            self._moved = False
            for half in going:
                self._advance(half)
                self._moved = self._moved or bool(half.thread and half.thread.ended)
            if not self._moved:
                each = "; ".join(f"{half.name} {half.waits}" for half in going)
                raise fault(f"nobody can go on: {each}", "Push before you pop, and free every slot.")

    def abandon(self) -> None:
        for half in self._halves:
            if half.thread is not None and not half.thread.ended:
                half.thread.abandon()

    def _wait(self, what: str) -> None:
        half = self._now
        assert half is not None
        assert half.thread is not None
        half.waits = what
        half.thread.pause()

    # --- the rings

    def here(self, op: str, vector: bool) -> None:
        """Refuses an op on the other kind of core."""
        if self._now is None or self._now.vector is not vector:
            raise fault(f"pl.{op} belongs into the {'vector' if vector else 'cube'} function of a Group")

    def _split(self, split: int) -> None:
        """The first op with a split shows that both vector cores take part."""
        half = self._now
        assert half is not None
        names = [half.name] if half.vector else list(self._again)
        for name in names if split else ():
            if (work := self._again.pop(name, None)) is not None:
                self._begin(name, 1, True, work)

    def push(self, tile: Tile, way: Way, pipe: int, split: int) -> None:
        half = self._now
        assert half is not None
        split = 0 if self._whole else split
        self._split(split)
        lanes = [half.core] if way == "V2C" else [0, 1] if split else [0]
        for lane in lanes:
            key = (way, pipe, lane)
            ring = self._full.setdefault(key, deque())
            slots = self._sizes.get(pipe, SLOTS)
            while len(ring) + self._taken.get(key, 0) >= slots:
                self._wait(f"waits for a free slot of {slots} of pipe {pipe} to push {describe(tile)}")
            array, shape = tile.array, tile.shape
            if way == "C2V" and split:
                shape, box = _part(tile, split, lane)
                array = None if array is None else array[box].copy()
            ring.append((tile, array, shape))
            self._moved = True

    def pop(self, way: Way, pipe: int, split: int) -> tuple[Tile, Array | None, Shape]:
        """The next tile: whole, this core's part of it, or the parts of both cores side by side."""
        half = self._now
        assert half is not None
        split = 0 if self._whole else split
        self._split(split)
        lanes = [half.core] if way == "C2V" else [0, 1] if split else [0]
        found = []
        for lane in lanes:
            key = (way, pipe, lane)
            while not self._full.get(key):
                self._wait(f"waits for a tile of pipe {pipe}")
            found.append(self._full[key].popleft())
            self._taken[key] = self._taken.get(key, 0) + 1
            self._moved = True
        first, array, shape = found[0]
        if len(found) > 1:
            axis = len(shape) - (2 if split in (1, 3) else 1)
            joined = [*shape]
            joined[axis] += found[1][2][axis]
            arrays = [one[1] for one in found]
            array = np.concatenate(arrays, axis) if all(one is not None for one in arrays) else None  # type: ignore[arg-type]
            shape = tuple(joined)
        return first, array, shape

    def hold(self, tile: Tile, way: Way, pipe: int, split: int) -> None:
        """A popped tile keeps its slots until it is freed."""
        half = self._now
        assert half is not None
        split = 0 if self._whole else split
        lanes = [half.core] if way == "C2V" else [0, 1] if split else [0]
        self._popped[id(tile)] = split, [(way, pipe, lane) for lane in lanes]

    def stands_for(self, other: Tile, tile: Tile) -> None:
        """A popped tile goes by another one from now on: that its annotation made of it."""
        if other is not tile and id(tile) in self._popped:
            self._popped[id(other)] = self._popped.pop(id(tile))

    def free(self, tile: Tile, op: str, pipe: int | None, split: int | None) -> None:
        popped, keys = self._popped.pop(id(tile), (0, None))
        if keys is None:
            raise fault(f"pl.{op}: {describe(tile)} did not come out of a ring", "Free the popped tile itself, once.")
        if pipe is not None and pipe != keys[0][1]:
            raise fault(f"pl.{op}: the tile came out of pipe {keys[0][1]}, not {pipe}")
        if split is not None and not self._whole and split != popped:
            raise fault(f"pl.{op}: split={split}, but the tile was popped with split={popped}")
        for key in keys:
            self._taken[key] -= 1
        self._moved = True


def _part(tile: Tile, split: int, lane: int) -> tuple[Shape, tuple[slice, ...]]:
    """The part of a tile that a vector core takes: halves, of odd extents the larger one first."""
    axis = len(tile.shape) - (2 if split in (1, 3) else 1)
    whole = tile.shape[axis]
    if whole % 2 and split < 3:
        raise fault(f"split={split}: {describe(tile)} has no two halves", "Use 3 or 4 for odd extents.")
    first = -(-whole // 2)
    shape = [*tile.shape]
    shape[axis] = first if lane == 0 else whole - first
    box = [slice(0, n) for n in tile.shape]
    box[axis] = slice(0, first) if lane == 0 else slice(first, whole)
    return tuple(shape), tuple(box)
