"""Writes a run down: tasks, blocks, ops, GM accesses. Knows nothing of values.

Ops are interned: equal ops (name, place, operands' origins, shapes, accesses) are one number, a loop of equal
iterations is one number, so a block's structure is a short tuple and equal blocks are found by comparing tuples.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt

from npuscope import progress
from npuscope.tile.fault import fault
from npuscope.tile.record import sites
from npuscope.tile.record.frames import Frame, Offset, Rolled
from npuscope.tile.record.model import (
    Access,
    Alias,
    Argument,
    BlockGroup,
    Body,
    Buffer,
    Core,
    Finding,
    HostRead,
    Loop,
    Mode,
    Op,
    Recording,
    Ref,
    Scope,
    Segment,
    Task,
    TileType,
    Turn,
)
from npuscope.tile.record.rings import ring_sizes

Key = tuple[Any, ...]
MOST_TASKS = 1 << 20  # a few kilobytes each; 40 layers of a decode step have 17,000
Direction = Literal["In", "Out", "InOut"]


class ArgumentDraft:
    """What is known so far of one captured tensor of a task."""

    __slots__ = ("declared", "key", "no_dep", "read_first", "reads", "writes")

    def __init__(self, key: Key) -> None:
        self.key = key  # buffer, offset, shape, strides
        self.reads = self.writes = self.read_first = self.no_dep = False
        self.declared: Direction | None = None

    def like(self, key: Key) -> ArgumentDraft:
        """The same of another tensor."""
        new = ArgumentDraft(key)
        new.reads, new.writes, new.read_first = self.reads, self.writes, self.read_first
        new.no_dep, new.declared = self.no_dep, self.declared
        return new


class TaskDraft:
    """A task under recording."""

    def __init__(self, id: int, kernel: str, site: int, blocks: int, form: str, options: dict[str, Any]) -> None:
        self.id, self.kernel, self.site, self.blocks, self.form, self.options = id, kernel, site, blocks, form, options
        self.arguments: list[ArgumentDraft] = []
        self.by_tensor: dict[Key, int] = {}
        self.groups: dict[tuple[tuple[int, ...], tuple[int, ...]], tuple[list[int], Rolled]] = {}
        self.synced = 0  # barriers that all blocks came to as one
        self.told: tuple[set[int], set[int]] = (set(), set())  # buffers of whole numbers that blocks read, and wrote
        self.declared: dict[int, Direction] = {}  # buffer -> direction in an incore function's signature

    def called(self, kernel: str) -> None:
        """A launch without a name is called after the kernel it dispatches."""
        if "_incore_" in self.kernel:
            self.kernel = kernel

    def argument(self, key: Key) -> int:
        number = self.by_tensor.get(key)
        if number is None:
            number = self.by_tensor[key] = len(self.arguments)
            draft = ArgumentDraft(key)
            draft.declared = self.declared.get(key[0])
            self.arguments.append(draft)
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


class Recorder:
    """One run's record, built up call by call."""

    def __init__(self, program: str, mode: Mode) -> None:
        self.program, self.mode = program, mode
        self._numbers: dict[Key, int] = {}
        self._keys: list[Key] = []
        self._arguments: dict[int, list[int]] = {}  # of an op or loop: the argument of each access
        self.buffers: list[Buffer] = []
        self.tasks: list[TaskDraft] = []
        self.aliases: list[Alias] = []
        self.host_reads: list[HostRead] = []
        self.findings: dict[tuple[str, int, str], tuple[int, int]] = {}  # how often, and bytes
        self.said = 0  # findings, each time one came up
        self.notes: list[str] = []
        self.turns: list[Turn] = []
        self.scopes: list[Scope] = []
        self.scope_count = 0
        self.auto_scope = True
        self.layers: list[str] = []

    # --- tasks and blocks

    def open_task(self, kernel: str, blocks: int, form: str, **options: Any) -> TaskDraft:
        options["turns"] = tuple(self.turns)
        options["scopes"] = tuple(self.scopes)
        options["layer"] = self.layers[-1] if self.layers else ""
        if len(self.tasks) >= MOST_TASKS:
            raise fault(f"more than {MOST_TASKS:,} tasks: npuscope records no more of one run")
        task = TaskDraft(len(self.tasks), kernel, sites.here(), blocks, form, options)
        self.tasks.append(task)
        if len(self.tasks) % 32 == 0:
            progress.report(f"{self.program}: tasks", len(self.tasks), 0)
        return task

    def open_scope(self, manual: bool) -> None:
        self.scopes.append(Scope(self.scope_count, manual, len(self.turns)))
        self.scope_count += 1

    def close_block(self, block: BlockDraft, count: int) -> None:
        """Ends a block that stood for `count` blocks, `block.first` and those after it."""
        block.root.open = False
        key = (tuple(block.prologue), tuple(block.root.items))
        numbers, rolled = block.task.groups.setdefault(key, ([], Rolled(key[1])))
        numbers.extend(range(block.first, block.first + count))
        rolled.counts.append(count)
        rolled.offsets.append(block.prologue_offsets + block.root.offsets)

    # --- ops

    def number(self, key: Key) -> int:
        """The number of an op or loop with this structure."""
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self._keys)
            self._keys.append(key)
        return found

    def key(self, number: int) -> Key:
        """What `number` counted."""
        return self._keys[number]

    def arguments_of(self, block: tuple[tuple[int, ...], tuple[int, ...]]) -> list[int]:
        """The argument of each access of a block, in the order of its offsets."""
        return [number for part in block for item in part for number in self._arguments_of(item)]

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
        block.frame = parent
        segments = tuple((sum(rolled.counts), rolled.items) for rolled in frame.rolled if rolled.items)
        for rolled in frame.rolled:
            parent.offsets.extend(rolled.along(frame.depth))
        parent.items.append(self.number(("loop", *frame.key, segments)))

    def finding(self, kind: str, message: str, site: int | None = None, bytes: int = 0) -> None:
        key = (kind, sites.here() if site is None else site, message)
        self.said += 1
        count, so_far = self.findings.get(key, (0, 0))
        self.findings[key] = (count + 1, so_far + bytes)

    # --- the end

    def recording(self) -> Recording:
        """The finished record."""
        return _Finish(self).recording()


