"""Barriers of all cores that not all cores reach."""

from __future__ import annotations

from collections.abc import Iterator

from npuscope.check.findings import Finding
from npuscope.check.memory.each_body import Problem, problems
from npuscope.check.rule import Example, Rule
from npuscope.lower.program import PlannedBody, Program
from npuscope.ops.spec import Role


def check(program: Program) -> Iterator[Finding]:
    def found(body: PlannedBody) -> Iterator[Problem]:
        task = program.recording.tasks[body.task]
        for one in body.lowered.instructions:
            if not one.spec.is_a(Role.BARRIER) or one.attribute("mode") != "hard":
                continue
            vector = one.attribute("core_type") == "aiv_only"
            cores = int((program.device.cores.vector if vector else program.device.cores.cube).value)
            if task.blocks != cores or not task.sync_start:
                has = f"{task.blocks} blocks" + ("" if task.sync_start else " without sync_start")
                yield (
                    one.site,
                    f"a hard syncall waits for all {cores} cores; {task.kernel} has {has}: the device would hang",
                    f'Launch pl.spmd({cores}, sync_start=True), or use mode="soft" with a workspace.',
                )

    yield from problems(RULE, program, found)


RULE = Rule(
    "syncall-occupancy",
    "error",
    "a barrier of all cores that not all cores reach",
    "A hard syncall waits for every core of its kind: with fewer blocks, or blocks that do not start together, the "
    "device hangs.",
    check,
    Example(
        'for b in pl.spmd(16):\n    pl.system.syncall(mode="hard")',
        'for b in pl.spmd(24, sync_start=True):\n    pl.system.syncall(mode="hard")',
    ),
    about="chip",
)
