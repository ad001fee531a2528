"""rounding-mode: casts that lose bits in the default mode, which rounds ties away from zero; torch rounds them to even.

One finding per file: such casts come in dozens, and one decision settles them all. Tables that a kernel computes from
counters and constants alone hold whole numbers and round nowhere.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from npuscope.check.findings import Finding
from npuscope.check.flow.dataflow import Flow, flows_of
from npuscope.check.rule import Example, Rule
from npuscope.lower.program import Program
from npuscope.lower.source import read
from npuscope.ops.dtypes import BY_NAME
from npuscope.ops.elementwise import CAST
from npuscope.ops.spec import Role
from npuscope.tile.record.model import Op, Site
from npuscope.tile.record.walk import Step


def check(program: Program) -> Iterator[Finding]:
    casts: dict[str, dict[int, str]] = defaultdict(dict)  # file -> line -> types
    for flow in flows_of(program):
        for op, source, target in _rounding(flow):
            site = program.site(op.site)
            if _mode_left_out(site):
                casts[site.file][site.line] = f"{source} to {target}"
    for file, lines in casts.items():
        first, *others = sorted(lines)
        types = ", ".join(sorted(set(lines.values())))
        many = f"casts on {len(lines)} lines" if others else "a cast"
        yield RULE.at(
            Site(file, first, ""),
            f"{many} ({types}) in the default mode: ties round away from zero, in torch and NumPy to even",
            'Give mode="rint" where results must match a torch reference to the last bit.',
            change=_changed(file, first),
            count=len(lines),
            also=[Site(file, line, "") for line in others],
        )


def _rounding(flow: Flow) -> Iterator[tuple[Op, str, str]]:
    """Casts in the default mode that drop bits, with the types from and to."""
    for step in flow.steps:
        if (
            not step.op.spec.is_a(Role.CAST)
            or ("mode", "round") not in step.op.attributes
            or not _from_data(flow, step)
        ):
            continue
        for maker in flow.makers(step, 0):
            if maker.op.result is not None and _loses(maker.op.result.dtype, step.result.dtype):
                yield step.op, maker.op.result.dtype, step.result.dtype


def _from_data(flow: Flow, step: Step) -> bool:
    """Whether floating-point numbers out of global memory go into a value."""
    seen = {step.number}
    waiting = [step.number]
    for number in waiting:  # grows as it goes
        one = flow.steps[number]
        if one.op.accesses and one.op.result is not None and BY_NAME[one.op.result.dtype].is_float:
            return True
        new = {maker for operand in one.operands for maker in operand.makers} - seen
        seen |= new
        waiting += new
    return False


def _loses(source: str, target: str) -> bool:
    """Whether values of one type need rounding to become the other."""
    if source not in BY_NAME or target not in BY_NAME:
        return False
    one, other = BY_NAME[source], BY_NAME[target]
    if not one.is_float:
        return other.is_float and other.bytes < 4 and one.bytes >= 2
    return other.is_int or (other.is_float and other is not one and other.bytes <= one.bytes)


def _mode_left_out(site: Site) -> bool:
    source = read(site.file)
    calls = [] if source is None else list(source.calls_at(site.line, CAST))
    return any(len(call.args) < 3 and all(k.arg != "mode" for k in call.keywords) for call in calls)


def _changed(file: str, line: int) -> str:
    """The line with the mode given, where it holds one cast, whole."""
    source = read(file)
    calls = [] if source is None else list(source.calls_at(line, CAST))
    if source is None or len(calls) != 1 or calls[0].lineno != calls[0].end_lineno:
        return ""
    return source.replaced(calls[0], f'{source.segment(calls[0])[:-1]}, mode="rint")')


RULE = Rule(
    "rounding-mode",
    "hint",
    "casts round ties another way than torch",
    "pl.cast rounds ties away from zero unless told otherwise, torch and NumPy round them to even. bf16 sums and "
    "products are short, so ties are common: a last bit here and there, and a step of a quantised value, differ "
    "from the reference.",
    check,
    Example(
        "y = pl.cast(x, target_type=pl.BF16)",
        'y = pl.cast(x, target_type=pl.BF16, mode="rint")',
    ),
    about="quality",
)
