"""Writes a run down: tasks, blocks, ops, GM accesses. Knows nothing of values.

Ops are interned: equal ops (name, line, operands' origins, shapes, accesses) are one number, a loop of equal turns is
one number, so a block's structure is a short tuple and equal blocks are found by comparing tuples. When the run has
ended `recording_of` makes plain data of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from operator import index
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from npuscope.base import progress
from npuscope.base.errors import NpuscopeError
from npuscope.ops.spec import Plane
from npuscope.tile.record import sites
from npuscope.tile.record.model import (
    Access,
    AccessMode,
    Alias,
    Argument,
    BlockGroup,
    Body,
    Buffer,
    Core,
    Direction,
    Form,
    Half,
    HostRead,
    Loop,
    Mode,
    Notice,
    Op,
    RankPlace,
    Recording,
    Ref,
    RegionLoopKind,
    RingSizes,
    Scope,
    Segment,
    Task,
    TileType,
    Turn,
)
from npuscope.tile.record.walk import ops_of, windowed

MOST_TASKS = 1 << 20  # a few kilobytes each; 40 layers of a decode step have 17,000
RINGS = 4
MOST = 1 << 48  # bytes or slots: more than any machine has, and sums of it can be counted
RUNTIME = "runtime kind"  # which runtime a run is for: said by its compiler's settings, not by those of the run
PLATFORM = "platform"
NAMES = {"heap": "ring_heap", "task_window": "ring_task_window", "dep_pool": "ring_dep_pool"}
_given: ContextVar[Mapping[str, Any]] = ContextVar("ring sizes", default=MappingProxyType({}))
Numbers = npt.NDArray[np.int64]
Factors = tuple[int, ...]  # of each whole number that a task was given
Shape = tuple[int, ...]
TensorKey = tuple[int, int, Shape, Shape]  # buffer, offset, shape, strides: what a task knows an argument by
AccessKey = tuple[int, AccessMode, Shape, Shape]  # argument, mode, box, strides
TileKey = tuple[Shape, str, Shape | None, str | None]  # shape, type, valid part, space
OperandKey = tuple[int, ...] | str | None  # up, back, path of record.model.Ref; "scalar"; nothing
Attributes = tuple[tuple[str, object], ...]
# What an op is recorded by: name, plane, site, operands, result, accesses, attributes, FLOPs.
OpKey = tuple[
    Literal["op"], str, Plane, int, tuple[OperandKey, ...], TileKey | None, tuple[AccessKey, ...], Attributes, int
]
Items = tuple[int, ...]  # numbers of interned ops and loops
LoopKey = tuple[Literal["loop"], RegionLoopKind, int, int, tuple[tuple[int, Items], ...]]  # kind, stage, site, segments
BodyKey = tuple[Items, Items]  # prologue, the rest


class Recorder:
    """One run's record, built up call by call."""

    def __init__(self, program: str, mode: Mode) -> None:
        self.program, self.mode = program, mode
        self.buffers: list[Buffer] = []
        self.tasks: list[TaskDraft] = []
        self.aliases: list[Alias] = []
        self.host_reads: list[HostRead] = []
        self.notices: dict[tuple[str, int, str], tuple[int, int]] = {}  # how often, and bytes
        self.notice_count = 0  # each time one came up
        self.notes: list[str] = []
        self.turns: list[Turn] = []
        self.scopes: list[Scope] = []
        self.auto_scope = True
        self.place: RankPlace | None = None
        self.layers: list[str] = []
        self.graph = ""  # the call of a recorded graph that is open
        self._scope_count = 0
        self._numbers: dict[OpKey | LoopKey, int] = {}
        self._keys: list[OpKey | LoopKey] = []
        self._arguments: dict[int, list[int]] = {}  # of an op or loop: the argument of each access

    # --- tasks and blocks

    def open_task(self, kernel: str, blocks: int, form: Form, launch: Launch) -> TaskDraft:
        launch.turns, launch.scopes = tuple(self.turns), tuple(self.scopes)
        launch.layer, launch.graph = self.layers[-1] if self.layers else "", self.graph
        site = sites.here()
        if len(self.tasks) >= MOST_TASKS:
            place = sites.site(site)
            about = f"more than {MOST_TASKS:,} tasks: npuscope records no more of one run"
            raise NpuscopeError(about, path=place.file, line=place.line)
        task = TaskDraft(len(self.tasks), kernel, site, blocks, form, launch)
        self.tasks.append(task)
        if len(self.tasks) % 32 == 0:
            progress.report(f"{self.program}: tasks", len(self.tasks), 0)
        return task

    def open_scope(self, manual: bool) -> None:
        self.scopes.append(Scope(self._scope_count, manual, len(self.turns)))
        self._scope_count += 1

    def close_block(self, block: BlockDraft, count: int) -> None:
        """Ends a block that stood for `count` blocks, `block.first` and those after it."""
        block.root.open = False
        key = (tuple(block.prologue), tuple(block.root.items))
        numbers, rolled = block.task.groups.setdefault(key, ([], Rolled(key[1])))
        numbers.extend(range(block.first, block.first + count))
        rolled.counts.append(count)
        rolled.offsets.append(block.prologue_offsets + block.root.offsets)

    # --- ops

    def number(self, key: OpKey | LoopKey) -> int:
        """The number of an op or loop with this structure."""
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self._keys)
            self._keys.append(key)
        return found

    def key(self, number: int) -> OpKey | LoopKey:
        """What `number` counted."""
        return self._keys[number]

    def arguments_of(self, body: BodyKey) -> list[int]:
        """The argument of each access of a block, in the order of its offsets."""
        return [number for part in body for item in part for number in self._arguments_of(item)]

    def _arguments_of(self, item: int) -> list[int]:
        found = self._arguments.get(item)
        if found is None:
            key = self._keys[item]
            if key[0] == "loop":
                found = [number for _, items in key[4] for item in items for number in self._arguments_of(item)]
            else:
                found = [access[0] for access in key[6]]
            self._arguments[item] = found
        return found

    def close_loop(self, frame: Frame, block: BlockDraft) -> None:
        """Ends a loop: it becomes one item of its parent."""
        frame.open = False
        parent = frame.parent
        assert parent is not None
        assert frame.loop is not None
        block.frame = parent
        segments = tuple([(sum(rolled.counts), rolled.items) for rolled in frame.rolled if rolled.items])
        for rolled in frame.rolled:
            parent.offsets.extend(rolled.along(frame.depth))
        parent.items.append(self.number(("loop", *frame.loop, segments)))

    # --- what the user should know

    def notice(self, kind: str, message: str, site: int | None = None, bytes: int = 0) -> None:
        key = (kind, sites.here() if site is None else site, message)
        self.notice_count += 1
        count, so_far = self.notices.get(key, (0, 0))
        self.notices[key] = (count + 1, so_far + bytes)


