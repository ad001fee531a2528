"""Lowered and planned bodies kept between runs: between two saves of a program nearly all of its bodies stay the same.

A body is known by its content: ops, shapes, loops, the names that its tiles have in the source, the task's split and
ring, the compiler's options, everything in the device file, and npuscope itself. Where it stands in the source is not
part of that. Its lines are numbered from 0 (`Line`), in the order in which they are met, and take the recording's
numbers when it is read: a line that is put in above changes nothing.
"""

from __future__ import annotations

import io
import marshal
import pickle
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from npuscope.base.kept_files import KeptFiles, own_source
from npuscope.chip.devices import Device
from npuscope.lower.build import build, name_of_result
from npuscope.lower.lowering import LoweringOptions, passed
from npuscope.lower.memory_plan import MemoryPlan, plan_memory
from npuscope.lower.model import Instruction, Items, Lowered, Repeat
from npuscope.ops.table import ADDED, FAMILIES
from npuscope.tile.record.model import Loop, Op, Recording, Ref, Task

FILES = KeptFiles("bodies", 128 << 20)


class Line(int):
    """A place in the source, as a kept body counts them."""


class Writer(pickle.Pickler):
    """Writes a body; its lines stand apart from other numbers."""

    def persistent_id(self, thing: object) -> int | None:
        return int(thing) if isinstance(thing, Line) else None


class Reader(pickle.Unpickler):
    """Reads what is kept of a body; `sites` are its lines in the recording."""

    def __init__(self, data: bytes, sites: tuple[int, ...]) -> None:
        super().__init__(io.BytesIO(data))
        self.sites = sites

    def persistent_load(self, line: int) -> int:
        return self.sites[line]


class Known(NamedTuple):
    """A body by its content, and its lines in the recording, in its own order."""

    content: str
    sites: tuple[int, ...]


class Lowerer:
    """Lowers and plans bodies of one recording, or takes them from where they are kept."""

    def __init__(self, recording: Recording, device: Device, options: LoweringOptions) -> None:
        self.recording, self.device, self.options = recording, device, options

    @cached_property
    def _around(self) -> tuple[Any, ...]:
        return own_source(), device_content(self.device), self.options.ring_slots, self.options.stream

    def planned(self, task: Task, body: int) -> tuple[Lowered, MemoryPlan, Known | None]:
        """A body of a task; `Known` is None where it cannot be kept."""
        known = self._known(task, body) if FILES.folder is not None else None
        if known is None:
            return *self._made(build(self.recording, task, body)), None
        found = _read(FILES.read(known.content), known.sites)
        if found is None:
            recorded = build(self.recording, task, body)
            lines = {site: Line(n) for n, site in enumerate(known.sites)}
            data = _written(self._made(replace(_with_lines(recorded, lines), kernel="", body=0)))
            FILES.write(known.content, data)
            found = Reader(data, known.sites).load()
        lowered, plan = found
        return replace(lowered, kernel=task.kernel, body=body), plan, known

    def _made(self, recorded: Lowered) -> tuple[Lowered, MemoryPlan]:
        lowered = passed(recorded, self.device, self.options)
        return lowered, plan_memory(lowered, self.device)

    def _known(self, task: Task, number: int) -> Known | None:
        body = self.recording.bodies[number]
        tensors = tuple(self.recording.buffers[argument.buffer].name for argument in task.arguments)
        lines: dict[int, int] = {}
        added = {spec.name for spec in FAMILIES.get(ADDED, ())}

        def content(items: tuple[Op | Loop, ...]) -> Iterator[Any]:
            for item in items:
                line = lines.setdefault(item.site, len(lines))
                if isinstance(item, Loop):
                    turns = [(segment.count, tuple(content(segment.items))) for segment in item.segments]
                    yield item.kind, item.stage, line, tuple(turns)
                    continue
                if item.name in added:  # what it is, no file of ours tells
                    raise ValueError
                result = item.result
                yield (
                    item.name, item.plane, line, tuple(map(_operand, item.operands)),
                    None if result is None else (result.shape, result.dtype, result.valid, result.space),
                    None if result is None else name_of_result(item, self.recording.sites, tensors),
                    tuple(map(tuple, item.accesses)),
                    item.attributes, item.flops,
                )  # fmt: skip

        try:
            told = (*self._around, task.split, task.ring_slots, *content(body.prologue), None, *content(body.items))
            data = marshal.dumps(told, 2)  # the version in which equal things are equal bytes
        except ValueError:
            return None
        return Known(sha256(data).hexdigest(), tuple(lines))


def _written(made: tuple[Lowered, MemoryPlan]) -> bytes:
    data = io.BytesIO()
    Writer(data, 5).dump(made)
    return data.getvalue()


def _read(data: bytes | None, sites: tuple[int, ...]) -> tuple[Lowered, MemoryPlan] | None:
    if data is None:
        return None
    try:
        found: tuple[Lowered, MemoryPlan] = Reader(data, sites).load()
    except Exception:  # a disk that has spoilt it: it is made anew
        return None
    return found


def device_content(device: Device) -> bytes:
    """All that a device file says."""
    return msgspec.msgpack.encode(device, order="deterministic")


def _operand(given: object) -> object:
    if isinstance(given, Ref):
        return given.up, given.back, given.path
    return given if given is None or isinstance(given, int | float | str) else ("tile", repr(given))


def _with_lines(lowered: Lowered, lines: dict[int, Line]) -> Lowered:
    """A recorded body with lines of its own in place of the recording's."""

    def renumbered(items: Items) -> Iterator[Instruction | Repeat]:
        for item in items:
            if isinstance(item, Repeat):
                yield replace(item, site=lines[item.site], items=tuple(renumbered(item.items)))
            else:
                yield item._replace(site=lines[item.site])

    values = tuple(value._replace(site=lines[value.site]) for value in lowered.values)
    return replace(lowered, values=values, items=tuple(renumbered(lowered.items)))
