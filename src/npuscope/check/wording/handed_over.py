"""What tasks that could be one hand over through global memory, and how two rules tell it."""

from __future__ import annotations

from collections import defaultdict

from npuscope.check.findings import Finding, Waste
from npuscope.check.rule import Rule
from npuscope.check.traffic.estimate import severity
from npuscope.check.traffic.fusable import Fusable, fusable
from npuscope.check.wording.told import lines_of, listed, size, tensor_name
from npuscope.lower.program import Program
from npuscope.table.formats import many

STILL = (
    " (on this chip cube and vector cores still hand tiles over through a small ring in GM, but nobody is dispatched "
    "in between)"
)


def handed_over(program: Program) -> list[list[Fusable]]:
    """Fusable tasks that hand over at least a line of memory per block, those of the same places together.

    Turns in which only some of the tasks of a longer chain could be joined count with that chain.
    """
    line = program.device.core["gm_line"].value if "gm_line" in program.device.core else 0
    together: dict[tuple[int, ...], list[Fusable]] = defaultdict(list)
    for found in fusable(program):
        if found.written / max(found.launches[0].blocks, 1) >= line:
            together[tuple(launch.site for launch in found.launches)].append(found)
    for places in sorted(together, key=len):
        longer = next((others for others in together if set(others) > set(places)), None)
        if longer is not None:
            together[longer] += together.pop(places)
    return list(together.values())


def are_halves(together: list[Fusable]) -> bool:
    """Whether it is one cube and one vector task, wherever it happens."""
    return all(len(f.tasks) == 2 and {launch.core for launch in f.launches} == {"AIC", "AIV"} for f in together)


def told(rule: Rule, program: Program, together: list[Fusable], what: str) -> Finding:
    """`what` may name {tasks} and how {often}."""
    largest = max(together, key=lambda found: (len(found.tasks), len(found.handovers)))
    widest_first = sorted(largest.handovers, key=lambda handover: -handover.written)
    names = listed(tensor_name(program, handover.buffer) for handover in widest_first)
    written, read = sum(f.written * f.times for f in together), sum(f.read * f.times for f in together)
    turns = sum(f.times for f in together)
    waste = Waste(bytes=written + read, tasks=sum((len(f.tasks) - 1) * f.times for f in together))
    crossing = len({launch.core for launch in largest.launches}) > 1
    through_gm = program.device.rules is not None and not program.device.rules.ring_on_chip
    head = what.format(tasks=len(largest.tasks), often=f" in each of {turns:,} turns" if turns > 1 else "")
    first, *others = (program.site(launch.site) for launch in largest.launches)
    return rule.at(
        first,
        f"{head}: {lines_of(program, largest.launches)} pass {names}, {size(written)} written and {size(read)} read "
        f"back{STILL if crossing and through_gm else ''}",
        f"Put them into one region and keep {names} as tiles: {many(waste.tasks, 'task')} fewer.",
        kernel=largest.launches[0].kernel,
        severity=severity(program, waste),
        waste=waste,
        count=turns,
        also=others,
    )
