"""Loads that nothing comes of: no store, no scalar and no later task depends on the tile."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from npuscope.check.findings import Cost, Finding
from npuscope.check.program import Program
from npuscope.check.rule import Rule
from npuscope.check.shared.dataflow import Flow
from npuscope.check.shared.places import finding, places, shown
from npuscope.lower.names import statement_at, tree_of
from npuscope.tile.record.model import Site

ID = "unused-load"


def check(program: Program) -> Iterator[Finding]:
    needed = {id(flow): _needed(flow) for flow in program.flows}
    for place in places(program):
        step = place.step
        if not step.loads or step.op.result is None:
            continue
        if step.number in needed[id(place.flow)] or _read_later(place.site):
            continue
        (access,) = step.op.accesses
        yield finding(
            ID,
            place,
            severity="hint",
            message=f"loads {shown(step.result)} of {place.buffer(access).name} and makes nothing of it",
            fix="Drop the load, or the task that it was meant for is missing something.",
            cost=Cost(bytes=place.bytes(access) * place.runs),
        )


def _read_later(site: Site) -> bool:
    """Whether the source reads the name that the tile is given: in a branch or loop that did not run. True where the
    tile has no name of its own to look for.
    """
    statement = statement_at(site.file, site.line)
    if not isinstance(statement, ast.Assign) or not all(isinstance(t, ast.Name) for t in statement.targets):
        return True
    given = {target.id for target in statement.targets if isinstance(target, ast.Name)}
    return any(
        isinstance(node, ast.Name) and node.id in given and isinstance(node.ctx, ast.Load)
        for node in ast.walk(tree_of(site.file) or statement)
    )


def _needed(flow: Flow) -> set[int]:
    """The steps that stores, scalars and barriers depend on, and those themselves."""
    open_ = [step.number for step in flow.steps if step.op.result is None or step.op.plane in ("store", "sync")]
    found = set(open_)
    for number in open_:  # grows as it goes
        for makers in flow.steps[number].operands:
            open_ += [maker for maker in makers if maker not in found]
            found.update(makers)
    return found


RULE = Rule(
    ID,
    "hint",
    "a load without a use",
    "It takes time and a buffer, and often shows that something else was meant.",
    check,
)
