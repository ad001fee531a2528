"""The one rewrite of the user's source: what plain Python execution cannot say.

- The body of `pl.spmd` (as a loop or as `with`) becomes a function of the block, so that every block starts from the
  names bound before it, and can stop at a barrier. The body of `pl.at` becomes a function too, so that equal tasks can
  be told from each other (shapes/reuse.py).
- A loop says which names its body may read from an earlier turn, for `shapes` mode runs turns as one (shapes/turns.py).
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
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from types import CellType, CodeType, FunctionType
from typing import NamedTuple

from npuscope.base.kept_files import KeptFiles
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
from npuscope.tile.language.runtime import is_auto, marked
from npuscope.tile.record.model import Site
from npuscope.tile.record.sites import number

_HELPER = "__npuscope__"
_LOOPS = {"range", "parallel", "pipeline", "unroll"}
_NAMED = {"create_tensor", "alloc_window_buffer"}
_REGIONS = {"at", "spmd", "incore"}
_RENAMED = renamed_keywords()


class Rewritten(NamedTuple):
    """A function as npuscope runs it."""

    body: FunctionType
    reads: tuple[str, ...] | None  # names besides its own; None where it may change something that is not its own
    rebound: dict[str, int]  # parameters that it gives to a new value, and where


def rewritten(function: FunctionType, source: FunctionSource) -> Rewritten:
    """The function as npuscope runs it; what was rewritten before is taken from where it is kept."""
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    file = function.__code__.co_filename
    text = "".join(source.lines())
    has_self = "self" in cells or "self" in function.__globals__
    generates = inspect.isgeneratorfunction(function)
    key = (text, source.line, file, function.__name__, function.__qualname__, tuple(cells), has_self, generates)
    kept = Kept(key, lambda name: hasattr(_held(function, cells, name), "spmd"))
    code = kept.found()
    if code is None:
        code = _rewritten(function, source, text, kept)
        kept.keep(code)
    held = {**cells, _HELPER: CellType(runtime)}
    closure = tuple(held[name] for name in code.inner.co_freevars)
    body = FunctionType(code.inner, function.__globals__, function.__name__, function.__defaults__, closure)
    body.__kwdefaults__ = function.__kwdefaults__
    places = {name: number(Site(file, line, function.__name__)) for name, line in code.rebound.items()}
    return Rewritten(body, code.reads, places)


def _rewritten(function: FunctionType, source: FunctionSource, text: str, kept: Kept) -> KeptCode:
    tree = ast.parse(textwrap.dedent(text))
    ast.increment_lineno(tree, source.line - 1)
    definition = tree.body[0]
    if not isinstance(definition, ast.FunctionDef) or inspect.isgeneratorfunction(function):
        raise TileError(f"{source.name} is not a plain function", path=source.shown, line=source.line)
    cells = function.__code__.co_freevars
    list_nodes(definition)
    check(definition, function.__code__.co_filename, kept.means)
    inside = {a.arg for a in under(definition.args) if isinstance(a, ast.arg)} | assigned(definition.body)
    reads = _read_outside(definition.body, inside)
    again = rebound(definition, kept.means)
    definition.decorator_list = []
    definition.returns = None
    arguments = definition.args
    for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
        argument.annotation = None
    has_self = any(a.arg == "self" for a in arguments.args) or "self" in cells or "self" in function.__globals__
    local = {*function.__code__.co_varnames, *function.__code__.co_cellvars}
    definition = _Rewriter(definition, has_self, local).visit(definition)
    return KeptCode(_compiled(function, definition), reads, again)


def _held(function: FunctionType, cells: dict[str, CellType], name: str) -> object:
    """What a global or closure name stands for."""
    try:
        return cells[name].cell_contents if name in cells else function.__globals__.get(name)
    except ValueError:  # an empty cell
        return None


def _compiled(function: FunctionType, definition: ast.FunctionDef) -> CodeType:
    names = [*function.__code__.co_freevars, _HELPER]
    definition.name = body = f"{function.__name__}__npuscope_body"  # its own name must mean what it means outside
    body_and_return = [definition, ast.Return(ast.Name(definition.name, ast.Load()))]
    outer = _function("__npuscope_outer", [ast.arg(name) for name in names], body_and_return)
    module = ast.fix_missing_locations(ast.Module([ast.copy_location(outer, definition)], []))
    code = compile(module, function.__code__.co_filename, "exec")
    inner = _code_named(_code_named(code, "__npuscope_outer"), body)
    regions = [_of_function(c, function) if isinstance(c, CodeType) else c for c in inner.co_consts]
    return inner.replace(co_name=function.__name__, co_qualname=function.__qualname__, co_consts=tuple(regions))


def _function(name: str, parameters: list[ast.arg], body: list[ast.stmt]) -> ast.FunctionDef:
    """A plain function; from Python 3.12 on the tree must also say that it has no type parameters."""
    made = ast.FunctionDef(
        name=name,
        args=ast.arguments([], parameters, None, [], [], None, []),
        body=body,
        decorator_list=[],
        returns=None,
    )
    made.__dict__.setdefault("type_params", [])
    return made


def _of_function(code: CodeType, function: FunctionType) -> CodeType:
    """The code of a region says whose it is, as the function's own does."""
    if not code.co_name.startswith("__npuscope_region"):
        return code
    return code.replace(co_qualname=f"{function.__qualname__}.<locals>.{code.co_name}")


