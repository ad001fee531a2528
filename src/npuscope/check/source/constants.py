"""The whole-number constants of a source file, evaluated without running it.

Only what a reader could work out from the text: literals, arithmetic, min, max and len of other constants, and names
imported from a file beside it. Whatever depends on more (an argument, an environment variable) is unknown and left out.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from npuscope.lower.source import Function, SourceFile, read

MOST = 10**15  # beyond it nothing is a size
_BINARY: dict[type[ast.operator], Callable[..., object]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.BitAnd: operator.and_,
}
_COMPARE: dict[type[ast.cmpop], Callable[..., bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda a, b: operator.contains(b, a),
    ast.NotIn: lambda a, b: not operator.contains(b, a),
}
_UNARY: dict[type[ast.unaryop], Callable[..., object]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
}
_CALLS: dict[str, Callable[..., object]] = {"min": min, "max": max, "len": len}


class NotTold(Exception):
    """An expression that the text alone does not tell."""


def value_of(node: ast.expr, known: Mapping[str, object]) -> object:
    """An expression's value from constants alone; raises NotTold."""
    try:
        value = _value(node, known)
    except (ArithmeticError, TypeError, ValueError, RecursionError) as error:
        raise NotTold from error
    if isinstance(value, int | float) and abs(value) > MOST:
        raise NotTold
    return value


def number_of(node: ast.expr, known: Mapping[str, object]) -> float:
    """The same of an expression that is a number; raises NotTold for others."""
    value = value_of(node, known)
    if not isinstance(value, int | float):
        raise NotTold
    return value


def _value(node: ast.expr, known: Mapping[str, object]) -> object:
    match node:
        case ast.Constant(value=bool() | int() | float() as value):
            return value
        case ast.Name(id=name) if name in known:
            return known[name]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _BINARY[type(op)](value_of(left, known), value_of(right, known))
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
            return _UNARY[type(op)](value_of(operand, known))
        case ast.BoolOp(op=op, values=[*values, last]):
            for part in (value_of(value, known) for value in values):
                if bool(part) is isinstance(op, ast.Or):
                    return part
            return value_of(last, known)
        case ast.Compare(left=left, ops=ops, comparators=others):
            sides = [value_of(side, known) for side in (left, *others)]
            return all(_compare(op)(*pair) for op, *pair in zip(ops, sides, sides[1:], strict=False))
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return tuple(value_of(part, known) for part in parts)
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _CALLS and name not in known:
            return _CALLS[name](*(value_of(argument, known) for argument in arguments))
    raise NotTold


def _compare(op: ast.cmpop) -> Callable[..., bool]:
    if type(op) not in _COMPARE:
        raise NotTold
    return _COMPARE[type(op)]


@dataclass(frozen=True)
class Binding:
    """`NAME = expression`; `function` is the one it stands in, None at the module's level."""

    name: str
    line: int
    expression: ast.expr
    function: Function | None


@lru_cache(maxsize=64)
def bindings(source: SourceFile) -> tuple[Binding, ...]:
    """Every assignment to an upper-case name, `A, B = 1, 2` taken apart, in the order of the file."""
    found = []
    for node in source.nodes:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        value = node.value
        around = source.function_at(node.lineno)
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            pairs: list[tuple[ast.expr, ast.expr]] = [(target, value)]
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
                pairs = list(zip(target.elts, value.elts, strict=True))
            for name, part in pairs:
                if isinstance(name, ast.Name) and name.id.isupper():
                    found.append(Binding(name.id, node.lineno, part, around))
    return tuple(sorted(found, key=lambda binding: binding.line))


@lru_cache(maxsize=64)
def imported(source: SourceFile, depth: int = 3) -> Mapping[str, object]:
    """Constants that `from neighbour import NAME` brings in, read from the neighbour's text."""
    found: dict[str, object] = {}
    for node in source.nodes if depth else ():
        if isinstance(node, ast.ImportFrom):
            neighbour = _neighbour(source.file, node)
            if neighbour is not None:
                values = module_constants(neighbour, depth - 1)
                for alias in node.names:
                    if alias.name in values:
                        found[alias.asname or alias.name] = values[alias.name]
    return found


def _neighbour(file: str, node: ast.ImportFrom) -> SourceFile | None:
    """The file of an imported module, if it lies in the same folder or in the one above."""
    if not node.module:
        return None
    here = Path(file).parent
    for folder in (here, here.parent):
        place = folder.joinpath(*node.module.split(".")).with_suffix(".py")
        if place.is_file():
            return read(str(place))
    return None


@lru_cache(maxsize=64)
def module_constants(source: SourceFile, depth: int = 3) -> Mapping[str, object]:
    """The module's constants by name."""
    return evaluated([b for b in bindings(source) if b.function is None], imported(source, depth))


def evaluated(
    those: Iterable[Binding], known: Mapping[str, object], given: Mapping[str, object] | None = None
) -> dict[str, object]:
    """Bindings evaluated one after the other on top of what is known, those `given` left as they are.

    One that the text does not tell hides what was known under its name.
    """
    values = {**known, **(given or {})}
    for binding in those:
        if given and binding.name in given:
            continue
        try:
            values[binding.name] = value_of(binding.expression, values)
        except NotTold:
            values.pop(binding.name, None)
    return values
