"""From a checked program to what the chip runs: kinds of blocks timed at every slow-down of the memory, job, machine.

What a block finds in L2: boxes of GM by last use, in the order of submission. Tensors that take little of L2 count as a
whole; of larger ones (weights, caches) every box that a block reads is one entry. An entry that was not touched since
more bytes than L2 holds passed through comes from HBM; a line read again, or by a row beside, comes from L2. Blocks
that meet at barriers are a kind per launch: a phase takes as long as it takes the slowest of the launch's blocks.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod

import numpy as np
import numpy.typing as npt

from npuscope.chip.devices import Device
from npuscope.lower.model import Items, Repeat
from npuscope.lower.program import PlannedBody, PlannedKey, Program, planned_key
from npuscope.lower.rings import RingEntry, entries_of, limits_of
from npuscope.ops.dtypes import BY_NAME
from npuscope.tile.graph.exact import once
from npuscope.tile.record.model import Access, BlockGroup, Recording, Task
from npuscope.time.chip.host_graph import host_graph_job, host_graph_machine, mode_of
from npuscope.time.chip.job import (
    AIC,
    AIV,
    ENDLESS,
    MIX,
    NO_STOPS,
    NONE,
    SLOW,
    Floats,
    Ints,
    Job,
    Machine,
    Rings,
    Stops,
    rings_with,
)
from npuscope.time.core.costs import NS, line_bytes, link_constant, link_rate, links_of, spans_of
from npuscope.time.core.pipes import Timing, time_ways
from npuscope.time.core.stream import CachedStreams, InstructionStream, KnownReads, Message, fresh_lines, stream_of

Flags = npt.NDArray[np.bool_]
SHAPE = {"MIX": MIX, "AIC": AIC, "AIV": AIV, "none": NONE}


COSTS = {  # constants of the device file -> fields of the machine, in nanoseconds
    "poll_core": "poll",
    "dispatch_block": "dispatch",
    "dispatch_turn": "dispatch_turn",
    "complete_block": "complete",
    "complete_turn": "complete_turn",
    "resolve_edge": "resolve",
    "visible": "visible",
    "fin_visible": "fin",
    "pickup": "pickup",
    "pickup_first": "pickup_first",
    "switch": "switch",
    "early_stage": "stage",
    "dummy": "dummy",
    "idle_loop": "loop",
    "release_entry": "release",
}
HOSTED = {  # the same of a runtime whose graph the host builds
    "attach": "attach",
    "scan_task": "scan",
    "settle_task": "settle",
    "expand_node": "expand",
}


@dataclass(frozen=True)
class Prepared:
    """A program ready to run on the chip as often as one likes."""

    program: Program
    classes: BlockClasses
    job: Job
    machine: Machine
    messages: tuple[Message, ...] = ()  # of every stop of the job's blocks
    peers: Peers | None = None  # the ranks that it runs together with

    def kind_of(self, number: int) -> BlockKind:
        """The kind of block that a class of the job is of; with noise a kind has several classes, side by side."""
        return self._kinds[number // (len(self.job.run) // len(self._kinds))]

    @cached_property
    def _kinds(self) -> list[BlockKind]:
        return self.classes.entries

    @cached_property
    def communicates(self) -> Flags:
        """Of each task whether it is communication: it tells other ranks something, waits for them or moves data from
        or to them, and multiplies nothing. One that sends its own products is compute."""
        job, place = self.job, self.program.recording.place
        found = np.zeros(len(job.shape), bool)
        exchanges = [one.exchanges(-1 if place is None else place.rank) for one in self.classes.streams]
        if any(exchanges):
            of_class = np.array([exchanges[self.kind_of(n)[0]] for n in range(len(job.run))])
            found[job.task_of[of_class[job.block_class]]] = True
        return found


@dataclass(frozen=True)
class Peers:
    """The programs of all ranks in order, and which of them a `Prepared` is: rank and program."""

    ranks: tuple[tuple[Prepared, ...], ...]
    own: tuple[int, int]
    skew: float  # nanoseconds
    between: float

    @property
    def prepared(self) -> Prepared:
        rank, number = self.own
        return self.ranks[rank][number]


def prepare(program: Program) -> Prepared:
    tasks = program.recording.tasks
    classes = BlockClasses(program)
    blocks = [classes.of(task) if task.groups else np.zeros(0, np.int64) for task in tasks]
    counts = np.array([len(one) for one in blocks], np.int64)
    run, draws = classes.tables() if classes.entries else (np.ones((1, len(SLOW))), np.zeros((1, len(SLOW))))
    edges = sorted({(edge.src, edge.dst) for edge in program.graph.edges if edge.src >= 0})
    source = np.array([src for src, _ in edges], np.int64)
    target = np.array([dst for _, dst in edges], np.int64)
    producers = np.bincount(target, minlength=len(tasks)).astype(np.int64) if edges else np.zeros(len(tasks), np.int64)
    submit = np.sum(list(submit_costs(program, producers).values()), axis=0)
    job = Job(
        shape=np.array([SHAPE[t.core] if len(b) else NONE for t, b in zip(tasks, blocks, strict=True)], np.int64),
        blocks=counts,
        first_block=np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.int64),
        block_class=np.concatenate(blocks) if len(blocks) else np.zeros(0, np.int64),
        task_of=np.repeat(np.arange(len(tasks), dtype=np.int64), counts),
        producers=producers,
        first_out=np.searchsorted(source, np.arange(len(tasks) + 1)).astype(np.int64),
        out=target,
        submit=submit,
        early=np.array([int(task.early) for task in tasks], np.int64),
        together=np.array([int(task.sync_start) for task in tasks], np.int64),
        waits_host=_host_waits(program.recording),
        run=run,
        draws=draws,
        rings=rings_of(program, edges),
    )
    job, machine = _scheduled(program, job)
    stops, messages = stops_of(classes, job)
    return Prepared(program, classes, job._replace(stops=stops), machine, messages)


def _scheduled(program: Program, job: Job) -> tuple[Job, Machine]:
    """The job and the machine under the device's runtime."""
    machine = machine_of(program.device)
    if not machine.hosted:
        return job, machine
    job = host_graph_job(program, job)
    return job, host_graph_machine(machine, mode_of(program, job))


