"""What a simulated run shows beside its timeline: the panels that a program has and a capture has not."""

from __future__ import annotations

from collections.abc import Mapping

from npuscope.analysis.explanation import Explanation
from npuscope.check.checked import Checked
from npuscope.check.findings import Finding
from npuscope.check.fit import fit
from npuscope.lab.payload.graph import graph
from npuscope.lab.payload.inside import inside
from npuscope.lab.payload.memory import memory
from npuscope.lab.payload.source import source
from npuscope.simulate.run import Simulated


def program_panels(
    simulated: Simulated,
    explained: Explanation,
    checked: Checked | None = None,
    worth: Mapping[Finding, int | None] | None = None,
) -> dict[str, dict[str, object]]:
    """`checked`: what checks say, where they were run; `worth`: what taking a finding away saves, in nanoseconds."""
    program = simulated.prepared.program
    found = [] if checked is None else [*checked.errors, *(one.finding for one in checked.findings)]
    races = () if checked is None else checked.races
    return {
        "source": source(simulated, explained, found, races, worth),
        "inside": inside(simulated),
        "memory": memory([fit(program)]),
        "graph": graph(program, checked is not None),
    }
