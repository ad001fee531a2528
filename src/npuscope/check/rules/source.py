"""What the source itself shows: retired-spelling, stale-value, unknown-ignore, variance-not-rsqrt."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from inspect import unwrap

from npuscope.base.frozen import dataclass
from npuscope.check.dataflow import Flow, flows_of
from npuscope.check.rule import Example, Finding, Section, rule
from npuscope.check.rules import all_rules
from npuscope.check.source_text import ignores_in, section_of
from npuscope.lower.program import Program
from npuscope.lower.source import Function, SourceFile, read
from npuscope.ops.reductions import ROW_SUM
from npuscope.ops.spec import OpRole
from npuscope.tile.language.history import HISTORY
from npuscope.tile.record.model import Op, Site, Task
from npuscope.tile.script.places import assigned, literal

OLD = {spelling.old: spelling for spelling in HISTORY}
CHUNK = "(chunk=)"
WORDS = frozenset(part for old in OLD for part in old.replace("(", ".").replace("=)", "").split("."))


@rule(
    "retired-spelling",
    "warning",
    "a spelling that PyPTO has removed",
    "Today's compiler refuses it. npuscope still runs it, as the compiler of its day did, so that old programs can "
    "be measured against new ones.",
    Example("with pl.incore():", "with pl.at(level=pl.Level.CORE_GROUP):"),
    about="quality",
)
def retired_spelling(program: Program) -> Iterator[Finding]:
    sites = program.recording.sites
    for file in dict.fromkeys(site.file for site in sites):
        source = read(file)
        if source is None:
            continue
        ran = {id(source.function_at(site.line)) for site in sites if site.file == file}
        places: dict[tuple[Section, str, int], list[int]] = defaultdict(list)
        for node in source.nodes:
            for old in _retired(node):
                line: int = node.lineno  # type: ignore[attr-defined]
                if id(source.function_at(line)) in ran:  # each loop with chunk= has a size to choose: one finding each
                    places[section_of(file, line), old, line if old.endswith(CHUNK) else 0].append(line)
        for (_, old, _), lines in sorted(places.items(), key=lambda item: min(item[1])):
            first, *others = sorted(set(lines))
            spelling, function, text = OLD[old], source.function_at(first), source.line(first).strip()
            message = f"{old} was removed from PyPTO in {spelling.until} ({spelling.change})"
            advice = f" npuscope: {spelling.does}" if spelling.does else ""
            if old.endswith(CHUNK):
                advice = " Try several sizes of blocks: the best is a measurement."
            changed = text.replace(old, "pl.at(level=pl.Level.CORE_GROUP)")
            yield retired_spelling.at(
                Site(file, first, "" if function is None else function.name),
                f"{message}; {len(lines)} times in this scope" if others else message,
                f"Write {spelling.now}.{advice}",
                change=changed if old == "pl.incore()" and old in text else "",
                count=len(lines),
                also=[Site(file, line, "") for line in others],
            )


def _retired(node: ast.AST) -> list[str]:
    """The old spellings that a node has: a call, one of its keywords, a name of the language."""
    name = node.func if isinstance(node, ast.Call) else node
    if not isinstance(name, ast.Attribute) or name.attr not in WORDS:
        return []
    parts, value = [name.attr], name.value
    while isinstance(value, ast.Attribute):
        parts.insert(0, value.attr)
        value = value.value
    text = ".".join(["pl", *parts])  # `pl.tile.sum`, by whatever name the program calls the language
    spelled = [text]
    if isinstance(node, ast.Call):
        spelled = [f"{text}()", *(f"{text}({option.arg}=)" for option in node.keywords)]
    return [old for old in spelled if old in OLD]


STATED = re.compile(r"\b([A-Z][A-Z0-9_]{2,})\s?=\s?(\d+)\b(?!\s*[-+*/.])")  # TILE=64 in a sentence


@rule(
    "stale-value",
    "hint",
    "a sentence that names an old value of a constant",
    "Whoever reads it sizes tiles by it, or looks for a fault that is not there.",
    Example("# tiles of BATCH_TILE=4 rows\nBATCH_TILE = 16", "# tiles of BATCH_TILE=16 rows\nBATCH_TILE = 16"),
    about="quality",
)
def stale_value(program: Program) -> Iterator[Finding]:
    for file in dict.fromkeys(site.file for site in program.recording.sites):
        source = read(file)
        if source is None:
            continue
        known: dict[str, set[str]] = defaultdict(set)
        for node in source.nodes:
            for target, value in assigned(node) if isinstance(node, ast.stmt) else ():
                known[target.id].add(repr(literal(value)))
        for line, text in _prose(source):
            for name, said in STATED.findall(text):
                now = known.get(name, set())
                if len(now) == 1 and (number := next(iter(now))).isdecimal() and number != said:
                    yield stale_value.at(
                        Site(file, line, ""),
                        f"the text says {name}={said}: {name} is {number}, not {said}",
                        f"Write {name}={number}, or leave the number to the constant.",
                    )


def _prose(source: SourceFile) -> Iterator[tuple[int, str]]:
    """Lines of docstrings and comments."""
    yield from ((comment.line, comment.text) for comment in source.comments)
    for node in source.nodes:
        if isinstance(node, ast.Module | ast.ClassDef | Function) and node.body:
            first = node.body[0]
            value = first.value if isinstance(first, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                lines = range(first.lineno, (first.end_lineno or first.lineno) + 1)
                yield from ((line, source.line(line)) for line in lines)


@rule(
    "unknown-ignore",
    "hint",
    "a comment that silences a rule there is not",
    "A finding that someone meant to silence will come back, or was never there.",
    Example(
        "tile = pl.slice(w, [128, 64], [k0, n0])  # npuscope: ignore[short-rows]",
        "tile = pl.slice(w, [128, 64], [k0, n0])  # npuscope: ignore[short-row]",
    ),
    about="quality",
)
def unknown_ignore(program: Program) -> Iterator[Finding]:
    known = {rule.id for rule in all_rules()}
    for file in dict.fromkeys(site.file for site in program.recording.sites):
        for ignore in ignores_in(file):
            for id in sorted(ignore.rules - known):
                near = get_close_matches(id, known, 1)
                yield unknown_ignore.at(
                    Site(file, ignore.line, ""),
                    f"this comment silences nothing: there is no rule '{id}'",
                    f"Write {near[0]}." if near else "npuscope check --list-rules lists the rules.",
                )


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


@rule(
    "variance-not-rsqrt",
    "warning",
    "a normalisation multiplies by the variance instead of its reciprocal root",
    "RMSNorm and LayerNorm scale by 1 / √(mean(x²) + eps). Without the root the numbers are wrong, and a golden "
    "with the same fault does not show it; where mean(x²) is about 1 the two are even close.",
    Example(
        "normed = pl.row_expand_mul(x, pl.add(mean_of_squares, EPS))",
        "normed = pl.row_expand_mul(x, pl.rsqrt(pl.add(mean_of_squares, EPS)))",
    ),
    about="quality",
)
def variance_not_rsqrt(program: Program) -> Iterator[Finding]:
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
            yield variance_not_rsqrt.at(
                Site(file, line, program.site(op.site).function),
                f"{op.name} scales x by mean(x²) + eps itself; a normalisation scales by 1 / √(mean(x²) + eps)",
                "Take rsqrt of the mean of squares before it multiplies.",
                kernel=launch.kernel,
                change=_with_rsqrt(file, line, op),
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
            operands = [_one_of([facts[n] for n in operand.makers]) for operand in step.operands if operand.makers]
            if _is_fault(step.op, operands):
                found[step.number] = step.op
            else:
                facts[step.number] = _fact(step.op, operands, task)
    return list(found.values())


def _one_of(facts: list[_Fact | None]) -> _Fact | None:
    """What an operand is that several steps may have made: a sum that began with zeros is a sum."""
    known = [fact for fact in facts if fact is not None]
    return next((fact for fact in known if fact is not FILLED), known[0] if known else None)


def _is_fault(op: Op, operands: list[_Fact | None]) -> bool:
    if not op.spec.is_a(OpRole.PRODUCT, OpRole.QUOTIENT) or len(operands) != 2 or op.operands[0] == op.operands[1]:
        return False
    left, right = operands
    if left is None or right is None:
        return False
    return _normalises(right, left) or (op.spec.is_a(OpRole.PRODUCT) and _normalises(left, right))


def _fact(op: Op, operands: list[_Fact | None], task: Task) -> _Fact | None:
    """What an op makes of its operands; None where that is no part of a normalisation, such as a root."""
    reads = frozenset(task.arguments[access.argument].buffer for access in op.accesses if access.mode == "read")
    if reads:
        return _Fact(reads)
    if op.spec.is_a(OpRole.FILL):
        return FILLED
    values = [fact for fact in operands if fact is not None]
    if not values or len(values) < len(operands):
        return None
    if op.spec.is_a(OpRole.KEEPS_VALUES):
        return values[-1]  # of a spread, the vector that is spread
    if op.spec is ROW_SUM:
        return replace(values[0], summed=True) if values[0].power == 2 else None
    if not op.spec.is_a(OpRole.PRODUCT, OpRole.QUOTIENT, OpRole.TERM):
        return None
    if len(values) == 1:  # with a number
        return replace(values[0], scaled=values[0].summed)
    left, right = values
    if op.spec.is_a(OpRole.TERM):
        return _added(left, right)
    if op.operands[0] == op.operands[1]:
        return replace(left, power=2) if left.power == 1 and op.spec.is_a(OpRole.PRODUCT) else None
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


def _with_rsqrt(file: str, line: int, op: Op) -> str:
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
    """Lines of the golden that have the fault; without a golden function, of those that are named like one."""
    for source, function in _called_by(program.golden) if program.golden is not None else _named_golden(program):
        for line in faulty_lines(function):
            yield variance_not_rsqrt.at(
                Site(source.file, line, function.name),
                "the golden scales by mean(x²) + eps too, so its check passes although both are wrong",
                "Multiply by 1 / sqrt(mean(x²) + eps) in the golden and in the kernel.",
            )


NAMES = ("golden", "reference", "ref_")
# Calls that leave a value as it is: types, shapes, copies.
SAME = frozenset(
    {"astype", "to", "type", "float", "double", "float32", "bfloat16", "reshape", "view", "expand", "unsqueeze"}
    | {"squeeze", "clone", "copy", "array", "asarray", "contiguous"}
)
SQUARES = frozenset({"square"})
MEANS = frozenset({"mean", "sum"})
SIMPLE = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Return, ast.Expr)


def _called_by(golden: Callable[..., object]) -> list[tuple[SourceFile, Function]]:
    """The golden and the functions of its file that it calls, directly or not."""
    function: object = golden
    while isinstance(function, partial):
        function = function.func
    code = getattr(unwrap(function) if callable(function) else function, "__code__", None)
    source = None if code is None else read(code.co_filename)
    if code is None or source is None:
        return []
    by_name = {node.name: node for node in source.tree.body if isinstance(node, Function)}
    found = [f for f in source.functions if f.name == code.co_name and _first_line(f) == code.co_firstlineno]
    for one in found:  # grows as it goes
        names = [node.id for node in ast.walk(one) if isinstance(node, ast.Name) and node.id in by_name]
        known = {f.name for f in found}
        found += [by_name[name] for name in dict.fromkeys(names) if name not in known]
    return [(source, f) for f in found]


def _first_line(function: Function) -> int:
    return min([function.lineno, *(decorator.lineno for decorator in function.decorator_list)])


def _named_golden(program: Program) -> list[tuple[SourceFile, Function]]:
    files = dict.fromkeys(site.file for site in program.recording.sites)
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
        for mean, data in ((right, left), (left, right)) if isinstance(op, ast.Mult) else ((right, left),):
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
        if not isinstance(called, ast.Attribute) or called.attr not in SAME:
            break
        module = isinstance(called.value, ast.Name) and called.value.id in ("np", "numpy", "torch")
        if module and not node.args:
            break
        node = node.args[0] if module else called.value
    return node
