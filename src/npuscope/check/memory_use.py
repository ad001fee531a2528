"""What every kernel takes of each memory, and the constant that fills it: how large it may be.

A kernel may have several bodies (its branches); a space is as full as the fullest of them makes it. Axes get their
names where a tile is sliced: `w[k : k + TK, n : n + TN]` or `pl.slice(w, [TK, TN], …)`. Products and element-wise ops
hand them on. A constant is tried at smaller values by planning the body again.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import lru_cache

from npuscope.base.frozen import dataclass
from npuscope.check.rule import Finding, Rule
from npuscope.lower.build import build
from npuscope.lower.lowering import passed
from npuscope.lower.memory_plan import SpacePlan, plan_memory
from npuscope.lower.model import Instruction, Lowered, carries
from npuscope.lower.program import PlannedBody, Program
from npuscope.lower.source import statement_at
from npuscope.ops.shaping import SLICE
from npuscope.ops.transfers import LOAD
from npuscope.tile.record.model import Site


@dataclass(frozen=True)
class Usage:
    """One memory of one function, in the body that fills it most."""

    function: str
    body: PlannedBody
    space: SpacePlan

    @property
    def share(self) -> float:
        return self.space.used / self.space.limit


def usages(bodies: Iterable[PlannedBody]) -> tuple[Usage, ...]:
    """Per function and space the fullest body; functions in order of their first task."""
    fullest: dict[tuple[str, str], Usage] = {}
    for body in bodies:
        for space in body.plan:
            usage = Usage(body.function(space), body, space)
            known = fullest.get((usage.function, space.space))
            if known is None or space.used > known.space.used:
                fullest[usage.function, space.space] = usage
    return tuple(fullest.values())


AxisNames = tuple[str | None, ...]
STEP = 16  # tiles are multiples of it
SHAPE_AT = {**dict.fromkeys(SLICE.names, 1), **dict.fromkeys(LOAD.names, 2)}  # the argument that is a tile's shape


def advice(program: Program, usage: Usage) -> str:
    """The constant that decides the tiles of a memory and the largest value that would fit; "" where none is known.

    One with which all of the kernel fits comes before one with which this memory does.
    """
    recorded = build(program.recording, program.recording.tasks[usage.body.task], usage.body.lowered.body)
    axes = axes_of(recorded, program)
    here = ""
    for name, value in _names(usage.space, recorded, axes):
        full: dict[int, set[str]] = {}  # value of the constant -> the spaces that are too small
        for size in range(STEP, value, STEP):
            lowered = passed(resized(recorded, axes, name, size), program.device, program.lowering)
            full[size] = {space.space for space in plan_memory(lowered, program.device) if not space.fits}
        if fits := [size for size, spaces in full.items() if not spaces]:
            return f"{name} = {value} is too large: {_up_to(fits, value)}."
        fits = [size for size, spaces in full.items() if usage.space.space not in spaces]
        if fits and not here:
            here = f"{name} = {value} is too large for {usage.space.space}: {_up_to(fits, value)} there."
    return here


def _up_to(fits: list[int], value: int) -> str:
    divisors = [size for size in fits if value % size == 0]
    beside = ""
    if divisors and max(divisors) != fits[-1]:
        beside = f" ({max(divisors)} is the largest that divides {value})"
    return f"up to {fits[-1]} fits{beside}"


def _names(space: SpacePlan, recorded: Lowered, axes: dict[int, AxisNames]) -> Iterator[tuple[str, int]]:
    """Constants of the tiles that fill a space most, the innermost axis of the largest first."""
    known: set[str] = set()
    by_name = {(value.site, value.name, value.shape): value.id for value in recorded.values}
    for slot in sorted(space.slots, key=lambda slot: -slot.bytes):
        for tenant in slot.tenants:
            number = by_name.get((tenant.value.site, tenant.value.name, tenant.value.shape))
            if number is None:
                continue
            for name, size in zip(reversed(axes[number]), reversed(tenant.value.shape), strict=False):
                if name is not None and name not in known:
                    known.add(name)
                    yield name, size


def resized(recorded: Lowered, axes: dict[int, AxisNames], name: str, size: int) -> Lowered:
    """The body with another value of a constant."""
    values = tuple(
        value._replace(
            shape=tuple(size if axis == name else n for n, axis in zip(value.shape, axes[value.id], strict=True))
        )
        for value in recorded.values
    )
    return replace(recorded, values=values)


def axes_of(recorded: Lowered, program: Program) -> dict[int, AxisNames]:
    """The name of each axis of each value, None where the source does not say."""
    found: dict[int, AxisNames] = {}
    loads: Counter[int] = Counter()  # site -> loads met: the n-th load of a line is its n-th slice
    for one in recorded.instructions:
        if one.result is not None:
            found[one.result] = _axes(one, recorded, found, program, loads[one.site])
            loads[one.site] += one.plane == "load"
    for carry in carries(recorded.items):
        found[carry.value] = found.get(carry.next, (None,) * len(recorded.values[carry.value].shape))
    return {value.id: found.get(value.id, (None,) * len(value.shape)) for value in recorded.values}


def _axes(one: Instruction, recorded: Lowered, found: dict[int, AxisNames], program: Program, nth: int) -> AxisNames:
    assert one.result is not None
    values = recorded.values
    shape = values[one.result].shape
    nothing: AxisNames = (None,) * len(shape)
    if one.plane == "load":
        sliced = [axes for axes in sliced_axes(program.site_in(recorded, one.site)) if len(axes) == len(shape)]
        return sliced[nth % len(sliced)] if sliced else nothing
    if one.plane == "cube" and one.operands[1] is not None and one.operands[2] is not None:
        left, right = (found.get(number) for number in one.operands[1:3] if number is not None)
        if left is None or right is None or len(left) < 2 or len(right) < 2:
            return nothing
        rows = left[-1] if one.attribute("a_trans") else left[-2]
        columns = right[-2] if one.attribute("b_trans") else right[-1]
        return (*nothing[:-2], rows, columns)
    for number in one.reads:
        if values[number].shape == shape and number in found:
            return found[number]
    return nothing


@lru_cache(maxsize=1024)
def sliced_axes(site: Site) -> tuple[AxisNames, ...]:
    """The names of the axes of every slice on a line of the source, in the order in which they are evaluated."""
    statement, line = statement_at(site), site.line
    found: list[tuple[tuple[int, int], AxisNames]] = []
    for node in ast.walk(statement) if statement is not None else ():
        if not isinstance(node, ast.Subscript | ast.Call) or not node.lineno <= line <= (node.end_lineno or line):
            continue
        if isinstance(node, ast.Subscript):
            parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            if isinstance(node.ctx, ast.Load) and any(isinstance(part, ast.Slice) for part in parts):
                found.append(((node.lineno, node.col_offset), tuple(_extent(part) for part in parts)))
        elif isinstance(node.func, ast.Attribute):
            place = SHAPE_AT.get(node.func.attr, len(node.args))
            shape = node.args[place] if place < len(node.args) else None
            if isinstance(shape, ast.List | ast.Tuple):
                found.append(((node.lineno, node.col_offset), tuple(_name(part) for part in shape.elts)))
    return tuple(axes for _, axes in sorted(found, key=lambda one: one[0]))


def _extent(part: ast.expr) -> str | None:
    """NAME of `a : a + NAME` or of `0 : NAME`."""
    if not isinstance(part, ast.Slice) or part.upper is None:
        return None
    if isinstance(part.upper, ast.BinOp) and isinstance(part.upper.op, ast.Add):
        same = part.lower is not None and ast.dump(part.upper.left) == ast.dump(part.lower)
        return _name(part.upper.right) if same else None
    zero = part.lower is None or (isinstance(part.lower, ast.Constant) and part.lower.value == 0)
    return _name(part.upper) if zero else None


def _name(node: ast.expr) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else None


Problem = tuple[int, str, str]  # line as the body numbers them, message, fix


def problems(
    rule: Rule, program: Program, look: Callable[[PlannedBody, Program], Iterator[Problem]]
) -> Iterator[Finding]:
    """A finding for every problem of every lowered body; equal ones of several bodies once."""
    seen = set()
    for body in program.planned.values():
        for line, message, fix in look(body, program):
            site = program.site_in(body.lowered, line)
            if (site, message) not in seen:
                seen.add((site, message))
                yield rule.at(site, message, fix, body.kernel)
