"""Kinds of blocks: bodies with what they find in L2, timed at every slow-down of the memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

import numpy as np

from npuscope.device.chip import Device
from npuscope.lower.memory import Kernel
from npuscope.lower.model import Items, Repeat
from npuscope.lower.program import Program
from npuscope.simulate.chip.job import SLOW, Floats, Ints
from npuscope.simulate.chip.l2 import SMALL, Cache
from npuscope.simulate.chip.lines import distinct_lines
from npuscope.simulate.core.costs import NS, line_bytes
from npuscope.simulate.core.pipes import Timing, time_block
from npuscope.simulate.core.stream import Stream, stream_of
from npuscope.tile.dtypes import BY_NAME
from npuscope.tile.record.model import Access, BlockGroup, Task

STEPS = 16  # shares of a block's bytes that come from HBM are told apart in so many steps


@dataclass(frozen=True)
class Reads:
    """What a body reads of each argument, in bytes of whole lines, and which offsets tell where."""

    argument: int
    bytes: int
    boxes: tuple[tuple[int, Access], ...]
    size: int  # bytes of an element


@dataclass
class Classes:
    """Classes found so far; `of` gives the class of each block of a task in order."""

    program: Program
    kernels: dict[tuple[str, int, str, int], Kernel]
    known: dict[tuple[int, int], int] = field(default_factory=dict)  # stream, share of HBM -> class
    streams: list[Stream] = field(default_factory=list)
    timed: dict[tuple[int, float], Timing] = field(default_factory=dict)
    entries: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.device: Device = self.program.device
        self._numbers: dict[tuple[str, int, str, int], int] = {}
        self._reads: list[tuple[Reads, ...]] = []
        size = self.device.memory.l2.value if self.device.memory.l2 else 0.0
        self._cache = Cache(size)
        self._whole = size * SMALL
        self._line = int(self.device.core["gm_line"].value)
        self._distinct: dict[tuple[int, int], int] = {}

    def stream(self, key: tuple[str, int, str, int]) -> int:
        if key not in self._numbers:
            kernel = self.kernels[key]
            self._numbers[key] = len(self.streams)
            self.streams.append(stream_of(kernel, self.device))
            self._reads.append(tuple(_reads(kernel, self.device, self.program)))
        return self._numbers[key]

    def of(self, task: Task) -> Ints:
        """The class of every block, in the order of blocks."""
        found = np.zeros(max(task.blocks, 1), np.int64)
        for group in task.groups:
            number = self.stream((task.kernel, group.body, task.split, task.ring_slots))
            total = sum(reads.bytes for reads in self._reads[number])
            missed = np.zeros(len(group.blocks))
            for reads in self._reads[number]:
                once = self._once(number, reads, group)
                buffer = self.program.recording.buffers[task.arguments[reads.argument].buffer]
                whole = prod(buffer.shape) * BY_NAME[buffer.dtype].bytes
                if whole <= self._whole:
                    if not self._cache.touch(buffer.id, whole):
                        missed += min(once, whole / len(group.blocks))
                    continue
                for n, place in enumerate(_places(group.offsets, reads, len(group.blocks), self._line)):
                    if not self._cache.touch((buffer.id, place, number, reads.argument), once):
                        missed[n] += once
            for n, at in enumerate(group.blocks.tolist()):
                share = round(STEPS * missed[n] / total) if total else 0
                found[at] = self._class(number, share)
        for argument in task.arguments:
            if argument.writes:
                buffer = self.program.recording.buffers[argument.buffer]
                self._cache.touch(buffer.id, min(prod(buffer.shape) * BY_NAME[buffer.dtype].bytes, self._whole))
        return found

    def _once(self, number: int, reads: Reads, group: BlockGroup) -> int:
        """Bytes of the lines that a block of this kind reads of an argument, each line once."""
        key = (number, reads.argument)
        if key not in self._distinct:
            boxes = [(access, group.offsets[at][..., 0]) for at, access in reads.boxes]
            self._distinct[key] = min(distinct_lines(boxes, reads.size, self._line) * self._line, reads.bytes)
        return self._distinct[key]

    def _class(self, stream: int, share: int) -> int:
        key = (stream, share)
        if key not in self.known:
            self.known[key] = len(self.entries)
            self.entries.append(key)
        return self.known[key]

    def tables(self) -> tuple[Floats, Floats]:
        """`run` and `draws` of every class."""
        start = self.device.timing["block_start"].value * NS
        run, draws = np.zeros((len(self.entries), len(SLOW))), np.zeros((len(self.entries), len(SLOW)))
        for number, (stream, share) in enumerate(self.entries):
            part = share / STEPS
            for n, slow in enumerate(SLOW):
                timing = self._timed(stream, 1 + part * (slow - 1))
                run[number, n] = timing.duration + start
                draws[number, n] = self.streams[stream].read * part / run[number, n]
        return run, draws

    def _timed(self, stream: int, slow: float) -> Timing:
        key = (stream, slow)
        if key not in self.timed:
            self.timed[key] = time_block(self.streams[stream], slow)
        return self.timed[key]


def _places(offsets: tuple[Ints, ...], reads: Reads, blocks: int, line: int) -> list[int]:
    """The line at which each block begins to read: neighbours that begin in one line read the same lines."""
    lowest = None
    for at, _ in reads.boxes:
        values = offsets[at]
        first = np.min(values.reshape(-1, values.shape[-1]), axis=0)
        lowest = first if lowest is None else np.minimum(lowest, first)
    assert lowest is not None
    places: list[int] = np.broadcast_to(lowest * reads.size // line, (blocks,)).tolist()
    return places


def _reads(kernel: Kernel, device: Device, program: Program) -> list[Reads]:
    """Per argument what a body loads of it."""
    line = int(device.core["gm_line"].value)
    task = program.recording.tasks[kernel.task]
    size: dict[int, int] = {}
    places: dict[int, dict[int, Access]] = {}
    sizes: dict[int, int] = {}

    def walk(items: Items, times: int) -> None:
        for item in items:
            if isinstance(item, Repeat):
                walk(item.items, times * item.count)
                continue
            if item.plane != "load":
                continue
            for n, access in enumerate(item.accesses):
                dtype = program.recording.buffers[task.arguments[access.argument].buffer].dtype
                sizes[access.argument] = BY_NAME[dtype].bytes
                moved = line_bytes(access, sizes[access.argument], line) * times
                size[access.argument] = size.get(access.argument, 0) + moved
                places.setdefault(access.argument, {})[item.first_access + n] = access

    walk(kernel.lowered.items, 1)
    return [Reads(argument, size[argument], tuple(places[argument].items()), sizes[argument]) for argument in size]
