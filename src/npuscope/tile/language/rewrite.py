"""The one rewrite of the user's source: what plain Python execution cannot say.

- The body of `pl.spmd` (as a loop or as `with`) becomes a function of the block, so that every block starts from the
  names bound before it, and can stop at a barrier. The body of `pl.at` becomes a function too, so that equal tasks can
  be recognised (shapes/reuse.py).
- A loop says which names its body may read from an earlier turn, for `shapes` mode runs turns as one (shapes/mode.py).
- A loop with `init_values` binds the names on the left of its `pl.yield_` before it, for it may have no turn at all.
- Keywords of old programs get the names of today (history.py).
- `pl.cond(...)` ends its `pl.while_` loop. `x = pl.create_tensor(...)` gets its name.

File and line numbers stay the user's. Closures are kept: the new code is given the old cells. Rewritten code is kept
between runs by its source, for rewriting takes half as long as recording.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import marshal
import os
import sys
import textwrap
import tokenize
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from types import CellType, CodeType, FunctionType
from typing import NamedTuple

from npuscope.base.files import cached
from npuscope.base.unsaved import is_unsaved, source_age, source_bytes
from npuscope.tile.fault import TileError
from npuscope.tile.language import runtime
from npuscope.tile.language.grammar import (
    Constants,
    assigned,
    called,
    check,
    exposed,
    keyword,
    list_nodes,
    live_after,
    rebound,
    under,
    used,
)
from npuscope.tile.language.history import renamed_keywords
from npuscope.tile.record.model import Site
from npuscope.tile.record.sites import number

_VERSION = sha256(
    sys.version.encode() + b"".join(file.read_bytes() for file in sorted(Path(__file__).parent.glob("*.py")))
)
_HELPER = "__npuscope__"
_LOOPS = {"range", "parallel", "pipeline", "unroll"}
_NAMED = {"create_tensor", "alloc_window_buffer"}
_REGIONS = {"at", "spmd", "incore"}
_HOST_SIDE = {"create_tensor", "create", "read", "write", "slice", "assemble", "dim", "reshape", "transpose"}
_RENAMED = renamed_keywords()
_CHANGES = (ast.Global, ast.Nonlocal, ast.Import, ast.ImportFrom, ast.Delete, ast.ClassDef)
_NOT_PLAIN = (
    *(ast.Return, ast.Yield, ast.YieldFrom, ast.Await, ast.Delete, ast.Import, ast.ImportFrom, ast.Try, ast.Match),
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda),
)
_OF_THE_FRAME = {"locals", "vars", "dir", "eval", "exec", "super"}


@dataclass(frozen=True)
class FunctionSource:
    """Where a function's text stands, noted when the function is decorated.

    It is read at the first call, which may be after the program changed its folder; a file edited since is said, not
    run.
    """

    name: str
    shown: str  # the file as Python names it
    path: str
    age: int | None  # when the file was last written, ns; None where it is no file
    line: int

    def text(self) -> str:
        """The function's own lines."""
        if self.age is None:
            what, remedy = f"the source of {self.name} cannot be read", "Tile functions must live in a file."
        elif _age(self.path) != self.age:
            what, remedy = f"the file changed after {self.name} was defined", "Run it again."
        else:
            return "".join(inspect.getblock(_lines(self.path, self.age)[self.line - 1 :]))
        raise TileError(what, path=self.shown, line=self.line, remedy=remedy)


def source_of(function: FunctionType) -> FunctionSource:
    code = function.__code__
    path = os.path.abspath(code.co_filename)
    return FunctionSource(function.__name__, code.co_filename, path, _age(path), code.co_firstlineno)


def _age(path: str) -> int | None:
    try:
        return source_age(path)
    except OSError:
        return None


@lru_cache(maxsize=32)
def _lines(path: str, _age: int) -> list[str]:
    if is_unsaved(path):
        return source_bytes(path).decode().splitlines(keepends=True)
    with tokenize.open(path) as file:
        return file.readlines()


class Rewritten(NamedTuple):
    """A function as npuscope runs it."""

    body: FunctionType
    reads: tuple[str, ...] | None  # names besides its own; None where it may change something that is not its own
    rebound: dict[str, int]  # parameters that it gives to a new value, and where


class _Code(NamedTuple):
    """What is kept between runs; `rebound` by lines."""

    inner: CodeType
    reads: tuple[str, ...] | None
    rebound: dict[str, int]


