"""The cube and the vector half of one computation as two tasks that hand over one to one."""

from __future__ import annotations

from collections.abc import Iterator

from npuscope.check.findings import Finding
from npuscope.check.rule import Example, Rule
from npuscope.check.wording.handed_over import are_halves, handed_over, told
from npuscope.lower.program import Program


def check(program: Program) -> Iterator[Finding]:
    for together in handed_over(program):
        if are_halves(together):
            what = "the cube and the vector half of one computation are two tasks{often}"
            yield told(RULE, program, together, what)


RULE = Rule(
    "split-halves",
    "hint",
    "cube and vector halves in separate tasks",
    "A mixed task overlaps its cube and its vector cores tile by tile; two tasks run one after the other and pass "
    "everything through global memory.",
    check,
    Example(
        "with pl.at(level=CORE):\n"
        "    gate = pl.matmul(x, w, out_dtype=pl.FP32)\n"
        "with pl.at(level=CORE):\n"
        "    out = pl.assemble(out, pl.mul(gate, scale), [0, n0])",
        "with pl.at(level=CORE):\n"
        "    gate = pl.matmul(x, w, out_dtype=pl.FP32)\n"
        "    out = pl.assemble(out, pl.mul(gate, scale), [0, n0])",
        "bytes written and read back, tasks saved",
    ),
)
