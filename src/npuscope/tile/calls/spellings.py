"""Every spelling of the language with the function it calls, and Python's operators and subscripts, which mean ops.

Importing this module puts the operators into the classes of tensors and tiles.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence

from npuscope.ops.elementwise import ADD, DIV, MUL, NEG, SUB
from npuscope.ops.spec import OpSpec
from npuscope.ops.table import BY_SPELLING
from npuscope.tile.calls import by_index, crossing, cube, gathering, scalars, shaping, transfer
from npuscope.tile.calls.functions import FUNCTIONS, function_from
from npuscope.tile.fault import fault
from npuscope.tile.run.state import current
from npuscope.tile.values import checks
from npuscope.tile.values.checks import Scalar, describe, is_number
from npuscope.tile.values.lanes import Whole
from npuscope.tile.values.tensors import OperandValue, Tensor, Tile

WRITTEN_BY_HAND = (by_index, crossing, cube, gathering, scalars, shaping, transfer)  # importing binds functions


def function_of(spelling: str) -> Callable[..., object]:
    """What a spelling of an op calls."""
    function = FUNCTIONS.get(spelling)
    if function is None:
        spec = BY_SPELLING[spelling]
        function = function_from(spec)
        for name in spec.names:
            FUNCTIONS.setdefault(name, function)
    return FUNCTIONS[spelling]


def members(place: str) -> dict[str, Callable[..., object]]:
    """The ops of a namespace: `pl`, `tile` and `tensor` share every plain spelling, the rest is said with a dot."""
    shared = place in ("pl", "tile", "tensor")
    plain = {name: function_of(name) for name in BY_SPELLING if shared and "." not in name}
    dotted = [name for name in BY_SPELLING if name.rpartition(".")[0] == place]
    found = plain | {name.rpartition(".")[2]: function_of(name) for name in dotted}
    return found if place == "pl" else {name: _in_other_words(one) for name, one in found.items()}


# What `pl.tile` and `pl.tensor` call a parameter that `pl` calls otherwise: its place, or its name.
WORDS: dict[str, int | str] = {
    "tile": 0, "tensor": 0, "target": 0, "acc": 0, "src_tile": 0, "src0": 0, "src1": 1, "row_vec": 1, "col_vec": 1,
    "indices": "offset", "indexes": "index", "span": "",
}  # fmt: skip


def _in_other_words(function: Callable[..., object]) -> Callable[..., object]:
    known = inspect.signature(function).parameters
    if any(one.kind is one.VAR_KEYWORD for one in known.values()) and len(known) < 2:
        return function
    places = [name for name, one in known.items() if one.kind is one.POSITIONAL_OR_KEYWORD]
    words = {}
    for word, means in WORDS.items():
        name = means if isinstance(means, str) else places[means] if means < len(places) else ""
        if word not in known and (name in known or word == "span"):
            words[word] = name
    if not words:
        return function

    @functools.wraps(function)
    def call(*args: object, **named: object) -> object:
        for word in words.keys() & named.keys() if named else ():
            value = named.pop(word)
            if words[word]:
                named[words[word]] = value
        return function(*args, **named)

    return call


def _box(x: OperandValue, index: object) -> tuple[list[Whole], list[Whole], list[int]]:
    """Offsets, extents and the axes that a single number drops."""
    parts = list(index) if isinstance(index, tuple) else [index]
    if len(parts) > len(x.shape):
        raise fault(f"{len(parts)} indices for {describe(x)}")
    parts += [slice(None)] * (len(x.shape) - len(parts))
    offsets: list[Whole] = []
    extents: list[Whole] = []
    dropped = []
    for axis, (part, extent) in enumerate(zip(parts, x.shape, strict=True)):
        if isinstance(part, slice):
            if part.step not in (None, 1):
                raise fault(f"a slice of {describe(x)} with step {part.step}", "Slices have step 1.")
            first = 0 if part.start is None else part.start
            last = extent if part.stop is None else part.stop
            offsets.append(first)
            extents.append(last - first)
        elif is_number(part):
            offsets.append(checks.index(part, f"an index of {describe(x)}"))
            extents.append(1)
            dropped.append(axis)
        else:
            raise fault(f"an index of {describe(x)} must be a number or a slice, not {type(part).__name__}")
    return offsets, extents, dropped


def get(x: OperandValue, index: object) -> Tensor | Tile | Scalar:
    """A slice; one element where every axis has a number."""
    offsets, extents, dropped = _box(x, index)
    if len(dropped) == len(x.shape):
        return scalars.read(x, offsets)
    return shaping.slice(x, extents, offsets, drop_dims=dropped or None)


def put(x: OperandValue, index: object, value: object) -> None:
    """Writes in place."""
    offsets, extents, dropped = _box(x, index)
    if len(dropped) == len(x.shape) and is_number(value):
        scalars.write(x, offsets, value)
        return
    if is_number(value):
        raise fault(f"a slice of {describe(x)} = {value!r}", "Use pl.full for a tile of one value.")
    wanted = [int(n) for n in extents]
    # The slice may be as large as the tile or as the part of it that is written, its valid one.
    held = [_squeezed(shape) for shape in (getattr(value, "shape", None), getattr(value, "valid", None)) if shape]
    if held and _squeezed(wanted) not in held:
        raise fault(f"a slice {wanted} of {describe(x)} cannot take {describe(value)}")
    if isinstance(x, Tile):
        _put_tile(x, value, offsets)
        return
    transfer.assemble(x, value, offsets)


def _squeezed(shape: Sequence[int]) -> list[int]:
    return [n for n in shape if n != 1]


def _put_tile(x: Tile, value: object, offsets: list[Whole]) -> None:
    """A tile is a value; writing into it by subscript makes the name stand for the new one."""
    run = current()
    if x.block is not run.block:
        transfer.assemble(x, value, offsets)
        return
    run.shapes.changes(x)
    new = transfer.into_tile(run, x, value, offsets, in_place=True)
    x.array, x.frame, x.iteration, x.index = new.array, new.frame, new.iteration, new.index


def _operator(spec: OpSpec, swapped: bool = False) -> Callable[[OperandValue, object], object]:
    op = function_of(spec.name)

    def apply(self: OperandValue, other: object) -> object:
        return op(other, self) if swapped else op(self, other)

    return apply


def _negative(self: OperandValue) -> object:
    return function_of(NEG.name)(self)


for _method, _spec in {"add": ADD, "sub": SUB, "mul": MUL, "truediv": DIV}.items():
    setattr(OperandValue, f"__{_method}__", _operator(_spec))
    setattr(OperandValue, f"__r{_method}__", _operator(_spec, swapped=True))
for _method, _meaning in {"neg": _negative, "getitem": get, "setitem": put}.items():
    setattr(OperandValue, f"__{_method}__", _meaning)