def _code_named(code: CodeType, name: str) -> CodeType:
    return next(c for c in code.co_consts if isinstance(c, CodeType) and c.co_name == name)


def _helper(name: str, *args: ast.expr) -> ast.Call:
    return ast.Call(ast.Attribute(ast.Name(_HELPER, ast.Load()), name, ast.Load()), list(args), [])


def _locals() -> ast.expr:
    return _helper("names", ast.Call(ast.Name("locals", ast.Load()), [], []))


def _strings(names: list[str]) -> ast.expr:
    return ast.Tuple([ast.Constant(name) for name in names], ast.Load())


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
        if name in ("spmd", "spmd_submit"):
            for option in node.keywords:
                if option.arg == "predicate":
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
        return ast.copy_location(ast.Assign([node.target], node.value), node)

    def visit_With(self, node: ast.With) -> ast.stmt | list[ast.stmt]:
        if len(node.items) == 1 and called(node.items[0].context_expr) in ("spmd",):
            item = node.items[0]
            return self._blocks(node, item.context_expr, None, item.optional_vars)
        if len(node.items) == 1 and is_auto(node.items[0].context_expr):
            node.body = marked(node.body, _holds_tasks, _HELPER)
            self.generic_visit(node)
            return node
        single = len(node.items) == 1 and called(node.items[0].context_expr) == "at"
        if single and not self._rebinds and _is_plain(node.body):
            return self._region(node)
        self.generic_visit(node)
        return node

    def visit_For(self, node: ast.For) -> ast.stmt | list[ast.stmt]:
        name = called(node.iter)
        if name == "spmd":
            if not isinstance(node.target, ast.Name):
                raise TileError("a pl.spmd loop has one name as its target", line=node.lineno)
            return self._blocks(node, node.iter, node.target.id, None)
        before: list[ast.stmt] = []
        if name in _LOOPS:
            call, names = node.iter, sorted(assigned(node.body))
            read = exposed(node.body, set(names) - {n.id for n in under(node.target) if isinstance(n, ast.Name)})
            told = (_strings(sorted(read)), _strings(sorted(used(node.body))), _locals())
            node.iter = ast.copy_location(_helper("carried", node.iter, *told), node.iter)
            before = _bound_before(node)
            if name == "range" and isinstance(call, ast.Call) and all(self._constants.known(a) for a in call.args):
                node.iter = ast.copy_location(_helper("known_bounds", node.iter), node.iter)
            if _holds_tasks(node):
                node.iter = ast.copy_location(_helper("holds_tasks", node.iter), node.iter)
        elif name == "while_":
            node.body = [_conditional(statement) for statement in node.body]
            before = _bound_before(node)
        self.generic_visit(node)
        return [*(ast.copy_location(s, node) for s in before), node] if before else node

    def visit_While(self, node: ast.While) -> list[ast.stmt]:
        """Counted, for it may never end."""
        self.generic_visit(node)
        self._count += 1
        turns = f"__npuscope_turns_{self._count}"
        counter = ast.Assign([ast.Name(turns, ast.Store())], _helper("counted"))
        counted = ast.Expr(ast.Call(ast.Attribute(ast.Name(turns, ast.Load()), "__next__", ast.Load()), [], []))
        for made in (counter, counted):
            _place(made, node)
        node.body.insert(0, counted)
        return [counter, node]

    def _blocks(
        self, node: ast.With | ast.For, call: ast.expr, target: str | None, bind: ast.expr | None
    ) -> list[ast.stmt]:
        function, reads, taken, left = self._as_function(node, "block", target)
        launch = f"__npuscope_launch_{self._count}"
        if isinstance(call, ast.Call):
            call = self.visit(call)
        statements: list[ast.stmt] = [ast.Assign([ast.Name(launch, ast.Store())], call)]
        launched = _helper("launch", ast.Name(launch, ast.Load()))
        statements.append(ast.Expr(launched) if bind is None else ast.Assign([bind], launched))
        run = _helper("blocks", ast.Name(launch, ast.Load()), *_told(function, reads, taken, left))
        statements += [function, *_handed_back(run, left)]
        for statement in statements:
            _place(statement, node)
        return statements

    def _region(self, node: ast.With) -> ast.With:
        """The body of `pl.at` as a function that is called in its place."""
        function, reads, taken, left = self._as_function(node, "region", None)
        node.items[0].context_expr = self.visit(node.items[0].context_expr)
        node.body = [function, *_handed_back(_helper("region", *_told(function, reads, taken, left)), left)]
        for statement in node.body:
            _place(statement, node)
        return node

    def _as_function(
        self, node: ast.With | ast.For, kind: str, target: str | None
    ) -> tuple[ast.FunctionDef, tuple[str, ...] | None, list[str], list[str]]:
        """A region's body as a function of the local names that it reads (of a block: and its index); the other names
        that it reads; these names; and those it binds that code after the region may read.
        """
        made = assigned(node.body) - {target or ""}
        taken = sorted(exposed(node.body, made) | (used(node.body) & self._local - made - {target or ""}))
        left = sorted(made & self._live[id(node)])
        reads = _read_outside(node.body, {*made, *taken, target or ""})
        flat: list[ast.stmt] = [_unbound_deleted(n) for n in taken]
        for statement in node.body:
            visited = self.visit(statement)
            flat.extend(visited if isinstance(visited, list) else [visited])
        self._count += 1
        index = [ast.arg(target or "__npuscope_index")] if kind == "block" else []
        returned = ast.Return(ast.Call(ast.Name("locals", ast.Load()), [], []))
        parameters = [*index, *(ast.arg(n) for n in taken)]
        return _function(f"__npuscope_{kind}_{self._count}", parameters, [*flat, returned]), reads, taken, left


