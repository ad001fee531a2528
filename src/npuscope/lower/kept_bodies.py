"""Lowered and planned bodies kept between runs: between two saves of a program nearly all of its bodies stay the same.

A body is known by its content: ops, shapes, loops, the names that its tiles have in the source, the task's split and
ring, the compiler's options, everything in the device file, and npuscope itself. Where it stands in the source is not
part of that: a body numbers its lines itself (`Lowered.sites`), so that one put in above changes nothing.
"""

from __future__ import annotations

import marshal
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from hashlib import sha256
from typing import Any

import msgspec

from npuscope.base.files import cached, source_digest
from npuscope.chip.devices import Device
from npuscope.lower.build import build, name_of_result, sites_of
from npuscope.lower.lowering import LoweringOptions, passed
from npuscope.lower.memory_plan import MemoryPlan, plan_memory
from npuscope.lower.model import Lowered
from npuscope.ops.table import ADDED, FAMILIES
from npuscope.tile.record.model import Loop, Op, Recording, Ref, Task

KIND = "bodies"


class Lowerer:
    """Lowers and plans bodies of one recording, or takes them from where they are kept."""

    def __init__(self, recording: Recording, device: Device, options: LoweringOptions) -> None:
        self.recording, self.device, self.options = recording, device, options

    @cached_property
    def _around(self) -> tuple[Any, ...]:
        return source_digest(), device_content(self.device), self.options.ring_slots, self.options.stream

    def planned(self, task: Task, body: int) -> tuple[Lowered, MemoryPlan, str | None]:
        """A body of a task, and the hash of its content; None where it cannot be kept."""
        key = self._hash(task, body)
        if key is None:
            return *self._made(build(self.recording, task, body)), None
        lowered, plan = cached(
            KIND, key, lambda: self._made(replace(build(self.recording, task, body), kernel="", body=0, sites=()))
        )
        sites = sites_of(self.recording.bodies[body])
        return replace(lowered, kernel=task.kernel, body=body, sites=sites), plan, key

    def _made(self, recorded: Lowered) -> tuple[Lowered, MemoryPlan]:
        lowered = passed(recorded, self.device, self.options)
        return lowered, plan_memory(lowered, self.device)

    def _hash(self, task: Task, number: int) -> str | None:
        body = self.recording.bodies[number]
        tensors = tuple(self.recording.buffers[argument.buffer].name for argument in task.arguments)
        lines = {site: line for line, site in enumerate(sites_of(body))}
        added = {spec.name for spec in FAMILIES.get(ADDED, ())}

        def content(items: tuple[Op | Loop, ...]) -> Iterator[Any]:
            for item in items:
                line = lines[item.site]
                if isinstance(item, Loop):
                    turns = [(segment.count, tuple(content(segment.items))) for segment in item.segments]
                    yield item.kind, item.stage, line, tuple(turns)
                    continue
                if item.name in added:  # what it is, no file of ours says
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
            around = (*self._around, task.split, task.ring_slots, task.ring_bytes)
            whole = (*around, *content(body.prologue), None, *content(body.items))
            data = marshal.dumps(whole, 2)  # the version in which equal things are equal bytes
        except ValueError:
            return None
        return sha256(data).hexdigest()


def device_content(device: Device) -> bytes:
    """All that a device file says."""
    return msgspec.msgpack.encode(device, order="deterministic")


def _operand(given: object) -> object:
    if isinstance(given, Ref):
        return given.up, given.back, given.path
    return given if given is None or isinstance(given, int | float | str) else ("tile", repr(given))
