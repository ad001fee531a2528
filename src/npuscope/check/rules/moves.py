"""Tiles that the chip cannot move or store: illegal-move, unequal-move, store-type, atomic-type.

Also moves that nobody wrote: an accumulator that is still read after another product was added to it would have to be
copied; and what a turn leaves in a name takes the place of what was there before, which wants equal shapes and types.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

from npuscope.check.dataflow import flows_of
from npuscope.check.memory_use import Problem, problems
from npuscope.check.rule import Example, Finding, rule
from npuscope.lower.model import Instruction, Items, Lowered, Repeat, Value, carries, instructions
from npuscope.lower.program import PlannedBody, Program
from npuscope.lower.source import read
from npuscope.ops.spec import OpRole
from npuscope.tile.language.grammar import called
from npuscope.tile.record.model import Site

THROUGH_RING = "Leave the memory space out: the tile is then handed over through the ring between the cores."
OWN_ACCUMULATOR = (
    "Store the first result before the second product adds to it, or give the second an accumulator of its own "
    "(pl.matmul of the first K step, then pl.matmul_acc)."
)


def _moves(body: PlannedBody, program: Program) -> Iterator[Problem]:
    lowered = body.lowered
    rules = program.device.rules
    assert rules is not None
    multiplies = any(one.plane == "cube" for one in lowered.instructions)
    for one in lowered.instructions:
        if one.plane != "move" or one.spec.is_a(OpRole.RECEIVE) or not one.reads:
            continue
        source = lowered.values[one.reads[0]]
        sends = one.spec.is_a(OpRole.SEND)
        number = one.attribute("tile") if sends else one.result
        if not isinstance(number, int):
            continue
        target = lowered.values[number]
        way = f"{source.space}->{target.space}"
        fix = ""
        if way == "Acc->Acc":
            fix = "" if source.storage == target.storage else OWN_ACCUMULATOR  # the same, as its own way out makes it
        elif source.space == target.space or way in rules.moves:
            if way == "Acc->Mat" and not rules.ring_on_chip and target.dtype not in ("BF16", "FP16"):
                fix = 'Only BF16 or FP16 can go this way: pl.cast(…, pl.BF16, mode="rint") it first.'
        elif not sends:
            fix = "Only a product writes to Acc: begin with pl.matmul." if target.space == "Acc" else THROUGH_RING
        elif target.said and not (way == "Vec->Mat" and multiplies):  # which is handed over since September 2026
            fix = THROUGH_RING
        if fix:
            yield one.site, f"{source.name}: the chip has no move from {source.space} to {target.space}", fix
    yield from _accumulators(lowered)


def _accumulators(lowered: Lowered) -> Iterator[Problem]:
    """Sums in place whose old value is still needed."""
    order = lowered.instructions
    last = {number: n for n, one in enumerate(order) for number in one.reads}
    repeated = set(_read_every_turn(lowered.items))
    for n, one in enumerate(order):
        if one.plane != "cube" or one.operands[0] is None:
            continue
        old = one.operands[0]
        if (last[old] > n and order[last[old]].result != one.result) or old in repeated:
            message = "is still read after this product is added to it: that needs a copy from Acc to Acc"
            yield one.site, f"{lowered.values[old].name} {message}, which the chip does not have", OWN_ACCUMULATOR


def _read_every_turn(items: Items) -> Iterator[int]:
    """Accumulators from before a loop that each of its turns would add to anew."""
    for item in items:
        if isinstance(item, Repeat) and item.kind != "l0":
            made = {one.result for one in instructions(item.items)} | {carry.value for carry in carries((item,))}
            if item.count > 1:
                sums = (one.operands[0] for one in instructions(item.items) if one.plane == "cube")
                yield from (old for old in sums if old is not None and old not in made)
            yield from _read_every_turn(item.items)


@rule(
    "illegal-move",
    "error",
    "a move between memories that the chip does not have",
    "A tile reaches most memories only through another one; on chips without a ring on chip cube and vector cores "
    "hand over through global memory.",
    Example(
        "tile = pl.move(product, target_memory=pl.MemorySpace.Vec)  # Acc to Vec: not on 910B",
        "tile = pl.cast(product, target_type=pl.BF16)  # the compiler hands it over to the vector cores",
    ),
    about="chip",
)
def illegal_move(program: Program) -> Iterator[Finding]:
    return problems(illegal_move, program, _moves)


CARRYING = ("range", "pipeline", "parallel", "while_")
Tile = tuple[tuple[int, ...], str]
Shapes = dict[tuple[str, int], set[Tile]]  # of the last op of the statement that begins on this line


class MetName(NamedTuple):
    """A name where it is read or given a value."""

    name: str
    writes: bool
    line: int


@rule(
    "unequal-move",
    "warning",
    "a move between tiles of different shape",
    "A name that a loop carries is one place on chip. Where a turn leaves a tile of another shape or type in it the "
    "compiler would have to move one onto the other, and a move wants equal shapes. This is npuscope's reading of the "
    "compiler: the program is simulated all the same.",
    Example(
        "part = x[0:64, :]\nfor i in pl.range(4):\n    part = pl.add(part[0:32, :], 1.0)  # half as many rows",
        "part = x[0:32, :]\nfor i in pl.range(4):\n    part = pl.add(part, 1.0)",
    ),
    about="compiler",
)
def unequal_move(program: Program) -> Iterator[Finding]:
    shapes = _shapes(program)
    for file in dict.fromkeys(file for file, _ in shapes):
        source = read(file)
        lines = {line for other, line in shapes if other == file}
        for function in source.functions if source is not None else ():
            if lines.isdisjoint(range(function.lineno, (function.end_lineno or 0) + 1)):
                continue
            for name, first, second, how in _joined(function):  # functions inside others have their turn
                one, other = shapes.get((file, first)), shapes.get((file, second))
                if one and other and one.isdisjoint(other):
                    before, after = min(one), min(other)
                    yield unequal_move.at(
                        Site(file, second, function.name),
                        f"{name} is {_tile_text(after)} here and {_tile_text(before)} on line {first}, and {how}: the "
                        "compiler would have to move one tile onto the other, and a move wants equal shapes and types",
                        _equal_move_fix(name, before, after),
                        also=[Site(file, first, function.name)],
                    )


def _shapes(program: Program) -> Shapes:
    found: Shapes = defaultdict(set)
    sources = cache(read)
    for flow in flows_of(program):
        last: tuple[tuple[str, int], Tile] | None = None
        for step in flow.steps:
            site = program.site(step.op.site)
            source = sources(site.file)
            if source is None or site.line not in source.statements:
                continue
            place = (site.file, source.statements[site.line].start)
            if last is not None and last[0] != place:
                found[last[0]].add(last[1])
            result = step.op.result
            last = None if result is None else (place, (_matrix(result.shape), result.dtype))
        if last is not None:
            found[last[0]].add(last[1])
    return found


def _matrix(shape: Sequence[int]) -> tuple[int, ...]:
    """Without the ones in front, as a tile lies on chip: [1, 16, 256] is [16, 256]."""
    ones = next((n for n, size in enumerate(shape[:-2]) if size != 1), max(len(shape) - 2, 0))
    return tuple(shape[ones:])


def _joined(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[str, int, int, str]]:
    """Name, the lines of two values of which one takes the other's place, and why."""
    nodes = list(_statements(function))
    met = list(_names_met(function.body))
    for loop in nodes:
        if isinstance(loop, ast.For) and called(loop.iter) in CARRYING:
            yield from _carried_names(loop, met)
    for choice in nodes:
        if isinstance(choice, ast.If) and choice.orelse:
            yield from _branched(choice, met)