# --- tasks and blocks under recording


@dataclass(slots=True)
class ArgumentDraft:
    """What is known so far of one captured tensor of a task."""

    key: TensorKey
    reads: bool = False
    writes: bool = False
    read_first: bool = False
    no_dep: bool = False
    declared: Direction | None = None

    def like(self, key: TensorKey) -> ArgumentDraft:
        """The same of another tensor."""
        return ArgumentDraft(key, self.reads, self.writes, self.read_first, self.no_dep, self.declared)


@dataclass
class Launch:
    """What the program says of a task where it launches it; see record.model.Task."""

    deps: tuple[int, ...] = ()
    manual_scope: bool = False
    early: bool = False
    sync_start: bool = False
    predicated: bool = False
    skipped: bool = False
    split: Half | Literal[""] = ""
    ring_slots: int = 0
    ring_bytes: tuple[int, int] = (0, 0)
    windowize: bool = False  # the runtime sees of its tensors only what it touches
    core: Core | None = None  # None: what it does decides
    turns: tuple[Turn, ...] = ()
    scopes: tuple[Scope, ...] = ()
    layer: str = ""
    graph: str = ""


class TaskDraft:
    """A task under recording."""

    def __init__(self, id: int, kernel: str, site: int, blocks: int, form: Form, launch: Launch) -> None:
        self.id, self.kernel, self.site, self.blocks, self.form, self.launch = id, kernel, site, blocks, form, launch
        self.arguments: list[ArgumentDraft] = []
        self.groups: dict[BodyKey, tuple[list[int], Rolled]] = {}
        self.computes = False  # shapes mode: whether it belongs to what steers the program
        self.declared: dict[int, Direction] = {}  # buffer -> direction in an incore function's signature
        self._by_tensor: dict[TensorKey, int] = {}

    def called(self, kernel: str) -> None:
        """A launch without a name is called after the kernel it dispatches."""
        if "_incore_" in self.kernel:
            self.kernel = kernel

    def argument(self, key: TensorKey) -> int:
        number = self._by_tensor.get(key)
        if number is None:
            number = self._by_tensor[key] = len(self.arguments)
            self.arguments.append(ArgumentDraft(key, declared=self.declared.get(key[0])))
        return number