def rewritten(function: FunctionType, source: FunctionSource) -> Rewritten:
    """The function as npuscope runs it.

    A rewrite follows from the text of a function, its place, the names of its closure, and whether some names mean the
    language itself (`pl`): those are kept beside the code and asked again.
    """
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    file = function.__code__.co_filename
    text = source.text()
    has_self = "self" in cells or "self" in function.__globals__
    generates = inspect.isgeneratorfunction(function)
    key = (text, source.line, file, function.__name__, function.__qualname__, tuple(cells), has_self, generates)

    def means_language(name: str) -> bool:
        with contextlib.suppress(ValueError):  # an empty cell
            return hasattr(cells[name].cell_contents if name in cells else function.__globals__.get(name), "spmd")
        return False

    hashed = _VERSION.copy()
    hashed.update(repr(key).encode())
    made: list[_Code] = []

    def written() -> bytes:
        asked: dict[str, bool] = {}
        made.append(_rewritten(function, source, text, lambda name: asked.setdefault(name, means_language(name))))
        return marshal.dumps((asked, *made[-1]))

    def still_holds(data: bytes) -> bool:
        return all(means_language(name) == answer for name, answer in marshal.loads(data)[0].items())

    try:
        code = _Code(*marshal.loads(cached("rewritten", hashed.hexdigest(), written, still_holds))[1:])
    except ValueError:  # a constant that cannot be written down
        code = made[-1]
    held = {**cells, _HELPER: CellType(runtime)}
    closure = tuple(held[name] for name in code.inner.co_freevars)
    body = FunctionType(code.inner, function.__globals__, function.__name__, function.__defaults__, closure)
    body.__kwdefaults__ = function.__kwdefaults__
    places = {name: number(Site(file, line, function.__name__)) for name, line in code.rebound.items()}
    return Rewritten(body, code.reads, places)


def _rewritten(function: FunctionType, source: FunctionSource, text: str, means: Callable[[str], bool]) -> _Code:
    tree = ast.parse(textwrap.dedent(text))
    ast.increment_lineno(tree, source.line - 1)
    definition = tree.body[0]
    if not isinstance(definition, ast.FunctionDef) or inspect.isgeneratorfunction(function):
        raise TileError(f"{source.name} is not a plain function", path=source.shown, line=source.line)
    code = function.__code__
    list_nodes(definition)
    check(definition, code.co_filename, means)
    inside = {a.arg for a in under(definition.args) if isinstance(a, ast.arg)} | assigned(definition.body)
    reads = _read_outside(definition.body, inside)
    again = rebound(definition, means)
    definition.decorator_list = []
    definition.returns = None
    arguments = definition.args
    for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
        argument.annotation = None
    has_self = any(a.arg == "self" for a in arguments.args) or "self" in code.co_freevars
    has_self = has_self or "self" in function.__globals__
    definition = _Rewriter(definition, has_self, {*code.co_varnames, *code.co_cellvars}).visit(definition)
    return _Code(_compiled(function, definition), reads, again)


def _compiled(function: FunctionType, definition: ast.FunctionDef) -> CodeType:
    name = f"{function.__name__}__npuscope_body"  # its own name must mean what it means outside
    definition.name = name
    outer = _function("__npuscope_outer", [*function.__code__.co_freevars, _HELPER], [], definition)
    outer.body = [definition, *_statements(f"return {name}", definition)]
    code = compile(ast.fix_missing_locations(ast.Module([outer], [])), function.__code__.co_filename, "exec")
    inner = _code_named(_code_named(code, "__npuscope_outer"), name)
    # the code of a region says whose it is, as the function's own does
    parts = [
        part.replace(co_qualname=f"{function.__qualname__}.<locals>.{part.co_name}")
        if isinstance(part, CodeType) and part.co_name.startswith("__npuscope_region")
        else part
        for part in inner.co_consts
    ]
    return inner.replace(co_name=function.__name__, co_qualname=function.__qualname__, co_consts=tuple(parts))


def _code_named(code: CodeType, name: str) -> CodeType:
    return next(c for c in code.co_consts if isinstance(c, CodeType) and c.co_name == name)


def _statements(text: str, at: ast.stmt | ast.expr) -> list[ast.stmt]:
    """Statements of ours, on the first line of what they stand for."""
    made = ast.parse(text).body
    for node in made:
        for child in ast.walk(node):
            if isinstance(child, ast.expr | ast.stmt | ast.arg | ast.keyword):
                child.lineno = child.end_lineno = at.lineno
                child.col_offset = child.end_col_offset = at.col_offset
    return made