def stops_of(classes: BlockClasses, job: Job) -> tuple[Stops, tuple[Message, ...]]:
    """Where blocks talk to other ranks, and what they say. Alone on a chip nobody waits for anybody.

    What makes a block longer than its instructions, links and barriers, comes before and after its stops by their share
    of the block: nobody is told of data that are on their way.
    """
    found = [classes.streams[stream].stops for stream, _ in classes.entries]
    counts = np.array([len(one) for one in found], np.int64)[job.block_class] if found else np.zeros(0, np.int64)
    if not np.any(counts):
        return NO_STOPS, ()
    start = classes.device.timing["block_start"].value * NS
    share = {
        number: np.array([(timing.stops + start) / (timing.duration + start) for timing in classes.timed[kind]])
        for number, kind in enumerate(classes.entries)
        if found[number]
    }
    rows = [number for number in job.block_class.tolist() if found[number]]
    first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    shares = np.minimum(np.concatenate([share[number].T for number in rows]), 1.0)
    messages = tuple(message for number in rows for message in found[number])
    deferred = np.array([one.deferred for one in messages], np.int64)
    return Stops(first, shares, np.zeros(len(shares)), deferred), messages


def retimed(prepared: Prepared, device: Device) -> Prepared:
    """The program with other constants of time. Blocks are timed anew only where a constant of theirs differs."""
    program = prepared.program.with_timing(device)
    job, classes = prepared.job, prepared.classes
    if not prepared.machine.hosted:
        job = job._replace(submit=np.sum(list(submit_costs(program, job.producers).values()), axis=0))
    if classes.entries and _of_blocks(device) != _of_blocks(prepared.program.device):
        classes = classes.retimed(program)
        run, draws = classes.tables()
        job = job._replace(run=run, draws=draws)
        job = job._replace(stops=stops_of(classes, job)[0])
    machine = machine_of(device)
    if machine.hosted:
        machine = host_graph_machine(machine, mode_of(program, job))
    return replace(prepared, program=program, classes=classes, job=job, machine=machine)


