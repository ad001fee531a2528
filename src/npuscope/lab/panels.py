"""The panels of one simulated program beside its timeline."""

from __future__ import annotations

from collections.abc import Iterator

from npuscope.check.checked import Checked
from npuscope.check.fit import fit
from npuscope.explain.explanation import Explanation
from npuscope.lab.document import Payload
from npuscope.lab.payload.graph import graph
from npuscope.lab.payload.inside import inside
from npuscope.lab.payload.memory import memory
from npuscope.lab.payload.source import source
from npuscope.time.priced import Prices, prices_of
from npuscope.time.run import Simulated


def panels_of(
    simulated: Simulated, explained: Explanation, checked: Checked, prices: Prices | None = None
) -> Iterator[tuple[str, Payload]]:
    """Each panel's name and payload; findings without `prices` are taken away one by one and simulated again."""
    program = simulated.prepared.program
    found = [one.finding for one in checked.findings]
    worth = (prices or prices_of(simulated, found)).by_finding()
    yield "source", source(simulated, explained, [*checked.errors, *found], checked.races, worth)
    yield "inside", inside(simulated)
    yield "memory", memory([fit(program)])
    yield "graph", graph(program)
