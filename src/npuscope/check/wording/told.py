"""How findings over tasks and the graph speak of tensors, tasks and loops: in the user's words and lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from npuscope.check.flow.dataflow import flows_of
from npuscope.check.traffic.table import Use, traffic_of
from npuscope.lower.program import Launch, Program
from npuscope.lower.source import name_of
from npuscope.tile.graph.task_graph import Edge
from npuscope.tile.record.model import Site, short_name
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


def lines_of(program: Program, launches: Sequence[Launch]) -> str:
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