def _of_blocks(device: Device) -> tuple[object, ...]:
    """Constants that a block's time depends on; the others are the machine's and the orchestrator's."""
    others = {"hbm_rate", "fill_rate", *COSTS, *HOSTED}
    timing = {
        name: constant.value
        for name, constant in device.timing.items()
        if name not in others and not name.startswith("submit_")
    }
    return timing, device.core, device.op, device.reduce


def submit_costs(program: Program, producers: Ints) -> dict[str, Floats]:
    """What each constant of the orchestrator takes of every task's submission, in nanoseconds."""
    timing, tasks = program.device.timing, program.recording.tasks
    filled = np.zeros(len(tasks))  # bytes that the orchestrator fills before it goes on to the task
    for buffer in program.recording.buffers:
        if buffer.filled and buffer.before_task < len(tasks):
            filled[buffer.before_task] += BY_NAME[buffer.dtype].size(prod(buffer.shape))
    # in a manual scope nothing is looked up and nothing remembered
    share = np.array([timing["submit_manual"].value if task.manual_scope else 1.0 for task in tasks])
    return {
        "submit_base": timing["submit_base"].value * NS * share,
        "submit_argument": timing["submit_argument"].value * NS * share * [len(task.arguments) for task in tasks],
        "submit_edge": timing["submit_edge"].value * NS * share * producers,
        "fill_rate": filled / timing["fill_rate"].value * NS,
    }


def machine_of(device: Device) -> Machine:
    """The chip's constants in nanoseconds."""
    ns = {name: constant.value * NS for name, constant in device.timing.items()}
    flags = {name: int(device.runtime[name].value) for name in ("hosted", "resolver") if name in device.runtime}
    return Machine(
        clusters=int(device.cores.cube.value),
        threads=int(device.runtime["scheduler_threads"].value),
        limit=device.timing["hbm_rate"].value / NS,
        **{field: ns[name] for name, field in COSTS.items()},  # type: ignore[arg-type]
        **{field: ns[name] for name, field in HOSTED.items() if name in ns},  # type: ignore[arg-type]
        **flags,
    )


def _host_waits(recording: Recording) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """For each task the last writer of what the orchestration read before it submitted the task."""
    waits = np.full(len(recording.tasks), -1, np.int64)
    for read in recording.host_reads:
        writers = [
            task.id
            for task in recording.tasks[: read.before_task]
            if any(argument.writes and argument.buffer == read.buffer for argument in task.arguments)
        ]
        if writers and read.before_task < len(waits):
            waits[read.before_task] = max(waits[read.before_task], writers[-1])
    return waits


STEPS = 64  # shares of a block's bytes that come from HBM are told apart in so many steps
BlockKind = tuple[int, int]  # stream, share of HBM
Meeting = frozenset[BlockKind]  # kinds of a launch that meet at barriers; empty where there are none


@dataclass(frozen=True)
class ArgumentReads:
    """What a body reads of each argument, in bytes of whole lines, and which offsets tell where."""

    argument: int
    bytes: int
    boxes: tuple[tuple[int, Access], ...]
    size: float  # bytes of an element
    bypass: bool = False  # every read goes past L2


