"""A run's record when the run has ended: keys become plain data, each once, with sites renumbered by first use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from npuscope.tile.record import sites
from npuscope.tile.record.drafts import ArgumentDraft, BodyKey, LoopKey, OpKey, TaskDraft
from npuscope.tile.record.frames import Numbers, Offset, still
from npuscope.tile.record.model import (
    Access,
    Argument,
    BlockGroup,
    Body,
    Core,
    Form,
    Loop,
    Notice,
    Op,
    Recording,
    Ref,
    Segment,
    Task,
    TileType,
)
from npuscope.tile.record.recorder import Recorder
from npuscope.tile.record.rings import ring_sizes
from npuscope.tile.record.walk import ops_of


def recording_of(recorder: Recorder) -> Recording:
    """The finished record."""
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
        tasks = tuple([self._task(task) for task in rec.tasks])
        return Recording(
            program=rec.program,
            mode=rec.mode,
            buffers=tuple([replace(buffer, site=self._site(buffer.site)) for buffer in rec.buffers]),
            bodies=tuple(self._body_list),
            tasks=tasks,
            aliases=tuple([replace(alias, site=self._site(alias.site)) for alias in rec.aliases]),
            host_reads=tuple([replace(read, site=self._site(read.site)) for read in rec.host_reads]),
            notices=tuple([Notice(k, self._site(s), m, *counted) for (k, s, m), counted in rec.findings.items()]),
            notes=tuple(dict.fromkeys(rec.notes)),
            auto_scope=rec.auto_scope,
            rings=ring_sizes(),
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
            offsets = tuple([_array(offset) for offset in rolled.along(0)])
            groups.append(BlockGroup(body, self._numbers(blocks), offsets))
        arguments = self._arguments.get(id(draft.arguments))
        if arguments is None:
            arguments = self._arguments[id(draft.arguments)] = tuple([self._argument(a) for a in draft.arguments])
        launch = draft.launch
        return Task(
            id=draft.id,
            kernel=draft.kernel,
            site=self._site(draft.site),
            core=launch.core or _core(planes, draft.form),
            blocks=draft.blocks,
            groups=tuple(groups),
            arguments=arguments,
            form=draft.form,
            deps=launch.deps,
            turns=launch.turns,
            manual_scope=launch.manual_scope,
            early=launch.early,
            sync_start=launch.sync_start,
            predicated=launch.predicated,
            skipped=launch.skipped,
            scopes=launch.scopes,
            layer=launch.layer,
            split=launch.split,
            ring_slots=launch.ring_slots,
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
        buffer, offset, shape, strides = draft.key
        made = Argument(
            buffer,
            offset,
            shape,
            strides,
            reads=draft.reads,
            writes=draft.writes,
            declared=draft.declared,
            no_dep=draft.no_dep,
        )
        return self._equal.setdefault(made, made)

    def _body(self, key: BodyKey) -> int:
        found = self._bodies.get(key)
        if found is None:
            found = self._bodies[key] = len(self._body_list)
            prologue, items = self._all(key[0]), self._all(key[1])
            self._body_list.append(Body(tuple([op for op in prologue if isinstance(op, Op)]), items))
            self._planes.append({op.plane for op, _ in ops_of(Body((), items))})
        return found

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
            name=name,
            plane=plane,
            site=self._site(site),
            operands=tuple([Ref(x[0], x[1], x[2:]) if isinstance(x, tuple) else x for x in operands]),
            result=None if result is None else TileType(*result),
            accesses=tuple([Access(*access) for access in accesses]),
            attributes=attributes,
            flops=flops,
        )


def _array(offset: Offset) -> Numbers:
    if isinstance(offset, np.ndarray) and offset.ndim and offset.dtype == np.int64:
        return offset
    return np.atleast_1d(np.asarray(still(offset), dtype=np.int64))


def _core(planes: set[str], form: Form) -> Core:
    """Cube work, vector work or both decide which cores a task needs; copies and scalars run on a vector core."""
    if form == "dummy":
        return "none"
    if "cube" in planes:
        return "MIX" if "vector" in planes else "AIC"
    return "AIV"