def _call(text: str, at: ast.stmt | ast.expr, *first: ast.expr) -> ast.Call:
    """A call of a helper, `first` before the arguments in the text."""
    (statement,) = _statements(f"{_HELPER}.{text}", at)
    assert isinstance(statement, ast.Expr)
    assert isinstance(statement.value, ast.Call)
    statement.value.args[:0] = first
    return statement.value


def _function(name: str, parameters: Iterable[str], body: list[ast.stmt], at: ast.stmt) -> ast.FunctionDef:
    (made,) = _statements(f"def {name}({', '.join(parameters)}): pass", at)
    assert isinstance(made, ast.FunctionDef)
    made.body = body
    return made


def _declared_places(annotation: ast.expr) -> list[ast.expr]:
    """What `pl.Tile[[64, 64], pl.FP32, m[i % 2], pl.Mem.Vec]` says of a buffer that the author declared: `m[i % 2]`;
    and how a tensor lies, `pl.Tensor[[64, 64], pl.INT8, pl.NZ]`.
    """
    if not isinstance(annotation, ast.Subscript) or not isinstance(annotation.slice, ast.Tuple):
        return []
    return [one for one in annotation.slice.elts[2:] if not isinstance(one, ast.Constant) and not _is_memory(one)]


def _is_memory(place: ast.expr) -> bool:
    return isinstance(place, ast.Attribute) and isinstance(place.value, ast.Attribute)  # pl.Mem.Vec