def _statements(node: ast.AST) -> Iterator[ast.stmt]:
    """The statements of a function without those of functions in it."""
    for field in ("body", "orelse", "handlers", "finalbody"):
        for part in getattr(node, field, ()):
            if not isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield part
                yield from _statements(part)


def _carried_names(loop: ast.For, met: Sequence[MetName]) -> Iterator[tuple[str, int, int, str]]:
    inside = [one for one in met if loop.lineno < one.line <= (loop.end_lineno or loop.lineno)]
    for name in dict.fromkeys(one.name for one in inside if one.writes):
        here = [one for one in inside if one.name == name]
        before = [one for one in met if one.name == name and one.writes and one.line < loop.lineno]
        after = next((one for one in met if one.name == name and one.line > (loop.end_lineno or loop.lineno)), None)
        if before and (not here[0].writes or (after is not None and not after.writes)):
            last = [one for one in here if one.writes][-1]
            yield name, before[-1].line, last.line, f"the loop on line {loop.lineno} carries it"


def _branched(choice: ast.If, met: Sequence[MetName]) -> Iterator[tuple[str, int, int, str]]:
    end, middle = choice.end_lineno or choice.lineno, choice.orelse[0].lineno
    arms = [
        {one.name: one.line for one in met if one.writes and low <= one.line <= high}
        for low, high in ((choice.lineno, middle - 1), (middle, end))
    ]
    for name in arms[0].keys() & arms[1].keys():
        after = next((one for one in met if one.name == name and one.line > end), None)
        if after is not None and not after.writes:
            yield name, arms[0][name], arms[1][name], f"it is either after the branch on line {choice.lineno}"


