"""Blocks that do not fill the cores they run on: the last wave leaves most of them idle.

Looked at are launches of more blocks than cores, and equal tasks that become ready together. Found is a tail that
idles more than a fifth of the core time of all waves and more than a dispatch is worth, unless other work that could
run at the same time fills it. Times are estimates by `estimate`; in a short tail each core gets more of the memory's
bandwidth than that, so the true loss is smaller.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from npuscope.check.findings import Finding
from npuscope.check.rule import Example, Rule
from npuscope.check.traffic.estimate import block_seconds, cores_of
from npuscope.check.traffic.mergeable import mergeable
from npuscope.check.traffic.table import traffic_of
from npuscope.check.traffic.waiting import beside
from npuscope.lower.program import Launch, Program
from npuscope.tile.record.model import short_name

IDLE = 0.2  # of the core time of all waves


def partial_waves(program: Program) -> Iterator[Finding]:
    if "task_cost" not in program.device.runtime:
        return
    for launch in program.launches:
        if launch.core != "none" and launch.blocks > 1:
            yield from _tail(program, launch, [[task] for task in launch.tasks], launch.blocks, "block")
    for launch, groups in mergeable(program).items():
        yield from _tail(program, launch, groups, min(map(len, groups)), "task")


def _tail(program: Program, launch: Launch, groups: list[list[int]], parts: int, what: str) -> Iterator[Finding]:
    """The finding, if there is one, of sets of tasks that run as so many equal parts."""
    cores = cores_of(program.device, launch.core)
    waves = ceil(parts / cores)
    took = waves * block_seconds(program, launch)
    idle = 1 - parts / (waves * cores)
    if parts <= cores or idle <= IDLE or not took:
        return
    idle -= _beside(program, launch, groups[0]) / (took * cores)
    if idle <= IDLE or idle * took < program.device.runtime["task_cost"].value:
        return
    site = program.site(launch.site)
    full = parts // cores * cores
    kind = {"AIV": "vector cores", "AIC": "cube cores"}.get(launch.core, "cube cores with their vector cores")
    often = f", {len(groups)} times" if len(groups) > 1 else ""
    yield RULE.at(
        site,
        f"{parts} {what}s of {short_name(launch.kernel)} on {cores} {kind} take {waves} waves, the last with "
        f"{parts - full}: {idle:.0%} of the core time is idle and no other work can fill it{often}",
        f"Cut the work into {full} or {full + cores} equal {what}s, or a number just below a multiple of {cores}.",
        kernel=launch.kernel,
        count=len(groups),
    )


def _beside(program: Program, launch: Launch, tasks: list[int]) -> float:
    """Core seconds of other work that the same cores could do while these tasks run."""
    total = 0.0
    for task in beside(program, tasks):
        other = program.launches[traffic_of(program).launch[task]]
        if other.core == launch.core or "MIX" in (other.core, launch.core):
            total += block_seconds(program, other) * other.blocks
    return total


RULE = Rule(
    "partial-wave",
    "hint",
    "a last wave that leaves most cores idle",
    "Blocks run in waves of as many as there are cores; one block more than fits costs a whole wave.",
    partial_waves,
    Example(
        "for b in pl.spmd(25):  # 24 cores: a second wave for one block",
        "for b in pl.spmd(24):",
    ),
)
