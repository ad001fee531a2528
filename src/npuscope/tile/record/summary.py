"""How much a run did, per kernel: tasks, blocks, the unit they need, FLOPs, and bytes moved from and to GM.

Exact: every stored op counts as often as its segments iterated, in every block of every group. A read counts at each
access (not once per element touched); an atomic add moves its bytes to GM once, so it counts as written.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

import polars as pl

from npuscope.ops.dtypes import BY_NAME
from npuscope.table.columns import Column, Columns, Table, Tabular
from npuscope.table.formats import BYTES, COUNT, FLOPS, TEXT, arithmetic, many, traffic
from npuscope.tile.record.model import Body, Core, Recording
from npuscope.tile.record.walk import ops_of

COUNTS = (
    Column("tasks", COUNT, "tasks"),
    Column("blocks", COUNT, "that run"),
)
WORK = (
    Column("flops", FLOPS, "of all blocks: products and the arithmetic of vector ops", title="work"),
    Column("gm_read", BYTES, "from global memory (GM)", scale="traffic", title="reads", explained=True),
    Column("gm_written", BYTES, "to global memory (GM)", scale="traffic", title="writes", explained=True),
)
UNIT = Column("unit", TEXT, "AIC, AIV, MIX or none")
OPS = Column("ops", COUNT, "as executed in all blocks", wide=True)
NAME = Column("kernel", TEXT, "its name")
KERNELS = Columns("", "A kernel, in order of its first task.", NAME, UNIT, *COUNTS, OPS, *WORK)


@dataclass(frozen=True, slots=True)
class KernelWork:
    """All tasks of one kernel together; `gm_read` and `gm_written` in bytes, `ops` as executed in all blocks."""

    kernel: str
    tasks: int
    blocks: int
    unit: Core
    ops: int
    flops: int
    gm_read: int
    gm_written: int


@dataclass(frozen=True, repr=False)
class RunWork(Tabular):
    """The kernels of a run in the order of their first task, and their sums."""

    kernels: tuple[KernelWork, ...]

    def total(self, name: str) -> int:
        """A number of all kernels together."""
        return sum(getattr(kernel, name) for kernel in self.kernels)

    def tables(self) -> dict[str, Table]:
        frame = pl.DataFrame({name: [getattr(k, name) for k in self.kernels] for name in KernelWork.__slots__})
        return {"kernels": Table(KERNELS, frame)}

    def title(self) -> str:
        return (
            f"{many(self.total('tasks'), 'task')} with {many(self.total('blocks'), 'block')} of "
            f"{many(len(self.kernels), 'kernel')}: {arithmetic(self.total('flops'))}, "
            f"{traffic(self.total('gm_read'))} read from global memory, {traffic(self.total('gm_written'))} written"
        )

    def as_dict(self) -> dict[str, object]:
        """`tasks` and `kernels` of the JSON contract of `run` and `graph`."""
        sums = {name: self.total(name) for name in ("tasks", "blocks", "flops", "gm_read", "gm_written")}
        return {**sums, "kernels": self.main_table().keyed()}


def summarise(recordings: Iterable[Recording]) -> RunWork:
    """The work of one or several recordings, by kernel."""
    sums: dict[str, Counter[str]] = defaultdict(Counter)
    units: dict[str, set[Core]] = defaultdict(set)
    for recording in recordings:
        kinds = [BY_NAME[buffer.dtype] for buffer in recording.buffers]
        bodies = [work_of(body) for body in recording.bodies]
        for task in recording.tasks:
            counts = sums[task.kernel]
            units[task.kernel].add(task.core)
            counts["tasks"] += 1
            counts["blocks"] += 0 if task.skipped else task.blocks
            for group in task.groups:
                body, blocks = bodies[group.body], len(group.blocks)
                counts["ops"] += body.ops * blocks
                counts["flops"] += body.flops * blocks
                for name, moved in (("gm_read", body.read), ("gm_written", body.written)):
                    for argument, elements in moved.items():
                        counts[name] += kinds[task.arguments[argument].buffer].size(elements * blocks)
    names = ("tasks", "blocks", "ops", "flops", "gm_read", "gm_written")
    return RunWork(
        tuple(
            KernelWork(kernel, unit=unit_of(units[kernel]), **{name: counts[name] for name in names})
            for kernel, counts in sums.items()
        )
    )


def unit_of(cores: Iterable[Core]) -> Core:
    """The unit that tasks of these shapes need together."""
    needed = {core for core in cores if core != "none"}
    if len(needed) > 1:
        return "MIX"
    return needed.pop() if needed else "none"


@dataclass(frozen=True, slots=True)
class BodyWork:
    """What one block does; elements per argument, since the same body runs on buffers of several tasks."""

    ops: int
    flops: int
    cube_flops: int  # of these
    read: dict[int, int]
    written: dict[int, int]
    added: dict[int, int]  # of what was written: by atomic adds


def work_of(body: Body) -> BodyWork:
    ops = flops = cube = 0
    moved: dict[str, Counter[int]] = {mode: Counter() for mode in ("read", "write", "add")}
    for op, counts in ops_of(body):
        times = prod(counts)
        ops += times
        flops += times * op.flops
        cube += times * op.flops * (op.plane == "cube")
        for access in op.accesses:
            moved[access.mode][access.argument] += times * prod(access.shape)
    return BodyWork(ops, flops, cube, moved["read"], moved["write"] + moved["add"], moved["add"])
