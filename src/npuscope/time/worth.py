"""What was checked of a program, with what each finding is worth: simulated as it is and without each."""

from __future__ import annotations

from dataclasses import replace

from npuscope.base.errors import NpuscopeError
from npuscope.check.checked import Checked
from npuscope.check.run import with_savings
from npuscope.lower.program import Program
from npuscope.time.diagnosis import diagnosis_of
from npuscope.time.priced import prices_of
from npuscope.time.programs import lacking_times
from npuscope.time.run import simulate


def priced(program: Program, checked: Checked) -> Checked:
    """The findings with their prices, and what bounds the program; where it cannot be simulated, the reason."""
    if checked.errors:
        return replace(checked, unpriced="not priced: what will not work cannot be simulated")
    if lacking := lacking_times(program.device):
        return replace(checked, unpriced=f"not priced: the file of {program.device.name} has no {lacking}")
    try:
        simulated = simulate(program)
    except NpuscopeError as error:
        return replace(checked, unpriced=f"not priced: {error}")
    found = prices_of(simulated, [one.finding for one in checked.findings])
    findings = with_savings(checked.findings, found.by_finding())
    return replace(checked, findings=findings, diagnosis=diagnosis_of(simulated, found))


def left_out(program: Program, checked: Checked) -> Checked:
    """As asked for: without a simulation nobody knows what findings cost in time."""
    return replace(checked, unpriced="not priced: left out by --no-price")