class _Rewriter(ast.NodeTransformer):
    def __init__(self, definition: ast.FunctionDef, has_self: bool, local: set[str]) -> None:
        self._has_self = has_self
        self._local = local
        self._live = live_after(definition)
        self._constants = Constants(definition, local)
        self._rebinds = any(isinstance(node, ast.Global | ast.Nonlocal) for node in under(definition))
        self._count = 0

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if not self._has_self and isinstance(node.value, ast.Name) and node.value.id == "self":
            return ast.copy_location(ast.Name(node.attr, node.ctx), node)
        self.generic_visit(node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        name = called(node)
        for option in node.keywords:
            option.arg = _RENAMED.get((name, option.arg or ""), option.arg)
            if name in ("at", "spmd", "submit", "spmd_submit") and option.arg == "predicate":
                nothing = ast.arguments([], [], None, [], [], None, [])
                option.value = ast.copy_location(ast.Lambda(nothing, option.value), option.value)
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        self.generic_visit(node)
        target = node.targets[0]
        if isinstance(target, ast.Tuple) and len(target.elts) == 1 and called(node.value) == "yield_":
            node.targets = target.elts  # `(x,) = pl.yield_(v)` means `x = pl.yield_(v)`
        if len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            _name(node.value, node.targets[0].id)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        self.generic_visit(node)
        if node.value is None or not isinstance(node.target, ast.Name):
            return node
        _name(node.value, node.target.id)
        value = node.value
        if places := _declared_places(node.annotation):
            value = _call("declared()", node, value, *places)
        return ast.copy_location(ast.Assign([node.target], value), node)

    def visit_With(self, node: ast.With) -> ast.stmt | list[ast.stmt]:
        first = node.items[0]
        name = called(first.context_expr) if len(node.items) == 1 else ""
        if name == "spmd" or (name == "at" and keyword(first.context_expr, "predicate") is not None):
            return self._blocks(node, first.context_expr, None, first.optional_vars)
        if len(node.items) == 1 and _is_auto(first.context_expr):
            node.body = _marked(node.body)
        elif name == "at" and not self._rebinds and _is_plain(node.body):
            return self._region(node)
        self.generic_visit(node)
        return node

    def visit_For(self, node: ast.For) -> ast.stmt | list[ast.stmt]:
        name, call = called(node.iter), node.iter
        if name == "spmd":
            if not isinstance(node.target, ast.Name):
                raise TileError("a pl.spmd loop has one name as its target", line=node.lineno)
            return self._blocks(node, node.iter, node.target.id, None)
        before = _bound_before(node) if name in _LOOPS or name == "while_" else []
        if name in _LOOPS and isinstance(call, ast.Call):
            targets = {n.id for n in under(node.target) if isinstance(n, ast.Name)}
            read = sorted(exposed(node.body, assigned(node.body) - targets))
            node.iter = _call(f"carried({_tuple(read)}, {_tuple(used(node.body))}, locals())", call, call)
            if name == "range" and all(self._constants.known(bound) for bound in call.args):
                node.iter = _call("known_bounds()", call, node.iter)
            if _holds_tasks(node):
                node.iter = _call("holds_tasks()", call, node.iter)
        elif name == "while_":
            node.body = [_conditional(statement) for statement in node.body]
        self.generic_visit(node)
        return [*before, node] if before else node

    def visit_While(self, node: ast.While) -> list[ast.stmt]:
        """Counted, for it may never end."""
        self.generic_visit(node)
        self._count += 1
        turns = f"__npuscope_turns_{self._count}"
        node.body[:0] = _statements(f"{turns}.__next__()", node)
        return [*_statements(f"{turns} = {_HELPER}.counted()", node), node]

    def _blocks(
        self, node: ast.With | ast.For, call: ast.expr, target: str | None, bind: ast.expr | None
    ) -> list[ast.stmt]:
        function, arguments, left = self._as_function(node, "block", target)
        launch = f"__npuscope_launch_{self._count}"
        text = f"{launch} = call\n{'bind = ' if bind else ''}{_HELPER}.launch({launch})"
        launched, submitted = _statements(text, node)
        assert isinstance(launched, ast.Assign)
        launched.value = self.visit(call)
        if bind is not None and isinstance(submitted, ast.Assign):
            submitted.targets = [bind]
        blocks = _handed_back(f"{_HELPER}.blocks({launch}, {arguments})", left, node)
        return [launched, submitted, function, *blocks]

    def _region(self, node: ast.With) -> ast.With:
        """The body of `pl.at` as a function that is called in its place."""
        function, arguments, left = self._as_function(node, "region", None)
        node.items[0].context_expr = self.visit(node.items[0].context_expr)
        node.body = [function, *_handed_back(f"{_HELPER}.region({arguments})", left, node)]
        return node

    def _as_function(
        self, node: ast.With | ast.For, kind: str, target: str | None
    ) -> tuple[ast.FunctionDef, str, list[str]]:
        """A region's body as a function of the local names that it reads (of a block: and its index); what its helper
        is given, as text; and the names it binds that code after the region may read.
        """
        made = assigned(node.body) - {target or ""}
        taken = sorted(exposed(node.body, made) | (used(node.body) & self._local - made - {target or ""}))
        left = sorted(made & self._live[id(node)])
        reads = _read_outside(node.body, {*made, *taken, target or ""})
        body = [statement for name in taken for statement in _statements(_unbound_deleted(name), node)]
        for statement in node.body:
            visited = self.visit(statement)
            body += visited if isinstance(visited, list) else [visited]
        self._count += 1
        name = f"__npuscope_{kind}_{self._count}"
        index = [target or "__npuscope_index"] if kind == "block" else []
        body += _statements("return locals()", node)
        arguments = f"{name}, {reads!r}, {_tuple(taken)}, {_tuple(left)}, locals()"
        return _function(name, [*index, *taken], body, node), arguments, left


def _tuple(names: Iterable[str]) -> str:
    return repr(tuple(sorted(names)))


def _read_outside(body: list[ast.stmt], inside: set[str]) -> tuple[str, ...] | None:
    """The names that code reads besides its own; None where it may change something that is not its own."""
    for node in under(*body):
        if isinstance(node, _CHANGES) or (isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load)):
            return None
    return tuple(sorted(used(body) - inside))


def _handed_back(call: str, left: list[str], at: ast.stmt) -> list[ast.stmt]:
    """`a, b = call`; a name that stays without a value is deleted again."""
    names = f"{', '.join(left)}, = " if left else ""
    return _statements("\n".join([names + call, *map(_unbound_deleted, left)]), at)


def _unbound_deleted(name: str) -> str:
    """Python then says itself that the name has no value, at the line that uses it."""
    return f"if {name} is {_HELPER}.UNBOUND: del {name}"


def _is_plain(body: list[ast.stmt]) -> bool:
    """Whether statements mean the same as the body of a function of the names they read."""
    for node in under(*body):
        if isinstance(node, _NOT_PLAIN) or (isinstance(node, ast.Name) and node.id in _OF_THE_FRAME):
            return False
    return not _leaves_loop(body)


