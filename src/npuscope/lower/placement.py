"""Where every value lies, and the moves that follow; before that, casts as the chip can do them.

Products are in Acc, operands of products in Mat, everything else in Vec; what the program says goes first. A tile
that is loaded for both kinds of core is loaded twice. Where a reader needs a value elsewhere than it lies, a move is
put before the reader, outside the loops that do not change it. Moves between cores become hand-overs in `cores`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from npuscope.chip.devices import Device
from npuscope.lower.chip import matrix
from npuscope.lower.model import Instruction, Items, Lowered, Repeat, Value, add_value, rewritten
from npuscope.ops.cube import MATMUL
from npuscope.ops.elementwise import COL_EXPAND
from npuscope.ops.rounding import cast_chain
from npuscope.ops.shaping import SLICE
from npuscope.ops.spec import OpRole
from npuscope.ops.transfers import COPY, MOVE

NARROWED = ("BF16", "FP16")  # what leaves an accumulator narrower than it is


def expand_casts(lowered: Lowered, device: Device) -> Lowered:
    """Every vector cast as the instructions that do it."""
    casts = device.rules.casts if device.rules else {}
    values = list(lowered.values)

    def each(one: Instruction) -> Iterator[Instruction]:
        if one.spec.is_a(OpRole.CAST) and one.plane == "vector" and one.result is not None and one.reads:
            source, target = values[one.reads[0]].dtype.lower(), values[one.result].dtype.lower()
            for step in cast_chain(source, target, casts)[:-1]:
                number = add_value(values, values[one.result], dtype=step.upper())
                yield one._replace(result=number)
                one = one._replace(operands=(number,))
        yield one

    return replace(lowered, items=rewritten(lowered.items, each), values=tuple(values))


def place(lowered: Lowered) -> Lowered:
    """Every value with its space, every reader with its operands where it needs them."""
    lowered = _without_zero_seeds(_twice_loaded(lowered))
    spaces = _spaces(lowered)
    values = [value._replace(space=spaces[value.storage]) for value in lowered.values]
    return _Mover(lowered, values).moved()


def copy_windows(lowered: Lowered) -> Lowered:
    """Slices of tiles that meet a row (`col_expand_mul`, …), whose instructions cannot read a part of a tile, copied.

    A part of several rows goes to a tile of its own before each of its readers; one that lies in one piece is copied
    onto itself before the first. (pypto docs/en/dev/passes/16-canonicalize_tile_slice.md)
    """
    makers = {one.result: one for one in lowered.instructions}
    values, whole = list(lowered.values), set[int]()

    def window(number: int | None) -> Value | None:
        """The tile that a slice in Vec is a part of."""
        if number is None or values[number].space != "Vec":
            return None
        base = number
        while (maker := makers.get(base)) and maker.plane == "view" and maker.spec is SLICE and maker.reads:
            base = maker.reads[0]
        return None if base == number else values[base]

    def each(one: Instruction) -> Iterator[Instruction]:
        operands = list(one.operands)
        for at, number in enumerate(operands if _meets_a_row(one) else ()):
            base = window(number)
            if base is None or number is None or number in whole:
                continue
            (rows, columns), storage = matrix(values[number].shape), {}
            if rows == 1 or columns == matrix(base.shape)[1]:
                whole.add(number)
                storage = {"storage": values[number].storage}
            operands[at] = add_value(values, values[number], said=False, **storage)
            yield Instruction(COPY.name, COPY.plane, one.site, (number,), operands[at])
        yield one._replace(operands=tuple(operands))

    return replace(lowered, items=rewritten(lowered.items, each), values=tuple(values))


def _meets_a_row(one: Instruction) -> bool:
    return one.spec.axis == "columns" and one.spec.form == "spread" and one.spec is not COL_EXPAND


def demand(instruction: Instruction, operand: int) -> str:
    """The space in which an op needs an operand; "" where any will do."""
    if instruction.plane == "cube":
        scaled = operand > 2 and len(instruction.operands) > 4  # the scales of an MX product
        return "Mat" if scaled else ("Acc", "Mat", "Mat", "Bias")[operand]
    if instruction.spec.is_a(OpRole.FROM_MAT):
        return "Mat"
    return "Vec" if instruction.plane in ("vector", "scalar") else ""


# --- spaces


def _spaces(lowered: Lowered) -> dict[int, str]:
    """The space of every storage."""
    said = {value.storage: value.space for value in lowered.values if value.said}
    made: dict[int, set[str]] = defaultdict(set)
    for one in lowered.instructions:
        if one.result is not None:
            inherits = one.spec.is_a(OpRole.INHERITS_SPACE)
            made[lowered.values[one.result].storage].add("inherits" if inherits else one.plane)
    wanted = demands(lowered)
    found = dict(said)
    for value in lowered.values:
        if value.storage in found:
            continue
        makers, uses = made[value.storage], wanted[value.storage]
        computed = "vector" in makers or ("inherits" in makers and not _only_loaded(lowered, value.storage))
        found[value.storage] = "Mat" if uses and uses <= {"Mat"} and not computed else "Vec"
    return found


def demands(lowered: Lowered) -> dict[int, set[str]]:
    """Storage -> the spaces its readers need it in, also through ops that work where their operand lies."""
    wanted: dict[int, set[str]] = defaultdict(set)
    order = list(lowered.instructions)
    copies = [one for one in order if one.spec.is_a(OpRole.COPY)]
    for one in reversed(order):
        for n, value in enumerate(one.operands):
            if value is None:
                continue
            storage = lowered.values[value].storage
            if one.spec.is_a(OpRole.INHERITS_SPACE) and one.result is not None:
                wanted[storage] |= wanted[lowered.values[one.result].storage] or {"Vec"}
            elif need := demand(one, n):
                wanted[storage].add(need)
    for _ in copies:  # of copies, for what is copied once more
        for one in copies:
            assert one.result is not None
            wanted[lowered.values[one.reads[0]].storage] |= wanted[lowered.values[one.result].storage]
    return wanted


def _only_loaded(lowered: Lowered, storage: int) -> bool:
    """Whether a storage comes from GM by ops that need no vector core."""
    for one in lowered.instructions:
        if one.result is None or lowered.values[one.result].storage != storage or one.plane == "view":
            continue
        if one.spec.is_a(OpRole.INHERITS_SPACE):
            source = lowered.values[one.reads[0]]
            if source.storage != storage and not _only_loaded(lowered, source.storage):
                return False
        elif one.plane != "load":
            return False
    return True


# --- rewrites before


def _twice_loaded(lowered: Lowered) -> Lowered:
    """A tile that both kinds of core read is loaded for each: the loads of the cube core get values of their own."""
    wanted = demands(lowered)
    loads = {one.result for one in lowered.instructions if one.plane == "load" and one.result is not None}
    both = {
        number
        for number in loads
        if not lowered.values[number].said and wanted[lowered.values[number].storage] == {"Mat", "Vec"}
    }
    if not both:
        return lowered
    values = list(lowered.values)
    twins: dict[int | None, int] = {}  # of what is loaded for both, and of views of that

    def each(one: Instruction) -> Iterator[Instruction]:
        if one.result in both:
            twins[one.result] = add_value(values, values[one.result])
            yield one._replace(result=twins[one.result])
        elif one.plane == "view" and one.operands and one.operands[0] in twins and one.result is not None:
            source = twins[one.operands[0]]
            twins[one.result] = add_value(values, values[one.result], storage=values[source].storage)
            yield one._replace(operands=(source, *one.operands[1:]), result=twins[one.result])
        elif one.plane == "cube":
            one = one._replace(operands=tuple(twins.get(number, number) for number in one.operands))
        yield one

    return replace(lowered, items=rewritten(lowered.items, each), values=tuple(values))


def _without_zero_seeds(lowered: Lowered) -> Lowered:
    """An accumulator seeded by `full`: the first product overwrites instead, for nothing can be put into Acc."""
    seeds = {one.result for one in lowered.instructions if one.spec.is_a(OpRole.FILL)}
    used = {v for one in lowered.instructions for n, v in enumerate(one.operands) if (one.plane, n) != ("cube", 0)}
    dropped = {one.operands[0] for one in lowered.instructions if one.plane == "cube"} & seeds - used

    def each(one: Instruction) -> Iterator[Instruction]:
        if one.plane == "cube" and one.operands[0] in dropped:
            yield one._replace(name=MATMUL.name, operands=(None, *one.operands[1:]))
        elif one.result not in dropped:
            yield one

    return replace(lowered, items=rewritten(lowered.items, each)) if dropped else lowered


# --- moves


LoopPath = tuple[int, ...]  # places of the loops around, outermost first


class _Mover:
    """Puts a move before the readers of a value that lies elsewhere."""

    def __init__(self, lowered: Lowered, values: list[Value]) -> None:
        self.lowered = lowered
        self.values = values
        self.folded = self._folded_casts()
        self.paths: dict[int, LoopPath] = {}
        self._find_paths(lowered.items, ())

    def moved(self) -> Lowered:
        items = tuple(self._items(self.lowered.items, (), {}))
        return replace(self.lowered, items=items, values=tuple(self.values))

    def _find_paths(self, items: Items, path: LoopPath) -> None:
        """Where each value comes to be."""
        for n, item in enumerate(items):
            if isinstance(item, Repeat):
                inside = (*path, n)
                self.paths |= {carry.value: inside for carry in item.carries}
                self._find_paths(item.items, inside)
            elif item.result is not None:
                self.paths[item.result] = path

    def _folded_casts(self) -> set[int]:
        """Results of casts that the accumulator's own way out does: rounded to even, read by products only."""
        wanted = demands(self.lowered)
        found = set()
        for one in self.lowered.instructions:
            if one.spec.is_a(OpRole.CAST) and one.plane == "vector" and one.result is not None and one.reads:
                source, result = self.values[one.reads[0]], self.values[one.result]
                rint = one.attribute("mode") == "rint" and result.dtype in NARROWED
                if source.space == "Acc" and source.dtype == "FP32" and rint and wanted[result.storage] == {"Mat"}:
                    found.add(one.result)
        for number in found:
            self.values[number] = self.values[number]._replace(space="Mat")
        return found

    def _items(self, items: Items, path: LoopPath, known: dict[tuple[int, str], int]) -> Iterator[Instruction | Repeat]:
        known = dict(known)
        for n, item in enumerate(items):
            inside = (*path, n) if isinstance(item, Repeat) else path
            for one, at in _nested(item, inside):
                for k, number in enumerate(one.operands):
                    if number is None or not self._misplaced(one, k, number):
                        continue
                    here = _common(self.paths[number], at) == path
                    key = (number, demand(one, k))
                    if here and key not in known:
                        known[key] = add_value(self.values, self.values[number], space=key[1], said=False)
                        yield Instruction(MOVE.name, MOVE.plane, one.site, (number,), known[key])
            if isinstance(item, Repeat):
                yield replace(item, items=tuple(self._items(item.items, inside, known)))
            else:
                yield self._with_operands(item, known)

    def _with_operands(self, one: Instruction, known: dict[tuple[int, str], int]) -> Instruction:
        operands = tuple(
            known[number, demand(one, k)] if number is not None and self._misplaced(one, k, number) else number
            for k, number in enumerate(one.operands)
        )
        plane = "move" if one.result in self.folded or self._in_mat(one) else one.plane
        return one._replace(operands=operands, plane=plane)

    def _in_mat(self, one: Instruction) -> bool:
        return (
            one.spec.is_a(OpRole.INHERITS_SPACE) and one.result is not None and self.values[one.result].space == "Mat"
        )

    def _misplaced(self, one: Instruction, operand: int, number: int) -> bool:
        need, space = demand(one, operand), self.values[number].space
        if one.result in self.folded or self._in_mat(one):
            return False
        if one.plane == "cube" and operand and space in ("Left", "Right", "LeftScale", "RightScale"):
            return False
        return bool(need) and space != need


def _nested(item: Instruction | Repeat, path: LoopPath) -> Iterator[tuple[Instruction, LoopPath]]:
    if isinstance(item, Instruction):
        yield item, path
    else:
        for n, inner in enumerate(item.items):
            yield from _nested(inner, (*path, n) if isinstance(inner, Repeat) else path)


def _common(one: LoopPath, other: LoopPath) -> LoopPath:
    n = 0
    while n < min(len(one), len(other)) and one[n] == other[n]:
        n += 1
    return one[:n]