def _names_met(nodes: Iterable[ast.AST]) -> Iterator[MetName]:
    """Names in the order in which they are met; of an assignment what it reads first."""
    for node in nodes:
        if isinstance(node, ast.Name):
            yield MetName(node.id, isinstance(node.ctx, ast.Store), node.lineno)
            continue
        parts = list(ast.iter_child_nodes(node))
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
            parts.sort(key=lambda part: part is not node.value)
        yield from _names_met(parts)


def _tile_text(tile: Tile) -> str:
    return f"[{', '.join(map(str, tile[0]))}] {tile[1]}"


def _equal_move_fix(name: str, before: Tile, after: Tile) -> str:
    if before[0] == after[0]:
        return f"Give the {after[1]} value a name of its own, or pl.cast it to {before[1]}."
    return f"Give the value of {list(after[0])} a name of its own, or write it into a part of {name} (pl.assemble)."


def _stored(lowered: Lowered) -> Iterator[tuple[Instruction, Value]]:
    """Stores of tiles, with the tile."""
    for one in lowered.instructions:
        if one.plane == "store" and one.reads:
            yield one, lowered.values[one.reads[0]]


def _store_types(body: PlannedBody, program: Program) -> Iterator[Problem]:
    assert program.device.rules is not None
    rules = program.device.rules
    drained = {one.result: one for one in body.lowered.instructions if one.attribute("pre_quant") is not None}
    for one, tile in _stored(body.lowered):
        out, types = drained.get(one.reads[0]), rules.store_types
        if out is not None and (out.attribute("pre_quant") != 1 or tile.dtype.lower() not in types):
            types = rules.scaled_types[body.lowered.values[out.reads[0]].dtype.lower()]
        if tile.space == "Acc" and tile.dtype.lower() not in types:
            how = "an accumulator cannot be stored" if out is None else "the accumulator's way out cannot scale it"
            fix = f"Store it as one of {', '.join(sorted(types)).upper()}, or cast it on the vector cores first."
            yield one.site, f"{tile.name}: {how} as {tile.dtype}", fix


@rule(
    "store-type",
    "error",
    "an accumulator stored as a type it cannot have",
    "Draining the accumulator converts to a few types only; others go through a vector core.",
    Example(
        "out = pl.assemble(out, pl.matmul(a, b, out_dtype=pl.BF16), [0, 0])  # on a chip that drains FP32 only",
        "out = pl.assemble(out, pl.cast(pl.matmul(a, b, out_dtype=pl.FP32), pl.BF16), [0, 0])",
    ),
    about="chip",
)
def store_type(program: Program) -> Iterator[Finding]:
    return problems(store_type, program, _store_types)


def _atomic_types(body: PlannedBody, program: Program) -> Iterator[Problem]:
    assert program.device.rules is not None
    types = program.device.rules.atomic_types
    fix = f"Add one of {', '.join(sorted(types)).upper()}, or sum the parts in a task of their own."
    for one, tile in _stored(body.lowered):
        if tile.dtype.lower() not in types and any(access.mode == "add" for access in one.accesses):
            yield one.site, f"{tile.name}: global memory cannot add {tile.dtype}", fix


@rule(
    "atomic-type",
    "error",
    "an atomic add of a type that global memory cannot add",
    "The memory itself adds, and it knows a few types only.",
    Example(
        "out = pl.assemble(out, tile, [0, 0], atomic=pl.AtomicType.Add)  # BF16 on the 950",
        "out = pl.assemble(out, pl.cast(tile, pl.FP32), [0, 0], atomic=pl.AtomicType.Add)  # out is FP32",
    ),
    about="chip",
)
def atomic_type(program: Program) -> Iterator[Finding]:
    return problems(atomic_type, program, _atomic_types)
