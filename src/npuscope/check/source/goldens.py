"""Whether a golden function scales by a mean of squares without a root: read from its source, nothing is run."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from inspect import unwrap

from npuscope.lower.source import Function, SourceFile, read

NAMES = ("golden", "reference", "ref_")
# Calls that leave a value as it is: types, shapes, copies.
SAME = frozenset(
    {"astype", "to", "type", "float", "double", "float32", "bfloat16", "reshape", "view", "expand", "unsqueeze"}
    | {"squeeze", "clone", "copy", "array", "asarray", "contiguous"}
)
SQUARES = frozenset({"square"})
MEANS = frozenset({"mean", "sum"})
SIMPLE = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Return, ast.Expr)


@dataclass(frozen=True)
class GoldenFunction:
    """A function of the golden: its file and name."""

    file: str
    name: str


def faulty_goldens(
    golden: Callable[..., object] | None, files: Iterable[str]
) -> list[tuple[GoldenFunction, tuple[int, ...]]]:
    """The golden's functions that have the fault, with its lines.

    Where a run has no golden function, those of `files` that are named like one are read.
    """
    found = []
    for source, function in _known(golden) if golden is not None else _by_name(files):
        lines = faulty_lines(function)
        if lines:
            found.append((GoldenFunction(source.file, function.name), lines))
    return found


def _known(golden: Callable[..., object]) -> list[tuple[SourceFile, Function]]:
    """The golden and the functions of its file that it calls, directly or not."""
    function: object = golden
    while isinstance(function, partial):
        function = function.func
    code = getattr(unwrap(function) if callable(function) else function, "__code__", None)
    source = None if code is None else read(code.co_filename)
    if code is None or source is None:
        return []
    own = [f for f in source.functions if f.name == code.co_name and _first_line(f) == code.co_firstlineno]
    by_name = {node.name: node for node in source.tree.body if isinstance(node, Function)}
    reached = {f.name: f for f in own}
    waiting = list(own)
    while waiting:
        for node in ast.walk(waiting.pop()):
            if isinstance(node, ast.Name) and node.id in by_name and node.id not in reached:
                reached[node.id] = by_name[node.id]
                waiting.append(by_name[node.id])
    return [(source, f) for f in reached.values()]


def _first_line(function: Function) -> int:
    return min([function.lineno, *(decorator.lineno for decorator in function.decorator_list)])


def _by_name(files: Iterable[str]) -> list[tuple[SourceFile, Function]]:
    sources = [source for source in map(read, files) if source is not None]
    return [(s, f) for s in sources for f in s.functions if f.name.lstrip("_").startswith(NAMES)]


def faulty_lines(function: Function) -> tuple[int, ...]:
    """Lines of products (or quotients) of a value with its own bare mean of squares."""
    return tuple(dict.fromkeys(_Reading(function).faults))


class _Reading:
    """One pass over a function in the order of its text: which names hold squares, means of squares, or the data."""

    def __init__(self, function: Function) -> None:
        self.squares: dict[str, frozenset[str]] = {}  # name -> names of what was squared
        self.means: dict[str, frozenset[str]] = {}
        self.roots: dict[str, frozenset[str]] = {}  # name -> names it is a plain copy of
        self.faults: list[int] = []
        statements = [node for node in ast.walk(function) if isinstance(node, SIMPLE)]
        for statement in sorted(statements, key=lambda node: node.lineno):
            for node in ast.walk(statement):
                if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div):
                    self._product(node.left, node.op, node.right, node.lineno)
            if isinstance(statement, ast.AugAssign):
                self._product(statement.target, statement.op, statement.value, statement.lineno)
            elif isinstance(statement, ast.Assign):
                for target in statement.targets:
                    self._assign(target, statement.value)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        facts = (self._square(value), self._mean(value), self._data(_without_casts(value)))
        for name in (node.id for node in ast.walk(target) if isinstance(node, ast.Name)):
            for kept, fact in zip((self.squares, self.means, self.roots), facts, strict=True):
                kept.pop(name, None)
                if fact and isinstance(target, ast.Name):
                    kept[name] = fact

    def _product(self, left: ast.expr, op: ast.operator, right: ast.expr, line: int) -> None:
        sides = [(right, left)]
        if isinstance(op, ast.Mult):
            sides.append((left, right))
        for mean, data in sides:
            if self._mean(mean) & self._data(_without_casts(data)):
                self.faults.append(line)

    def _data(self, node: ast.expr) -> frozenset[str]:
        """The names a plain value goes back to."""
        if isinstance(node, ast.Name):
            return self.roots.get(node.id, frozenset()) | {node.id}
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            return self._data(_without_casts(node.left)) | self._data(_without_casts(node.right))
        return frozenset()

    def _square(self, node: ast.expr) -> frozenset[str]:
        node = _without_casts(node)
        match node:
            case ast.Name(id=name):
                return self.squares.get(name, frozenset())
            case ast.BinOp(left=left, op=ast.Mult(), right=right) if ast.dump(left) == ast.dump(right):
                return self._data(_without_casts(left))
            case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=2 | 2.0)):
                return self._data(_without_casts(left))
            case ast.Call(func=ast.Attribute(attr="pow", value=value), args=[ast.Constant(value=2 | 2.0)]):
                return self._data(_without_casts(value))
            case ast.Call(func=ast.Attribute(attr="pow"), args=[value, ast.Constant(value=2 | 2.0)]):
                return self._data(_without_casts(value))
            case ast.Call(func=ast.Attribute(attr=attr, value=value), args=arguments) if attr in SQUARES:
                return self._data(_without_casts(arguments[0] if arguments else value))
        return frozenset()

    def _mean(self, node: ast.expr) -> frozenset[str]:
        """The names whose mean of squares a value is, up to factors and terms; empty after a root or anything else."""
        node = _without_casts(node)
        match node:
            case ast.Name(id=name):
                return self.means.get(name, frozenset())
            case ast.IfExp(body=body, orelse=other):
                return self._mean(body) | self._mean(other)
            case ast.Call(func=ast.Attribute(attr=attr, value=value), args=arguments) if attr in MEANS:
                return self._square(value) or (self._square(arguments[0]) if arguments else frozenset())
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub()):
                return self._mean(left) or self._mean(node.right)
            case ast.BinOp(left=left, op=ast.Div(), right=right) if not self._mean(right):
                return self._mean(left)
            case ast.BinOp(left=left, op=ast.Mult(), right=right):
                constant = [side for side in (left, right) if not self._data(_without_casts(side))]
                return self._mean(left) | self._mean(right) if constant else frozenset()
        return frozenset()


def _without_casts(node: ast.expr) -> ast.expr:
    """The value under conversions of type and shape."""
    while isinstance(node, ast.Call):
        called = node.func
        if isinstance(called, ast.Attribute) and called.attr in SAME:
            module = isinstance(called.value, ast.Name) and called.value.id in ("np", "numpy", "torch")
            if module and not node.args:
                break
            node = node.args[0] if module else called.value
        else:
            break
    return node