def _leaves_loop(body: list[ast.stmt]) -> bool:
    """Whether a `break` or `continue` in some statements is of a loop around them."""
    for statement in body:
        if isinstance(statement, ast.Break | ast.Continue):
            return True
        for name, part in ast.iter_fields(statement):
            is_loop = name == "body" and isinstance(statement, ast.For | ast.While)
            if isinstance(part, list) and part and isinstance(part[0], ast.stmt) and not is_loop and _leaves_loop(part):
                return True
    return False


def _name(value: ast.expr, name: str) -> None:
    """Gives create_tensor the name it is bound to."""
    made = value
    if isinstance(value, ast.Call) and called(value) == "outside" and value.args:  # helper.outside(pl.create_tensor, …)
        made = ast.Call(value.args[0], [], [])
    if isinstance(value, ast.Call) and called(made) in _NAMED and not any(k.arg == "name" for k in value.keywords):
        value.keywords.append(ast.keyword("name", ast.Constant(name)))


def _bound_before(node: ast.For) -> list[ast.stmt]:
    """`a, b = init_values` before a loop whose last statement is `a, b = pl.yield_(...)`."""
    init = keyword(node.iter, "init_values")
    for statement in reversed(node.body) if init is not None else ():
        if isinstance(statement, ast.Assign) and called(statement.value) == "yield_" and init is not None:
            target = statement.targets[0]
            if not isinstance(target, ast.Tuple):
                target = ast.Tuple([target], ast.Store())
            return [ast.copy_location(ast.Assign([target], init), node)]
    return []


def _holds_tasks(node: ast.For) -> bool:
    """Whether tasks are made inside (a region, a loop cut into chunks): then the loop belongs to orchestration."""
    calls = [n for n in under(*node.body) if isinstance(n, ast.Call)]
    return any(called(n) in _REGIONS or (called(n) == "parallel" and keyword(n, "chunk") is not None) for n in calls)


def _conditional(statement: ast.stmt) -> ast.stmt:
    if isinstance(statement, ast.Expr) and called(statement.value) == "cond":
        test = ast.UnaryOp(ast.Not(), statement.value)
        return ast.copy_location(ast.If(test, [ast.Break()], []), statement)
    return statement


# --- scopes in which the compiler drew the tasks (runtime.py)


def _is_auto(scope: ast.expr) -> bool:
    """Whether a `with` opens such a scope."""
    if called(scope) == "auto_incore" or keyword(scope, "optimization") is not None:
        return True
    listed = keyword(scope, "optimizations")
    return listed is not None and any(isinstance(n, ast.Attribute) and n.attr == "auto_chunk" for n in ast.walk(listed))


def _marked(body: list[ast.stmt]) -> list[ast.stmt]:
    """The statements of such a scope, with those that stay in orchestration marked by calls of the helper.

    `pl.assemble(out, pl.exp(x), …)` becomes `helper.outside(pl.assemble, out, pl.exp(x), …)`: its arguments are
    computed, the task that computed them ends, then it runs. A name that is given a whole number ends the task, too.
    """
    found: list[ast.stmt] = []
    for statement in body:
        if isinstance(statement, ast.For):
            policy = keyword(statement.iter, "chunk_policy")
            nested = [inner for inner in statement.body if isinstance(inner, ast.For) and keyword(inner.iter, "chunk")]
            if nested and isinstance(policy, ast.Constant) and policy.value == "leading_full":
                raise TileError(
                    'chunked loops nested under chunk_policy="leading_full" changed places; npuscope does not do that',
                    line=statement.lineno,
                    remedy="Leave chunk_policy= out, or write the tasks with pl.spmd.",
                )
            if called(statement.iter) != "spmd" and _holds_tasks(statement):
                statement.body = _marked(statement.body)
        elif isinstance(statement, ast.Assign | ast.AnnAssign | ast.Expr):
            statement = _Outside().visit(statement)
        found.append(statement)
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            found += _statements(f"{_HELPER}.bound({statement.targets[0].id})", statement)
    return found


class _Outside(ast.NodeTransformer):
    """Calls of ops that do not compute, and subscripts, as calls that end the task under way first."""

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if called(node) not in _HOST_SIDE or not isinstance(node.func, ast.Attribute):
            return node
        new = _call("outside()", node, node.func, *node.args)
        new.keywords = node.keywords
        return new

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        if not isinstance(node.ctx, ast.Del):  # of `x[…] = v` Python computes v before it looks x up
            node.value = _call("outside_tensor()", node, node.value)
        return node