def _told(
    function: ast.FunctionDef, reads: tuple[str, ...] | None, taken: list[str], left: list[str]
) -> tuple[ast.expr, ...]:
    outside = ast.Constant(None) if reads is None else _strings(list(reads))
    return ast.Name(function.name, ast.Load()), outside, _strings(taken), _strings(left), _locals()


_CHANGES = (ast.Global, ast.Nonlocal, ast.Import, ast.ImportFrom, ast.Delete, ast.ClassDef)


def _read_outside(body: list[ast.stmt], inside: set[str]) -> tuple[str, ...] | None:
    """The names that code reads besides its own; None where it may change something that is not its own."""
    for node in under(*body):
        if isinstance(node, _CHANGES) or (isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load)):
            return None
    return tuple(sorted(used(body) - inside))


def _handed_back(call: ast.expr, left: list[str]) -> list[ast.stmt]:
    """`a, b = call`; a name that stays without a value is deleted again."""
    if not left:
        return [ast.Expr(call)]
    names = ast.Tuple([ast.Name(n, ast.Store()) for n in left], ast.Store())
    return [ast.Assign([names], call), *(_unbound_deleted(n) for n in left)]


_NOT_PLAIN = (
    *(ast.Return, ast.Yield, ast.YieldFrom, ast.Await, ast.Delete, ast.Import, ast.ImportFrom, ast.Try, ast.Match),
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda),
)
_OF_THE_FRAME = {"locals", "vars", "dir", "eval", "exec", "super"}


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
            own = name == "body" and isinstance(statement, ast.For | ast.While)
            if isinstance(part, list) and part and isinstance(part[0], ast.stmt) and not own and _leaves_loop(part):
                return True
    return False


def _place(made: ast.stmt, node: ast.stmt) -> None:
    """Puts what was made on the first line of what it stands for: Python takes a method call's line from its end."""
    for child in ast.walk(made):
        if isinstance(child, ast.expr | ast.stmt) and (child is made or not hasattr(child, "lineno")):
            ast.copy_location(child, node)
            child.end_lineno, child.end_col_offset = node.lineno, node.col_offset