class _Finish:
    """Turns keys into records, each once, with sites renumbered in order of first use."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._sites: dict[int, int] = {}
        self._items: dict[int, Op | Loop] = {}
        self._bodies: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}
        self._body_list: list[Body] = []
        self._planes: list[set[str]] = []  # of each body
        self._arguments: dict[int, tuple[Argument, ...]] = {}  # of lists that several tasks may share
        self._equal: dict[Argument, Argument] = {}
        self._blocks: dict[int, npt.NDArray[np.int64]] = {}  # 0 to n - 1, by n

    def recording(self) -> Recording:
        rec = self.recorder
        tasks = tuple(self._task(task) for task in rec.tasks)
        buffers = tuple(_moved(buffer, self._site(buffer.site)) for buffer in rec.buffers)
        aliases = tuple(_moved(alias, self._site(alias.site)) for alias in rec.aliases)
        host_reads = tuple(_moved(read, self._site(read.site)) for read in rec.host_reads)
        findings = tuple(Finding(k, self._site(s), m, *counted) for (k, s, m), counted in rec.findings.items())
        return Recording(
            program=rec.program,
            mode=rec.mode,
            sites=tuple(sites.site(number) for number in self._sites),
            buffers=buffers,
            bodies=tuple(self._body_list),
            tasks=tasks,
            aliases=aliases,
            host_reads=host_reads,
            findings=findings,
            notes=tuple(dict.fromkeys(rec.notes)),
            auto_scope=rec.auto_scope,
            rings=ring_sizes(),
        )

    def _site(self, number: int) -> int:
        return self._sites.setdefault(number, len(self._sites))

    def _task(self, draft: TaskDraft) -> Task:
        groups = []
        planes: set[str] = set()
        for key, (blocks, rolled) in draft.groups.items():
            body = self._body(key)
            planes |= self._planes[body]
            offsets = tuple([_array(offset) for offset in rolled.along(0)])
            groups.append(BlockGroup(body, self._numbers(blocks), offsets))
        arguments = self._arguments.get(id(draft.arguments))
        if arguments is None:
            arguments = self._arguments[id(draft.arguments)] = tuple([self._argument(a) for a in draft.arguments])
        options = dict(draft.options)
        core = options.pop("core", None) or _core(planes, draft.form)
        return Task(
            id=draft.id,
            kernel=draft.kernel,
            site=self._site(draft.site),
            core=core,
            blocks=draft.blocks,
            groups=tuple(groups),
            arguments=arguments,
            form=cast(Any, draft.form),
            **options,
        )

    def _numbers(self, blocks: list[int]) -> npt.NDArray[np.int64]:
        """Most tasks have all their blocks alike: 0, 1, … up to the last."""
        count = len(blocks)
        if blocks != list(range(count)):
            return np.array(blocks, dtype=np.int64)
        if count not in self._blocks:
            self._blocks[count] = np.arange(count, dtype=np.int64)
        return self._blocks[count]

    def _argument(self, draft: ArgumentDraft) -> Argument:
        buffer, offset, shape, strides = draft.key
        made = Argument(
            buffer,
            offset,
            shape,
            strides,
            reads=draft.reads,
            writes=draft.writes,
            read_first=draft.read_first,
            declared=draft.declared,
            no_dep=draft.no_dep,
        )
        return self._equal.setdefault(made, made)

    def _body(self, key: tuple[tuple[int, ...], tuple[int, ...]]) -> int:
        found = self._bodies.get(key)
        if found is None:
            found = self._bodies[key] = len(self._body_list)
            prologue, items = cast(Any, self._all(key[0])), self._all(key[1])
            self._body_list.append(Body(prologue, items))
            self._planes.append(_planes(items))
        return found

    def _all(self, numbers: Sequence[int]) -> tuple[Op | Loop, ...]:
        return tuple(self._item(number) for number in numbers)

    def _item(self, number: int) -> Op | Loop:
        item = self._items.get(number)
        if item is None:
            key = self.recorder.key(number)
            item = self._items[number] = self._loop(key) if key[0] == "loop" else self._op(key)
        return item

    def _loop(self, key: Key) -> Loop:
        _, kind, stage, site, segments = key
        return Loop(kind, stage, self._site(site), tuple(Segment(n, self._all(items)) for n, items in segments))

    def _op(self, key: Key) -> Op:
        _, name, plane, site, operands, result, accesses, attributes, flops = key
        return Op(
            name=name,
            plane=plane,
            site=self._site(site),
            operands=tuple(Ref(x[0], x[1], x[2:]) if type(x) is tuple else x for x in operands),
            result=None if result is None else TileType(*result),
            accesses=tuple(Access(*access) for access in accesses),
            attributes=attributes,
            flops=flops,
        )


def _array(offset: Offset) -> npt.NDArray[np.int64]:
    if type(offset) is np.ndarray and offset.ndim and offset.dtype == np.int64:
        return offset
    return np.atleast_1d(np.asarray(offset, dtype=np.int64))


def _moved(record: Any, site: int) -> Any:
    from dataclasses import replace

    return replace(record, site=site)


def _planes(items: Sequence[Op | Loop]) -> set[str]:
    found: set[str] = set()
    for item in items:
        if isinstance(item, Op):
            found.add(item.plane)
        else:
            for segment in item.segments:
                found |= _planes(segment.items)
    return found


def _core(planes: set[str], form: str) -> Core:
    """Cube work, vector work or both decide which cores a task needs; copies and scalars run on a vector core."""
    if form == "dummy":
        return "none"
    if "cube" in planes:
        return "MIX" if "vector" in planes else "AIC"
    return "AIV"
