"""variance-not-rsqrt: a normalisation that scales by mean(x²) + eps where it should scale by 1 / √(mean(x²) + eps).

In the kernel it is told from what ran: x is squared, summed along its rows, scaled or shifted by a number, and then
multiplies (or divides) x again with no root on the way. The golden is read too: if it has the same fault, its check
passes and says nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace

from npuscope.check.findings import Finding
from npuscope.check.flow.dataflow import Flow, flows_of
from npuscope.check.rule import Example, Rule
from npuscope.check.source.goldens import faulty_goldens
from npuscope.lower.program import Program
from npuscope.lower.source import read
from npuscope.ops.reductions import ROW_SUM
from npuscope.ops.spec import Role
from npuscope.tile.record.model import Op, Site, Task


@dataclass(frozen=True)
class _Fact:
    """What a value is made of: `buffers` it was loaded from; `power` 2 where it is data squared; `summed` along rows,
    then `scaled` or shifted by a number, as a mean with its eps is.
    """

    buffers: frozenset[int]
    power: int = 1
    summed: bool = False
    scaled: bool = False


FILLED = _Fact(frozenset(), 0)  # a tile of one number


def check(program: Program) -> Iterator[Finding]:
    faulty = False
    for launch in program.launches:
        task = program.first_task(launch)
        places: dict[tuple[str, int], Op] = {}
        for body, _ in launch.bodies:
            for op in _faults(flows_of(program)[body], task):
                site = program.site(op.site)
                places[site.file, site.line] = op
        for (file, line), op in places.items():
            faulty = True
            yield RULE.at(
                Site(file, line, program.site(op.site).function),
                f"{op.name} scales x by mean(x²) + eps itself; a normalisation scales by 1 / √(mean(x²) + eps)",
                "Take rsqrt of the mean of squares before it multiplies.",
                kernel=launch.kernel,
                change=_changed(file, line, op),
                count=len(launch.tasks),
            )
    if faulty:
        yield from _in_golden(program)


def _faults(flow: Flow, task: Task) -> list[Op]:
    """Ops that scale data by its own bare mean of squares."""
    facts: list[_Fact | None] = [None] * len(flow.steps)
    found: dict[int, Op] = {}
    for _ in range(2):  # what a loop carries is made further down
        for step in flow.steps:
            operands = [_met([facts[n] for n in operand.makers]) for operand in step.operands if operand.makers]
            if _is_fault(step.op, operands):
                found[step.number] = step.op
            else:
                facts[step.number] = _fact(step.op, operands, task)
    return list(found.values())


def _met(facts: list[_Fact | None]) -> _Fact | None:
    """What an operand is that several steps may have made: a sum that began with zeros is a sum."""
    told = [fact for fact in facts if fact is not None]
    return next((fact for fact in told if fact is not FILLED), told[0] if told else None)


def _is_fault(op: Op, operands: list[_Fact | None]) -> bool:
    if not op.spec.is_a(Role.PRODUCT, Role.QUOTIENT) or len(operands) != 2 or op.operands[0] == op.operands[1]:
        return False
    left, right = operands
    if left is None or right is None:
        return False
    return _normalises(right, left) or (op.spec.is_a(Role.PRODUCT) and _normalises(left, right))


def _fact(op: Op, operands: list[_Fact | None], task: Task) -> _Fact | None:
    """What an op makes of its operands; None where that is no part of a normalisation, such as a root."""
    reads = frozenset(task.arguments[access.argument].buffer for access in op.accesses if access.mode == "read")
    if reads:
        return _Fact(reads)
    if op.spec.is_a(Role.FILL):
        return FILLED
    values = [fact for fact in operands if fact is not None]
    if not values or len(values) < len(operands):
        return None
    if op.spec.is_a(Role.KEEPS_VALUES):
        return values[-1]  # of a spread, the vector that is spread
    if op.spec is ROW_SUM:
        return replace(values[0], summed=True) if values[0].power == 2 else None
    if not op.spec.is_a(Role.PRODUCT, Role.QUOTIENT, Role.TERM):
        return None
    if len(values) == 1:  # with a number
        return replace(values[0], scaled=values[0].summed)
    left, right = values
    if op.spec.is_a(Role.TERM):
        return _added(left, right)
    if op.operands[0] == op.operands[1]:
        return replace(left, power=2) if left.power == 1 and op.spec.is_a(Role.PRODUCT) else None
    if FILLED in values:
        value = left if right is FILLED else right
        return replace(value, scaled=value.summed)
    return _added(left, right)


def _normalises(mean: _Fact, data: _Fact) -> bool:
    return mean.summed and mean.scaled and data.power == 1 and not data.summed and bool(mean.buffers & data.buffers)


def _added(left: _Fact, right: _Fact) -> _Fact | None:
    """Data with data is data, sums of squares with sums of squares are one; zeros to start from change nothing."""
    if FILLED in (left, right):
        return left if right is FILLED else right
    if (left.power, left.summed) != (right.power, right.summed):
        return None
    return replace(left, buffers=left.buffers | right.buffers, scaled=left.scaled or right.scaled)


def _changed(file: str, line: int, op: Op) -> str:
    """The line with the vector in an rsqrt, where the call stands on it whole."""
    source = read(file)
    calls = [] if source is None else list(source.calls_at(line, op.spec))
    if source is None or len(calls) != 1 or len(calls[0].args) != 2 or not isinstance(calls[0].func, ast.Attribute):
        return ""
    module, vector = calls[0].func.value, calls[0].args[1]
    if not isinstance(module, ast.Name) or not line == vector.lineno == vector.end_lineno:
        return ""
    return source.replaced(vector, f"{module.id}.rsqrt({source.segment(vector)})")


def _in_golden(program: Program) -> Iterator[Finding]:
    files = dict.fromkeys(site.file for site in program.recording.sites)
    for function, lines in faulty_goldens(program.golden, files):
        for line in lines:
            yield RULE.at(
                Site(function.file, line, function.name),
                "the golden scales by mean(x²) + eps too, so its check passes although both are wrong",
                "Multiply by 1 / sqrt(mean(x²) + eps) in the golden and in the kernel.",
            )


RULE = Rule(
    "variance-not-rsqrt",
    "warning",
    "a normalisation multiplies by the variance instead of its reciprocal root",
    "RMSNorm and LayerNorm scale by 1 / √(mean(x²) + eps). Without the root the numbers are wrong, and a golden "
    "with the same fault does not tell; where mean(x²) is about 1 the two are even close.",
    check,
    Example(
        "normed = pl.row_expand_mul(x, pl.add(mean_of_squares, EPS))",
        "normed = pl.row_expand_mul(x, pl.rsqrt(pl.add(mean_of_squares, EPS)))",
    ),
    about="quality",
)