@dataclass
class BlockClasses:
    """Classes found so far; `of` gives the class of each block of a task in order."""

    program: Program
    known: dict[tuple[BlockKind, Meeting, int], int] = field(default_factory=dict)  # with its crowd -> class
    streams: list[InstructionStream] = field(default_factory=list)
    timed: dict[BlockKind, list[Timing]] = field(default_factory=dict)  # at every slow-down; the first is none

    def __post_init__(self) -> None:
        self.device: Device = self.program.device
        self._kept = CachedStreams(self.device)
        self._numbers: dict[tuple[PlannedKey, frozenset[int]], int] = {}  # a body that reads what these arguments made
        self._reads: list[tuple[ArgumentReads, ...]] = []
        self._known: list[KnownReads] = []
        self._written: set[int] = set()  # buffers that tasks so far have written, in whole or in part
        self._wholes = {alias.part: alias.whole for alias in self.program.recording.aliases}
        size = self.device.memory.l2.value if self.device.memory.l2 else 0.0
        self._cache = Cache(size)
        self._whole = size * SMALL
        self._line = int(self.device.core["gm_line"].value)
        self._distinct: dict[tuple[int, int], int] = {}

    @property
    def entries(self) -> list[BlockKind]:
        """The kind of every class."""
        return [kind for kind, _, _ in self.known]

    def stream(self, task: Task, group: BlockGroup) -> int:
        key = planned_key(task, group.body)
        arguments = enumerate(task.arguments if task.core != "AIV" else ())  # it matters for what the cube loads
        made = frozenset(n for n, argument in arguments if argument.buffer in self._written)
        if (key, made) not in self._numbers:
            body = self.program.planned[key]
            self._numbers[key, made] = len(self.streams)
            buffers = (self.program.recording.buffers[argument.buffer] for argument in task.arguments)
            sizes = [BY_NAME[buffer.dtype].width for buffer in buffers]
            line = int(self.device.core["scalar_line"].value)
            self._known.append(KnownReads(fresh_lines(body.lowered, group.offsets, sizes, line), made))
            self.streams.append(self._kept.stream(self.program.runs(key), self._known[-1]))
            self._reads.append(tuple(_reads(body, self.program)))
        return self._numbers[key, made]

    def of(self, task: Task) -> Ints:
        """The class of every block, in the order of blocks."""
        kinds: dict[int, BlockKind] = {}
        for group in task.groups:
            number = self.stream(task, group)
            total = sum(reads.bytes for reads in self._reads[number])
            missed = np.zeros(len(group.blocks))
            for reads in self._reads[number]:
                if reads.bypass:
                    missed += reads.bytes
                    continue
                once = self._once(number, reads, group)
                buffer = self.program.recording.buffers[task.arguments[reads.argument].buffer]
                whole = BY_NAME[buffer.dtype].size(prod(buffer.shape))
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
            for number in self._with_wholes(argument.buffer) if argument.writes else ():
                buffer = self.program.recording.buffers[number]
                self._cache.touch(number, min(BY_NAME[buffer.dtype].size(prod(buffer.shape)), self._whole))
                self._written.add(number)
        meets = any(self.streams[stream].barriers for stream, _ in kinds.values())
        meeting = frozenset(kinds.values() if meets else ())
        found = np.zeros(max(task.blocks, 1), np.int64)
        far = sum(self.streams[stream].remote > 0 for stream, _ in kinds.values())
        crowd = min(far, int(self.device.cores.vector.value))  # blocks that talk to other ranks side by side
        for at, kind in kinds.items():
            talks = crowd if self.streams[kind[0]].remote else 0
            found[at] = self.known.setdefault((kind, meeting, talks), len(self.known))
        return found

    def _with_wholes(self, buffer: int) -> set[int]:
        """A buffer and what it is a part of."""
        found: set[int] = set()
        while buffer not in found:
            found.add(buffer)
            buffer = self._wholes.get(buffer, buffer)
        return found

    def retimed(self, program: Program) -> BlockClasses:
        """The same with other constants of [timing], which decide neither the kinds of blocks nor what L2 has."""
        other = BlockClasses(program, self.known)
        other._numbers, other._known = self._numbers, self._known
        bodies = zip(self._numbers, self._known, strict=True)
        other.streams = [stream_of(program.runs(key), program.device, known) for (key, _), known in bodies]
        return other

    def stream_on(self, number: int, device: Device) -> InstructionStream:
        """A stream with other constants."""
        key = next(key for (key, _), at in self._numbers.items() if at == number)
        return stream_of(self.program.runs(key), device, self._known[number])

    def _once(self, number: int, reads: ArgumentReads, group: BlockGroup) -> int:
        """Bytes of the lines that a block of this kind reads of an argument, each line once."""
        key = (number, reads.argument)
        if key not in self._distinct:
            boxes = [(access, group.offsets[at][..., 0]) for at, access in reads.boxes]
            self._distinct[key] = min(distinct_lines(boxes, reads.size, self._line) * self._line, reads.bytes)
        return self._distinct[key]

    def tables(self) -> tuple[Floats, Floats]:
        """`run` and `draws` of every class: each kind at every slow-down of HBM, of which a block feels its share."""
        shares: dict[int, list[int]] = defaultdict(list)
        for stream, share in dict.fromkeys(self.entries):
            shares[stream].append(share)
        for stream, found in shares.items():  # all kinds of a stream at once
            share_of = np.repeat(np.array(found) / STEPS, len(SLOW))
            timings = time_ways(self.streams[stream], np.tile(SLOW, len(found)), share_of)
            for n, share in enumerate(found):
                self.timed[stream, share] = timings[n * len(SLOW) : (n + 1) * len(SLOW)]
        start = self.device.timing["block_start"].value * NS
        run, draws = np.zeros((len(self.known), len(SLOW))), np.zeros((len(self.known), len(SLOW)))
        for (kind, meeting, crowd), number in self.known.items():
            stream, share = kind
            least = crowd * self._least_on_links(self.streams[stream]) if crowd else 0.0
            for n, timing in enumerate(self.timed[kind]):
                waited = self._waited(kind, meeting, n) if meeting else 0.0
                run[number, n] = max(timing.duration, least) + waited + start
                draws[number, n] = self.streams[stream].drawn * share / STEPS / run[number, n]
        return run, draws

    def _least_on_links(self, stream: InstructionStream) -> float:
        """A rank's cores together get through so many transfers and bytes: what a block alone would take of that."""
        place = self.program.recording.place
        rate = link_rate(links_of(self.device), 2 if place is None else place.ranks)
        return max(stream.remote / link_constant(self.device, "remote_issue"), stream.remote_bytes / rate)

    def parts(self) -> Floats:
        """Of the run of every class, the share that the cube core and each of two vector cores work.

        Where the tiles of a mixed block are not split, its second vector core has nothing to do and leaves at once.
        """
        start = self.device.timing["block_start"].value * NS
        split = {number: bool(key[2]) for (key, _), number in self._numbers.items()}
        found = np.ones((len(self.entries), 3))
        for number, kind in enumerate(self.entries):
            timing = self.timed[kind][0]
            second = timing.vector if split[kind[0]] else 0.0
            found[number] = (np.array([timing.cube, timing.vector, second]) + start) / (timing.duration + start)
        return found

    def _waited(self, kind: BlockKind, meeting: Meeting, slow: int) -> float:
        """How long a block waits at its barriers for the slowest of the launch, phase by phase."""
        phases = [np.diff(self.timed[one][slow].met, prepend=0.0) for one in sorted(meeting)]
        own = np.diff(self.timed[kind][slow].met, prepend=0.0)
        return float(np.sum(np.max(phases, axis=0) - own))