def _unbound_deleted(name: str) -> ast.stmt:
    """`if x is UNBOUND: del x`: Python then says itself that the name has no value, at the line that uses it."""
    unbound = ast.Attribute(ast.Name(_HELPER, ast.Load()), "UNBOUND", ast.Load())
    test = ast.Compare(ast.Name(name, ast.Load()), [ast.Is()], [unbound])
    return ast.If(test, [ast.Delete([ast.Name(name, ast.Del())])], [])


def _name(value: ast.expr, name: str) -> None:
    """Tells create_tensor the name it is bound to."""
    made = value
    if isinstance(value, ast.Call) and called(value) == "outside" and value.args:  # helper.outside(pl.create_tensor, …)
        made = ast.Call(value.args[0], [], [])
    if isinstance(value, ast.Call) and called(made) in _NAMED and not any(k.arg == "name" for k in value.keywords):
        value.keywords.append(ast.keyword("name", ast.Constant(name)))


def _bound_before(node: ast.For) -> list[ast.stmt]:
    """`a, b = init_values` before a loop whose last statement is `a, b = pl.yield_(...)`."""
    call = node.iter
    while isinstance(call, ast.Call) and called(call) in ("carried", "known_bounds"):
        call = call.args[0]
    assert isinstance(call, ast.Call)
    init = next((k.value for k in call.keywords if k.arg == "init_values"), None)
    if init is None:
        return []
    for statement in reversed(node.body):
        if isinstance(statement, ast.Assign) and called(statement.value) == "yield_":
            target = statement.targets[0]
            if not isinstance(target, ast.Tuple):
                target = ast.Tuple([target], ast.Store())
            return [ast.Assign([target], init)]
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


@dataclass(frozen=True)
class FunctionSource:
    """Where a function's text stands."""

    name: str
    shown: str  # the file as Python names it
    path: str
    age: int | None  # when the file was last written, ns; None where it is no file
    line: int

    def lines(self) -> list[str]:
        """The function's own lines."""
        if self.age is None:
            raise TileError(
                f"the source of {self.name} cannot be read",
                path=self.shown,
                line=self.line,
                remedy="Tile functions must live in a file.",
            )
        if _age(self.path) != self.age:
            raise TileError(
                f"the file changed after {self.name} was defined",
                path=self.shown,
                line=self.line,
                remedy="Run it again.",
            )
        return inspect.getblock(_file(self.path, self.age)[self.line - 1 :])


def source_of(function: FunctionType) -> FunctionSource:
    """Notes where a function stands; reads nothing yet."""
    code = function.__code__
    path = os.path.abspath(code.co_filename)
    return FunctionSource(function.__name__, code.co_filename, path, _age(path), code.co_firstlineno)


def _age(path: str) -> int | None:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return None


@lru_cache(maxsize=32)
def _file(path: str, age: int) -> list[str]:
    with tokenize.open(path) as file:
        return file.readlines()


_FILES = KeptFiles("rewritten", 64 << 20)
_VERSION = sha256(
    sys.version.encode() + b"".join(file.read_bytes() for file in sorted(Path(__file__).parent.glob("*.py")))
)


class KeptCode(NamedTuple):
    """`inner`: the code of the function; `reads` and `rebound` as in `Rewritten`, places by their lines."""

    inner: CodeType
    reads: tuple[str, ...] | None
    rebound: dict[str, int]


class Kept:
    """The place of one function; `means` says whether a name means the language."""

    def __init__(self, key: object, means: Callable[[str], bool]) -> None:
        hashed = _VERSION.copy()
        hashed.update(repr(key).encode())
        self._key = hashed.hexdigest()
        self._means = means
        self._asked: dict[str, bool] = {}

    def means(self, name: str) -> bool:
        """Asked while rewriting; what was answered decides whether the result holds the next time."""
        return self._asked.setdefault(name, self._means(name))

    def found(self) -> KeptCode | None:
        data = _FILES.read(self._key)
        if data is None:
            return None
        try:
            asked, inner, reads, rebound = marshal.loads(data)
        except (ValueError, EOFError, TypeError):  # half of one
            return None
        if any(self._means(name) != answer for name, answer in asked.items()):
            return None
        return KeptCode(inner, reads, rebound)

    def keep(self, code: KeptCode) -> None:
        with contextlib.suppress(ValueError):  # a constant that cannot be written down
            _FILES.write(self._key, marshal.dumps((self._asked, *code)))
