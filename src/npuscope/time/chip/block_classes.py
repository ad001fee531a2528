"""Kinds of blocks: bodies with what they find in L2, timed at every slow-down of the memory.

An atomic add reads what it adds to, so it counts as a read beside the write. Blocks that meet at barriers are a kind
per launch: a phase between two barriers takes as long as it takes the slowest of the launch's blocks.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from math import prod

import numpy as np

from npuscope.chip.devices.chip import Device
from npuscope.lower.model import Items, Repeat
from npuscope.lower.program import PlannedBody, PlannedKey, Program, planned_key
from npuscope.ops.dtypes import BY_NAME
from npuscope.tile.record.model import Access, BlockGroup, Task
from npuscope.time.chip.gm_lines import distinct_lines
from npuscope.time.chip.job import SLOW, Floats, Ints
from npuscope.time.chip.l2 import SMALL, Cache
from npuscope.time.core.costs import NS, line_bytes
from npuscope.time.core.kept_streams import KeptStreams
from npuscope.time.core.pipes import Timing, time_ways
from npuscope.time.core.scalar import fresh_lines
from npuscope.time.core.stream import Stream, stream_of

STEPS = 64  # shares of a block's bytes that come from HBM are told apart in so many steps
BlockKind = tuple[int, int]  # stream, share of HBM
Meeting = frozenset[BlockKind]  # kinds of a launch that meet at barriers; empty where there are none


@dataclass(frozen=True)
class Reads:
    """What a body reads of each argument, in bytes of whole lines, and which offsets tell where."""

    argument: int
    bytes: int
    boxes: tuple[tuple[int, Access], ...]
    size: int  # bytes of an element


@dataclass
class BlockClasses:
    """Classes found so far; `of` gives the class of each block of a task in order."""

    program: Program
    known: dict[tuple[BlockKind, Meeting], int] = field(default_factory=dict)  # -> class
    streams: list[Stream] = field(default_factory=list)
    timed: dict[BlockKind, list[Timing]] = field(default_factory=dict)  # at every slow-down; the first is none
    entries: list[BlockKind] = field(default_factory=list)
    meetings: list[Meeting] = field(default_factory=list)  # of each entry

    def __post_init__(self) -> None:
        self.device: Device = self.program.device
        self._kept = KeptStreams(self.device)
        self._numbers: dict[PlannedKey, int] = {}
        self._reads: list[tuple[Reads, ...]] = []
        self._fresh: list[dict[int, int]] = []
        size = self.device.memory.l2.value if self.device.memory.l2 else 0.0
        self._cache = Cache(size)
        self._whole = size * SMALL
        self._line = int(self.device.core["gm_line"].value)
        self._distinct: dict[tuple[int, int], int] = {}

    def stream(self, task: Task, group: BlockGroup) -> int:
        key = planned_key(task, group.body)
        if key not in self._numbers:
            body = self.program.planned[key]
            self._numbers[key] = len(self.streams)
            buffers = (self.program.recording.buffers[argument.buffer] for argument in task.arguments)
            sizes = [BY_NAME[buffer.dtype].bytes for buffer in buffers]
            line = int(self.device.core["scalar_line"].value)
            self._fresh.append(fresh_lines(body.lowered, group.offsets, sizes, line))
            self.streams.append(self._kept.stream(body, self._fresh[-1]))
            self._reads.append(tuple(_reads(body, self.program)))
        return self._numbers[key]

    def of(self, task: Task) -> Ints:
        """The class of every block, in the order of blocks."""
        kinds: dict[int, BlockKind] = {}
        for group in task.groups:
            number = self.stream(task, group)
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
                places = _places(group.offsets, reads, len(group.blocks), self._line)
                missing = {
                    place: once / readers  # who read the same lines at the same time share what is missing
                    for place, readers in Counter(places).items()
                    if not self._cache.touch((buffer.id, place, number, reads.argument), once)
                }
                missed += [missing.get(place, 0.0) for place in places]
            for n, at in enumerate(group.blocks.tolist()):
                kinds[at] = (number, round(STEPS * missed[n] / total) if total else 0)
        for argument in task.arguments:
            if argument.writes:
                buffer = self.program.recording.buffers[argument.buffer]
                self._cache.touch(buffer.id, min(prod(buffer.shape) * BY_NAME[buffer.dtype].bytes, self._whole))
        meets = any(self.streams[stream].barriers for stream, _ in kinds.values())
        meeting = frozenset(kinds.values() if meets else ())
        found = np.zeros(max(task.blocks, 1), np.int64)
        for at, kind in kinds.items():
            found[at] = self._class(kind, meeting)
        return found

    def retimed(self, program: Program) -> BlockClasses:
        """The same with other constants of [timing], which decide neither the kinds of blocks nor what L2 has."""
        other = BlockClasses(program, self.known, entries=self.entries, meetings=self.meetings)
        other._numbers, other._reads, other._fresh, other._distinct = (
            self._numbers, self._reads, self._fresh, self._distinct,
        )  # fmt: skip
        bodies = zip(self._numbers, self._fresh, strict=True)
        other.streams = [stream_of(program.planned[key], program.device, fresh) for key, fresh in bodies]
        return other

    def _once(self, number: int, reads: Reads, group: BlockGroup) -> int:
        """Bytes of the lines that a block of this kind reads of an argument, each line once."""
        key = (number, reads.argument)
        if key not in self._distinct:
            boxes = [(access, group.offsets[at][..., 0]) for at, access in reads.boxes]
            self._distinct[key] = min(distinct_lines(boxes, reads.size, self._line) * self._line, reads.bytes)
        return self._distinct[key]

    def _class(self, kind: BlockKind, meeting: Meeting) -> int:
        key = (kind, meeting)
        if key not in self.known:
            self.known[key] = len(self.entries)
            self.entries.append(kind)
            self.meetings.append(meeting)
        return self.known[key]

    def tables(self) -> tuple[Floats, Floats]:
        """`run` and `draws` of every class."""
        self._time()
        start = self.device.timing["block_start"].value * NS
        run, draws = np.zeros((len(self.entries), len(SLOW))), np.zeros((len(self.entries), len(SLOW)))
        for number, (kind, meeting) in enumerate(zip(self.entries, self.meetings, strict=True)):
            stream, share = kind
            for n, timing in enumerate(self.timed[kind]):
                waited = self._waited(kind, meeting, n) if meeting else 0.0
                run[number, n] = timing.duration + waited + start
                draws[number, n] = self.streams[stream].drawn * share / STEPS / run[number, n]
        return run, draws

    def _time(self) -> None:
        """Every kind at every slow-down of HBM, of which a block feels its share; all kinds of a stream at once."""
        shares: dict[int, list[int]] = defaultdict(list)
        for stream, share in dict.fromkeys(self.entries):
            shares[stream].append(share)
        for stream, found in shares.items():
            share_of = np.repeat(np.array(found) / STEPS, len(SLOW))
            timings = time_ways(self.streams[stream], np.tile(SLOW, len(found)), share_of)
            for n, share in enumerate(found):
                self.timed[stream, share] = timings[n * len(SLOW) : (n + 1) * len(SLOW)]

    def parts(self) -> Floats:
        """Of the run of every class, the share that the cube core and each of two vector cores work.

        Where the tiles of a mixed block are not split, its second vector core has nothing to do and leaves at once.
        """
        start = self.device.timing["block_start"].value * NS
        split = {number: bool(key[2]) for key, number in self._numbers.items()}
        found = np.ones((len(self.entries), 3))
        for number, kind in enumerate(self.entries):
            timing = self.timed[kind][0]
            second = timing.vector if split[kind[0]] else 0.0
            found[number] = [
                (part + start) / (timing.duration + start) for part in (timing.cube, timing.vector, second)
            ]
        return found

    def _waited(self, kind: BlockKind, meeting: Meeting, slow: int) -> float:
        """How long a block waits at its barriers for the slowest of the launch, phase by phase."""
        phases = [np.diff(self.timed[one][slow].met, prepend=0.0) for one in sorted(meeting)]
        own = np.diff(self.timed[kind][slow].met, prepend=0.0)
        return float(np.sum(np.max(phases, axis=0) - own))


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


def _reads(body: PlannedBody, program: Program) -> list[Reads]:
    """Per argument what a body loads of it or adds to."""
    line = int(program.device.core["gm_line"].value)
    task = program.recording.tasks[body.task]
    size: dict[int, int] = {}
    places: dict[int, dict[int, Access]] = {}
    sizes: dict[int, int] = {}

    def walk(items: Items, times: int) -> None:
        for item in items:
            if isinstance(item, Repeat):
                walk(item.items, times * item.count)
                continue
            for n, access in enumerate(item.accesses):
                if item.plane != "load" and (item.plane != "store" or access.mode != "add"):
                    continue
                dtype = program.recording.buffers[task.arguments[access.argument].buffer].dtype
                sizes[access.argument] = BY_NAME[dtype].bytes
                moved = line_bytes(access, sizes[access.argument], line) * times
                size[access.argument] = size.get(access.argument, 0) + moved
                places.setdefault(access.argument, {})[item.first_access + n] = access

    walk(body.lowered.items, 1)
    return [Reads(argument, size[argument], tuple(places[argument].items()), sizes[argument]) for argument in size]