def _places(offsets: tuple[Ints, ...], reads: ArgumentReads, blocks: int, line: int) -> list[int]:
    """The line at which each block begins to read: neighbours that begin in one line read the same lines."""
    first = [np.min(offsets[at].reshape(-1, offsets[at].shape[-1]), axis=0) for at, _ in reads.boxes]
    lowest = np.min(np.broadcast_arrays(*first), axis=0)
    places: list[int] = np.broadcast_to(lowest * reads.size // line, (blocks,)).tolist()
    return places


def _reads(body: PlannedBody, program: Program) -> list[ArgumentReads]:
    """Per argument what a body loads of it or adds to."""
    line = int(program.device.core["gm_line"].value)
    arguments, buffers = program.recording.tasks[body.task].arguments, program.recording.buffers
    moved: Counter[int] = Counter()
    cached: set[int] = set()
    places: dict[int, dict[int, Access]] = defaultdict(dict)
    size = [BY_NAME[buffers[argument.buffer].dtype].width for argument in arguments]

    def walk(items: Items, times: int) -> None:
        for item in items:
            if isinstance(item, Repeat):
                walk(item.items, times * item.count)
                continue
            for n, access in enumerate(item.accesses):
                if item.plane == "load" or (item.plane == "store" and access.mode == "add"):
                    moved[access.argument] += line_bytes(access, size[access.argument], line) * times
                    places[access.argument][item.first_access + n] = access
                    if ("cache", "bypass") not in item.attributes:
                        cached.add(access.argument)

    walk(body.lowered.items, 1)
    return [ArgumentReads(at, moved[at], tuple(places[at].items()), size[at], at not in cached) for at in moved]


MOST = 1 << 21  # spans that are looked at one by one; of more, an even sample


def distinct_lines(boxes: Sequence[tuple[Access, Ints]], size: float, line: int) -> int:
    """How many lines lie under boxes of elements of `size` bytes, each box at all its offsets, counted once."""
    found: list[Ints] = []
    share = 1.0
    for access, offsets in boxes:
        span, outer = spans_of(access)
        starts = once(offsets.reshape(-1))
        for extent, stride in outer:
            starts = once((starts[:, None] + np.arange(extent, dtype=np.int64) * stride).reshape(-1))
            if len(starts) > MOST:
                step = -(-len(starts) // MOST)
                starts, share = starts[::step], share * step
        first = (starts * size // line).astype(np.int64, copy=False)
        last = (-(-(starts + span) * size // line) - 1).astype(np.int64, copy=False)
        reach = np.arange(int(np.max(last - first)) + 1, dtype=np.int64)
        lines = first[:, None] + reach
        found.append(lines[lines <= last[:, None]])
    return round(len(once(np.concatenate(found))) * share) if found else 0


SMALL = 1 / 16  # of L2: a tensor below it counts as a whole


class Cache:
    """Entries by last use, up to a number of bytes."""

    def __init__(self, size: float) -> None:
        self.size = size
        self.held = 0.0
        self._entries: OrderedDict[Hashable, float] = OrderedDict()

    def touch(self, key: Hashable, size: float) -> bool:
        """Whether it was there; afterwards it is."""
        known = self._entries.pop(key, None)
        self._entries[key] = size
        self.held += size - (known or 0.0)
        while self.held > self.size and len(self._entries) > 1:
            _, gone = self._entries.popitem(last=False)
            self.held -= gone
        return known is not None


ORDERS = ("raw", "waw")  # origins of edges that the tensor map finds


def rings_of(program: Program, edges: Iterable[tuple[int, int]]) -> Rings:
    """A task keeps its own entry, those of its producers and of the allocations that it uses until it is done. Where
    what the tensor map finds only orders, of its producers those that made a tensor of it or that it names."""
    slots, heap = limits_of(program, "task_window"), limits_of(program, "heap")
    entries = list(entries_of(program)) if slots and heap else []
    if not entries:
        return ENDLESS
    tasks = program.recording.tasks
    own = {entry.task: n for n, entry in enumerate(entries) if entry.is_task}
    maker = {buffer: n for n, entry in enumerate(entries) for buffer in entry.buffers}
    uses: list[set[int]] = [
        {maker[argument.buffer] for argument in task.arguments if argument.buffer in maker} for task in tasks
    ]
    if "ordering_edges" in program.device.runtime:
        edges = ((edge.src, edge.dst) for edge in program.graph.edges if edge.src >= 0 and edge.origin not in ORDERS)
    for producer, consumer in edges:
        uses[consumer].add(own[producer])
    rows = [[entry.ring for entry in entries], [entry.bytes for entry in entries], _closes(entries)]
    first = [0, *(own[task.id] + 1 for task in tasks)]
    return rings_with(first, np.array(rows, np.int64), uses, np.array([slots, heap], np.int64))


def _closes(entries: list[RingEntry]) -> Ints:
    """The first task that is submitted after the scope of each entry has closed; the runtime's own never does."""
    last: dict[tuple[Hashable, ...], int] = {}
    for entry in entries:
        for depth in range(1, len(entry.path) + 1):
            last[entry.path[:depth]] = entry.task + entry.is_task
    tasks = sum(entry.is_task for entry in entries)
    return np.array([last[entry.path] if entry.ring else tasks for entry in entries], np.int64)
