"""What every kernel takes of each memory, and what does not fit.

A kernel may have several bodies (its branches); a space is as full as the fullest of them makes it. A mixed kernel is
two functions, one per kind of core, named as the compiler names them: `gate_proj_aic`, `gate_proj_aiv`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from npuscope.check.extents import controlling
from npuscope.check.findings import Finding
from npuscope.check.program import Program
from npuscope.lower.model import Lowered, instructions
from npuscope.lower.passes import Options, lower
from npuscope.lower.plan import Plan, Slot, SpacePlan, plan_memory
from npuscope.tile.record.model import Site

MOST_TILES = 6  # that an error names


@dataclass(frozen=True)
class Kernel:
    """One body of a kernel, lowered and planned; `task` is the first that has it."""

    name: str
    task: int
    lowered: Lowered
    plan: Plan

    @property
    def mixed(self) -> bool:
        return len({one.unit for one in instructions(self.lowered.items) if one.unit}) > 1

    def function(self, space: SpacePlan) -> str:
        return f"{self.name}_{space.unit.lower()}" if self.mixed else self.name


@dataclass(frozen=True)
class Usage:
    """One memory of one function, in the body that fills it most."""

    function: str
    kernel: Kernel
    space: SpacePlan

    @property
    def share(self) -> float:
        return self.space.used / self.space.limit


def kernels(program: Program, options: Options = Options()) -> tuple[Kernel, ...]:
    """Every distinct body of every kernel, in order of the first task."""
    found: dict[tuple[str, int, str, int], Kernel] = {}
    for launch in program.launches:
        task = program.first_task(launch)
        for body, _ in launch.bodies:
            key = (launch.kernel, body, task.split, task.ring_slots)
            if key not in found:
                lowered = lower(program.recording, task, body, program.device, options)
                found[key] = Kernel(launch.kernel, task.id, lowered, plan_memory(lowered, program.device))
    return tuple(found.values())


def usages(found: tuple[Kernel, ...]) -> tuple[Usage, ...]:
    """Per function and space the fullest body; functions in order of their first task."""
    fullest: dict[tuple[str, str], Usage] = {}
    for kernel in found:
        for space in kernel.plan.spaces:
            usage = Usage(kernel.function(space), kernel, space)
            known = fullest.get((usage.function, space.space))
            if known is None or space.used > known.space.used:
                fullest[usage.function, space.space] = usage
    return tuple(fullest.values())


def overflows(program: Program, used: tuple[Usage, ...], options: Options = Options()) -> Iterator[Finding]:
    """An error for every space that is too small for its kernel."""
    for usage in used:
        if usage.space.fits:
            continue
        space, first = usage.space, _largest(usage.space)
        tiles = "; ".join(_told(slot, program) for slot in first[:MOST_TILES])
        if space.reserved:
            tiles = f"the ring between cube and vector cores takes {space.reserved} B; {tiles}"
        if len(first) > MOST_TILES:
            tiles += f"; and {len(first) - MOST_TILES} more"
        task = program.recording.tasks[usage.kernel.task]
        advice = controlling(program, task, usage.kernel.plan.body, space, options)
        site = program.site(first[0].tenants[0].value.site if first else task.site)
        yield Finding(
            id="buffer-overflow",
            severity="error",
            file=site.file,
            line=site.line,
            message=f"{usage.function} {space.space} buffer usage {space.used} > {space.limit}: {tiles}",
            fix=advice.told if advice else _remedy(space),
            kernel=usage.kernel.name,
            function=site.function,
            change=advice.change if advice else "",
        )


def _remedy(space: SpacePlan) -> str:
    if space.reserved:
        return "Use smaller tiles, or a shallower ring: optimizations=[pl.cross_core_slot(slot_num=2)]."
    return "Use smaller tiles, or fewer of them at once."


def _largest(space: SpacePlan) -> list[Slot]:
    return sorted(space.slots, key=lambda slot: -slot.bytes)


def _told(slot: Slot, program: Program) -> str:
    """`wq [512, 512] INT8 262144 B (layer.py:12)`."""
    value = slot.tenants[0].value
    return f"{value.name} {list(value.shape)} {value.dtype} {slot.bytes} B ({_place(program.site(value.site))})"


def _place(site: Site) -> str:
    return f"{site.file.rpartition('/')[2]}:{site.line}"
