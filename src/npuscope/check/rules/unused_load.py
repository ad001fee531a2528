"""Loads that nothing comes of: no store, no scalar and no later task depends on the tile."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from npuscope.check.findings import Finding, Waste
from npuscope.check.flow.dataflow import Flow, flows_of
from npuscope.check.flow.places import places, shown
from npuscope.check.rule import Example, Rule
from npuscope.lower.program import Program
from npuscope.lower.source import read, statement_at
from npuscope.tile.record.model import Site


def check(program: Program) -> Iterator[Finding]:
    needed = {id(flow): _needed(flow) for flow in flows_of(program)}
    for place in places(program):
        step = place.step
        if not step.loads or step.op.result is None:
            continue
        if step.number in needed[id(place.flow)] or _read_later(place.site):
            continue
        (access,) = step.op.accesses
        yield RULE.at(
            place.site,
            f"loads {shown(step.result)} of {place.buffer(access).name} and makes nothing of it",
            "Drop the load, or the task that it was meant for is missing something.",
            kernel=place.kernel,
            waste=Waste(bytes=place.bytes(access) * place.runs),
            count=place.runs,
        )


def _read_later(site: Site) -> bool:
    """Whether the source reads the name that the tile is given: in a branch or loop that did not run. True where the
    tile has no name of its own to look for.
    """
    statement = statement_at(site)
    if not isinstance(statement, ast.Assign) or not all(isinstance(t, ast.Name) for t in statement.targets):
        return True
    given = {target.id for target in statement.targets if isinstance(target, ast.Name)}
    source = read(site.file)
    return source is not None and any(
        isinstance(node, ast.Name) and node.id in given and isinstance(node.ctx, ast.Load) for node in source.nodes
    )


def _needed(flow: Flow) -> set[int]:
    """The steps that stores, scalars and barriers depend on, and those themselves."""
    open_ = [step.number for step in flow.steps if step.op.result is None or step.op.plane in ("store", "sync")]
    found = set(open_)
    for number in open_:  # grows as it goes
        for operand in flow.steps[number].operands:
            open_ += [maker for maker in operand.makers if maker not in found]
            found.update(operand.makers)
    return found


RULE = Rule(
    "unused-load",
    "hint",
    "a load without a use",
    "It takes time and a buffer, and often shows that something else was meant.",
    check,
    Example(
        "k_tile = pl.load(k, [0, 0], [128, 128])  # never used",
        "# leave it out",
        "bytes loaded",
    ),
)