class BlockDraft:
    """A block (or several of equal behaviour) under recording."""

    def __init__(self, task: TaskDraft, first: int) -> None:
        self.task, self.first = task, first
        self.root = self.frame = Frame(None)
        self.prologue: list[int] = []
        self.prologue_offsets: list[Offset] = []
        self.written: set[int] = set()  # arguments

    def written_buffer(self, buffer: int) -> bool:
        return any(self.task.arguments[number].key[0] == buffer for number in self.written)


class Moving(NamedTuple):
    """Offsets that follow the numbers a task was given: `ways` has the factors, several where not all do so alike."""

    at: int | Numbers
    ways: frozenset[Factors]


Offset = int | Numbers | Moving


@dataclass(slots=True)
class Rolled:
    """Consecutive iterations of equal structure: how many each time, and their offsets access by access."""

    items: tuple[int, ...]
    counts: list[int] = field(default_factory=list)
    offsets: list[list[Offset]] = field(default_factory=list)

    def along(self, depth: int) -> list[Offset]:
        """The offsets of each access over all iterations, the iteration on axis -1 - depth."""
        if len(self.offsets) == 1:  # the same in all iterations, or arrays that have an axis for them already
            return self.offsets[0]
        return [_joined([part[k] for part in self.offsets], self.counts, depth) for k in range(len(self.offsets[0]))]


def still(offset: Offset) -> int | Numbers:
    """Where something lies, whatever it follows."""
    return offset.at if isinstance(offset, Moving) else offset


def _joined(parts: list[Offset], counts: list[int], depth: int) -> Offset:
    joined = _in_one([still(part) for part in parts], counts, depth)
    ways = [part.ways if isinstance(part, Moving) else _STILL for part in parts]
    return Moving(joined, frozenset().union(*ways)) if any(way is not _STILL for way in ways) else joined


_STILL: frozenset[Factors] = frozenset([()])


def _in_one(parts: list[int | Numbers], counts: list[int], depth: int) -> Numbers:
    if all(type(part) is int for part in parts):
        joined = np.repeat(np.array(parts, dtype=np.int64), counts) if len(parts) < sum(counts) else np.array(parts)
        return joined.reshape(-1, *(1,) * depth)
    arrays = [np.asarray(part) for part in parts]
    ndim = max(depth + 1, *(array.ndim for array in arrays))
    arrays = [array.reshape((1,) * (ndim - array.ndim) + array.shape) for array in arrays]
    axis = ndim - 1 - depth
    # Lanes of the loops around may have been dropped between the parts: what all have is what is left.
    rest = [min([n for n in sizes if n > 1], default=1) for sizes in zip(*(a.shape for a in arrays), strict=True)]
    full = []
    for array, count in zip(arrays, counts, strict=True):
        left = array[tuple([slice(None) if k == axis else slice(n) for k, n in enumerate(rest)])]
        full.append(np.broadcast_to(left, (*rest[:axis], count, *rest[axis + 1 :])))
    return np.concatenate(full, axis=axis)


