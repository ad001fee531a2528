"""How findings speak of tensors, regions, tasks and loops: in the user's words and lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import prod
from typing import Literal

from npuscope.check.dataflow import flows_of
from npuscope.check.gm_traffic import Use, traffic_of
from npuscope.lower.program import KernelLaunch, Program
from npuscope.lower.source import name_of
from npuscope.tile.graph.boxes import dims, extent, row_major
from npuscope.tile.graph.task_graph import Edge
from npuscope.tile.record.model import Buffer, Site, short_name
from npuscope.tile.record.walk import Step, accesses_of


def tensor_name(program: Program, buffer: int) -> str:
    """What the user calls a tensor; a value that left its region has the name it was assigned to there."""
    found = program.recording.buffers[buffer]
    if found.origin != "promoted":
        return found.name
    made = _maker(program, buffer)
    site = program.site(found.site if made is None else made.op.site)
    return name_of(site, f"the value of line {site.line}")


def tensors_of(program: Program, edges: Iterable[Edge]) -> str:
    """The tensors that tasks wait for, as a list."""
    buffers = dict.fromkeys(edge.buffer for edge in edges if edge.buffer is not None)
    return listed(tensor_name(program, buffer) for buffer in buffers)


def access_site(program: Program, use: Use, mode: Literal["read", "write"]) -> Site:
    """The line where a task first reads or writes an argument."""
    task = program.recording.tasks[use.task]
    for op, access, _ in (one for group in task.groups for one in accesses_of(program.recording.bodies[group.body])):
        if access.argument == use.argument and (access.mode == "read") == (mode == "read"):
            return program.site(op.site)
    return program.site(task.site)


def listed(names: Iterable[object]) -> str:
    """a, b and c, each once."""
    found = list(dict.fromkeys(map(str, names)))
    return " and ".join([", ".join(found[:-1]), found[-1]] if len(found) > 1 else found)


def lines_of(program: Program, launches: Sequence[KernelLaunch]) -> str:
    return listed(f"{short_name(launch.kernel)} (line {program.site(launch.site).line})" for launch in launches)


def size(count: float) -> str:
    """Bytes for reading."""
    for unit, step in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= step:
            return f"{count / step:.3g} {unit}"
    return f"{count:.0f} bytes"


def _maker(program: Program, buffer: int) -> Step | None:
    """The step whose result was stored to a buffer when its region ended."""
    traffic = traffic_of(program)
    for task in traffic.touching[buffer][:1]:
        arguments = {use.argument for use in traffic.uses(task) if use.buffer == buffer and use.written}
        for group in program.recording.tasks[task].groups:
            flow = flows_of(program)[group.body]
            stores = (s for s in flow.steps if s.operands and any(a.argument in arguments for a in s.op.accesses))
            if makers := [maker for store in stores for maker in flow.makers(store, 0)][:1]:
                return makers[0]
    return None


Span = tuple[int, int, int]  # first, one past the last, step


def named(program: Program, number: int) -> Buffer:
    """A buffer under the name that the user knows: a value that left its region has that of its variable."""
    buffer = program.recording.buffers[number]
    return replace(buffer, name=tensor_name(program, number)) if buffer.origin == "promoted" else buffer


def region_text(buffer: Buffer, shape: tuple[int, ...], strides: tuple[int, ...], offsets: Sequence[int]) -> str:
    """Equal boxes at these offsets: as one box if they are one, else the first of them and how many more."""
    boxes = [_axes(buffer.shape, shape, strides, offset) for offset in offsets]
    known = [box for box in boxes if box is not None]
    if len(known) < len(boxes):
        last = max(offsets) + extent(shape, strides)
        return f"{buffer.name}.flat[{min(offsets)}:{last}]"
    around = [(min(a[0] for a in axis), max(a[1] for a in axis), axis[0][2]) for axis in zip(*known, strict=True)]
    if len(known) == 1 or _sizes(around) == sum(_sizes(box) for box in known):
        return f"{buffer.name}[{', '.join(map(_shown, around))}]"
    more = len(known) - 1
    return f"{buffer.name}[{', '.join(map(_shown, known[0]))}] and {more} more"


def _sizes(box: Sequence[Span]) -> int:
    return prod(-(-(end - start) // step) for start, end, step in box)


def _shown(axis: Span) -> str:
    start, end, step = axis
    return f"{start}:{end}" if step == 1 else f"{start}:{end}:{step}"


def _axes(whole: tuple[int, ...], shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> list[Span] | None:
    """The box along the buffer's own axes; None if it is no box there, as in a view that was reshaped."""
    steps = row_major(whole)
    starts, rest = [], offset
    for step in steps:
        start, rest = divmod(rest, step)
        starts.append(start)
    axes: list[Span | None] = [None] * len(whole)
    todo = list(dims(shape, strides))
    while todo:
        size, stride = todo.pop()
        k = next((k for k, step in enumerate(steps) if step <= stride and whole[k] > 1), -1)
        if k < 0 or stride % steps[k] or axes[k] is not None:
            return None
        step = stride // steps[k]
        if starts[k] + (size - 1) * step >= whole[k]:
            if step != 1 or starts[k] or size % whole[k]:
                return None
            todo.append((size // whole[k], stride * whole[k]))  # whole rows, one after the other
            size = whole[k]
        axes[k] = (starts[k], starts[k] + (size - 1) * step + 1, step)
    return [axis or (start, start + 1, 1) for axis, start in zip(axes, starts, strict=True)]
