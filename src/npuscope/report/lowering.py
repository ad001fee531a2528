"""A kernel before and after every pass of lowering, in readable lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from npuscope.check.fit import Fit
from npuscope.lower.lowering import after_each_pass, body_text
from npuscope.lower.program import PlannedBody, Program
from npuscope.table.formats import printable


def lowering_text(fits: Sequence[Fit]) -> str:
    """Every body of every kernel."""
    lines = [line for fit in fits for body in fit.bodies for line in _lines(body, fit.program)]
    return "\n".join(printable(line) for line in lines) + "\n"


def _lines(body: PlannedBody, program: Program) -> Iterator[str]:
    task = program.recording.tasks[body.task]
    before = ""
    steps = after_each_pass(program.recording, task, body.lowered.body, program.device, program.lowering)
    for step, lowered in steps:
        text = body_text(lowered, program.recording)
        if text == before:
            yield f"--- {step}: no change"
        else:
            yield f"--- {step if step == 'recorded' else f'after {step}'}"
            yield from text.splitlines()
        before = text
    yield ""