class Frame:
    """An open loop, or the block itself (depth 0)."""

    __slots__ = (
        "depth",
        "index",
        "items",
        "iteration",
        "loop",
        "offsets",
        "open",
        "parent",
        "parent_iteration",
        "rolled",
    )

    def __init__(self, parent: Frame | None, loop: tuple[RegionLoopKind, int, int] | None = None) -> None:
        self.parent = parent
        self.loop = loop  # its kind, stage, site
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.index = 0 if parent is None else len(parent.items)  # where the closed loop will stand in its parent
        self.parent_iteration: int = 0 if parent is None else parent.iteration
        self.iteration: int = 0
        self.open = True
        self.items: list[int] = []
        self.offsets: list[Offset] = []
        self.rolled: list[Rolled] = []

    def turn(self, count: int) -> None:
        """Closes `count` iterations that were recorded as one."""
        items = tuple(self.items)
        if not self.rolled or self.rolled[-1].items != items:
            self.rolled.append(Rolled(items))
        last = self.rolled[-1]
        last.counts.append(count)
        last.offsets.append(self.offsets)
        self.items, self.offsets = [], []
        self.iteration += 1


# --- the record when the run has ended


def recording_of(recorder: Recorder) -> Recording:
    """The finished record: keys become plain data, each once, with sites numbered by first use."""
    return _Finish(recorder).recording()


class _Finish:
    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._sites: dict[int, int] = {}
        self._items: dict[int, Op | Loop] = {}
        self._bodies: dict[BodyKey, int] = {}
        self._body_list: list[Body] = []
        self._planes: list[set[str]] = []  # of each body
        self._arguments: dict[int, tuple[Argument, ...]] = {}  # of lists that several tasks may share
        self._equal: dict[Argument, Argument] = {}
        self._blocks: dict[int, Numbers] = {}  # 0 to n - 1, by n

    def recording(self) -> Recording:
        rec = self.recorder
        return Recording(
            program=rec.program,
            mode=rec.mode,
            tasks=tuple([self._task(task) for task in rec.tasks]),
            bodies=tuple(self._body_list),
            buffers=tuple([replace(buffer, site=self._site(buffer.site)) for buffer in rec.buffers]),
            aliases=tuple([replace(alias, site=self._site(alias.site)) for alias in rec.aliases]),
            host_reads=tuple([replace(read, site=self._site(read.site)) for read in rec.host_reads]),
            notices=tuple([Notice(k, self._site(s), m, *counted) for (k, s, m), counted in rec.notices.items()]),
            notes=tuple(dict.fromkeys(rec.notes)),
            auto_scope=rec.auto_scope,
            rings=ring_sizes(),
            runtime=asked_runtime(),
            platform=str(_given.get().get(PLATFORM) or ""),
            place=rec.place,
            sites=tuple([sites.site(number) for number in self._sites]),
        )

    def _site(self, number: int) -> int:
        return self._sites.setdefault(number, len(self._sites))

    def _task(self, draft: TaskDraft) -> Task:
        groups = []
        planes: set[str] = set()
        for key, (blocks, rolled) in draft.groups.items():
            body = self._body(key)
            planes |= self._planes[body]
            groups.append(BlockGroup(body, self._numbers(blocks), tuple([_array(o) for o in rolled.along(0)])))
        arguments = self._arguments.get(id(draft.arguments))
        if arguments is None:
            arguments = self._arguments[id(draft.arguments)] = tuple([self._argument(a) for a in draft.arguments])
        if draft.launch.windowize:
            arguments = windowed(
                arguments, groups, self._body_list, alone=not (draft.launch.deps or draft.launch.early)
            )
        # Cube work, vector work or both decide which cores a task needs; copies and scalars run on a vector core.
        core: Core = "AIV" if "cube" not in planes else "MIX" if "vector" in planes else "AIC"
        options: dict[str, Any] = dict(vars(draft.launch))
        del options["windowize"]
        options["core"] = options["core"] or ("none" if draft.form == "dummy" else core)
        return Task(
            id=draft.id,
            kernel=draft.kernel,
            site=self._site(draft.site),
            blocks=draft.blocks,
            groups=tuple(groups),
            arguments=arguments,
            form=draft.form,
            **options,
        )

    def _numbers(self, blocks: list[int]) -> Numbers:
        """Most tasks have all their blocks alike: 0, 1, … up to the last."""
        count = len(blocks)
        if blocks != list(range(count)):
            return np.array(blocks, dtype=np.int64)
        if count not in self._blocks:
            self._blocks[count] = np.arange(count, dtype=np.int64)
        return self._blocks[count]

    def _argument(self, draft: ArgumentDraft) -> Argument:
        made = Argument(*draft.key, draft.reads, draft.writes, draft.declared, draft.no_dep)
        return self._equal.setdefault(made, made)

    def _body(self, key: BodyKey) -> int:
        number = self._bodies.get(key)
        if number is None:
            number = self._bodies[key] = len(self._body_list)
            prologue, items = self._all(key[0]), self._all(key[1])
            self._body_list.append(Body(tuple([op for op in prologue if isinstance(op, Op)]), items))
            self._planes.append({op.plane for op, _ in ops_of(Body((), items))})
        return number

    def _all(self, numbers: Sequence[int]) -> tuple[Op | Loop, ...]:
        return tuple([self._item(number) for number in numbers])

    def _item(self, number: int) -> Op | Loop:
        item = self._items.get(number)
        if item is None:
            key = self.recorder.key(number)
            item = self._items[number] = self._loop(key) if key[0] == "loop" else self._op(key)
        return item

    def _loop(self, key: LoopKey) -> Loop:
        _, kind, stage, site, segments = key
        return Loop(kind, stage, self._site(site), tuple([Segment(n, self._all(items)) for n, items in segments]))

    def _op(self, key: OpKey) -> Op:
        _, name, plane, site, operands, result, accesses, attributes, flops = key
        return Op(
            name,
            plane,
            self._site(site),
            tuple([Ref(x[0], x[1], x[2:]) if isinstance(x, tuple) else x for x in operands]),
            None if result is None else TileType(*result),
            tuple([Access(*access) for access in accesses]),
            attributes,
            flops,
        )


