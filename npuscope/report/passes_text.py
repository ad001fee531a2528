"""A kernel before and after every pass of lowering, in readable lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from npuscope.analysis.table import printable
from npuscope.check.fit import Fit
from npuscope.check.memory import Kernel
from npuscope.check.program import Program
from npuscope.lower.passes import Options, after_each_pass
from npuscope.lower.text import body_text


def passes_text(fits: Sequence[Fit], options: Options) -> str:
    """Every body of every kernel."""
    lines = [line for fit in fits for kernel in fit.kernels for line in _lines(kernel, fit.program, options)]
    return "\n".join(printable(line) for line in lines) + "\n"


def _lines(kernel: Kernel, program: Program, options: Options) -> Iterator[str]:
    task = program.recording.tasks[kernel.task]
    before = ""
    for step, lowered in after_each_pass(program.recording, task, kernel.lowered.body, program.device, options):
        text = body_text(lowered, program.recording)
        if text == before:
            yield f"--- {step}: no change"
        else:
            yield f"--- {step if step == 'recorded' else f'after {step}'}"
            yield from text.splitlines()
        before = text
    yield ""