def _array(offset: Offset) -> Numbers:
    if isinstance(offset, np.ndarray) and offset.ndim and offset.dtype == np.int64:
        return offset
    return np.atleast_1d(np.asarray(still(offset), dtype=np.int64))


# --- sizes that a run asks for of the runtime's rings, over those of the device
#
# A script says so by `runtime_cfg={"ring_heap": ...}`, or by the environment variables PTO2_RING_HEAP,
# PTO2_RING_TASK_WINDOW and PTO2_RING_DEP_POOL (its own or the user's). A number is for every ring, a list has one for
# each; 0 leaves a ring as the device has it, and a single 0 of the script leaves it to the environment.


@contextmanager
def asked_for(runtime_cfg: Mapping[str, Any]) -> Iterator[None]:
    """What runs inside the block has these settings of its run."""
    known = (RUNTIME, PLATFORM, *NAMES.values())
    token = _given.set({**_given.get(), **{name: runtime_cfg[name] for name in known if name in runtime_cfg}})
    try:
        yield
    finally:
        _given.reset(token)


def asked_runtime() -> str:
    """The runtime that the run under way asks for; empty where it does not."""
    return str(_given.get().get(RUNTIME, ""))


def ring_sizes() -> RingSizes:
    """What the run under way asks for."""
    found = {}
    for size, name in NAMES.items():
        variable = f"PTO2_{name.upper()}"
        given = _given.get().get(name)
        found[size] = _sizes(given, name) if given else _sizes(os.environ.get(variable, ""), variable)
    return RingSizes(**found)


def _sizes(value: Any, name: str) -> tuple[int, ...]:
    parts: Sequence[Any] = [value]
    if isinstance(value, Sequence):
        parts = value.split(",") if isinstance(value, str) else value
    if parts == [""]:
        return ()
    try:
        sizes = tuple(int(part) if isinstance(part, str) else index(part) for part in parts)
    except (TypeError, ValueError):
        sizes = (-1,)
    if not 0 <= min(sizes) <= max(sizes) <= MOST or len(sizes) not in (1, RINGS):
        wanted = f"one size for all rings or {RINGS} sizes, whole numbers from 0 to {MOST:,}"
        raise NpuscopeError(f"{name} is {value!r}: it must be {wanted}")
    return sizes * RINGS if len(sizes) == 1 else sizes
