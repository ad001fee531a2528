"""What the source of a function says before it runs: what PyPTO's parser rejects, and which names code reads or binds.

Only what the text says without doubt is an error here; everything else is left to the run. Statements are
looked through many times, loop inside loop, so a function's nodes are listed once (`list_nodes`) and each knows its
part of the list: walking anew took a third of the time of recording a layer.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from npuscope.ops.spec import OpRole
from npuscope.ops.table import spelled
from npuscope.ops.transfers import GET_BLOCK_IDX, READ
from npuscope.tile.fault import TileError

Means = Callable[[str], bool]  # whether a global or closure name stands for the language itself
Names = frozenset[str]

_PART = "_npuscope_part"
_NONE: Names = frozenset()
_SCALARS = spelled(OpRole.NUMBER)
_COUNTED = {"range", "parallel", "pipeline", "spmd", "split_aiv"}  # loops whose variable is known at run time only
_SAME = spelled(OpRole.NO_NEW_VALUE) | {"update_element", "yield_", "no_dep"}
_PYTHON = {"range", "min", "max", "int", "float", "len", "abs", "list", "tuple", "sum", "print"}

# --- nodes


def list_nodes(tree: ast.AST) -> None:
    """Lists the nodes under a tree, as it is now."""
    nodes: list[ast.AST] = []

    def add(node: ast.AST) -> None:
        first = len(nodes)
        nodes.append(node)
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, ast.expr_context | ast.operator):  # one object stands at many places
                add(child)
        setattr(node, _PART, (nodes, first, len(nodes)))

    add(tree)


def under(*trees: ast.AST) -> Iterable[ast.AST]:
    """The nodes of some trees, as they were when they were listed; of a new one, as it is."""
    found: list[ast.AST] = []
    for tree in trees:
        part = getattr(tree, _PART, None)
        found += ast.walk(tree) if part is None else part[0][part[1] : part[2]]
    return found


def called(node: ast.AST | None) -> str:
    """The last name of what a call calls: `spmd` of `pl.spmd(...)`; "" of what is no call."""
    if not isinstance(node, ast.Call):
        return ""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def keyword(call: ast.expr, name: str) -> ast.expr | None:
    words = call.keywords if isinstance(call, ast.Call) else []
    return next((word.value for word in words if word.arg == name), None)


def _root(node: ast.expr) -> ast.expr:
    """`pl` of `pl.tile.load`."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in under(node) if isinstance(n, ast.Name)}


def assigned(body: Sequence[ast.AST]) -> set[str]:
    """Names that the statements bind."""
    return {node.id for node in under(*body) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def used(body: Sequence[ast.AST]) -> set[str]:
    """Names that the statements read."""
    return {node.id for node in under(*body) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


# --- what the language does not have


def check(definition: ast.FunctionDef, file: str, means: Means) -> None:
    """Raises for the first statement that the language does not have."""
    _Grammar(definition, file, means).body(definition.body, ())


class _Grammar:
    def __init__(self, definition: ast.FunctionDef, file: str, means: Means) -> None:
        self._file, self._means = file, means
        self._runtime = _runtime_names(definition)

    def _fault(self, node: ast.AST, what: str, remedy: str = "") -> TileError:
        return TileError(what, path=self._file, line=getattr(node, "lineno", None), remedy=remedy)

    def body(self, statements: Sequence[ast.stmt], around: tuple[str, ...]) -> None:
        """`around`: the loops and launches a statement stands in, outermost first."""
        for node in statements:
            if isinstance(node, ast.For):
                self._for(node)
                self.body(node.body, (*around, called(node.iter) or "for"))
            elif isinstance(node, ast.While):
                self.body(node.body, (*around, "while_"))
            elif isinstance(node, ast.With):
                is_spmd = called(node.items[0].context_expr) == "spmd"
                if is_spmd:
                    self._spmd_block(node, node.items[0].context_expr)
                self.body(node.body, (*around, "spmd") if is_spmd else around)
            elif isinstance(node, ast.If):
                self._arms(node)
                self.body(node.body, around)
                self.body(node.orelse, around)
            elif isinstance(node, ast.Break | ast.Continue) and (around or ("",))[-1] not in ("range", "while_", "for"):
                where = f"in a pl.{around[-1]} loop" if around else "outside every loop"
                word = type(node).__name__.lower()
                raise self._fault(node, f"{word} {where}", "It works in pl.range and pl.while_ only.")
            elif isinstance(node, ast.Return) and "spmd" in around:
                raise self._fault(node, "return inside pl.spmd", "A block cannot end the function that launched it.")

    def _spmd_block(self, node: ast.With, launch: ast.expr) -> None:
        test = keyword(launch, "predicate")
        if test is not None and not isinstance(test, ast.Name):
            whole = isinstance(test, ast.Compare) and len(test.ops) == 1
            if not whole or not _is_int(test.comparators[0]) or not _reads_element(test.left):  # type: ignore[attr-defined]
                what = "pl.spmd(predicate=…) compares one element with a whole number"
                raise self._fault(test, what, "Write predicate=(t[i] > 0).")
        # the body must read its block index or call a kernel, else every block would do the same work
        calls = [n for n in under(*node.body) if isinstance(n, ast.Call)]
        if not any(called(n) in GET_BLOCK_IDX.names or self._is_kernel(n.func) for n in calls):
            what = "this pl.spmd block neither reads pl.tile.get_block_idx() nor calls a kernel: every block would do "
            raise self._fault(node, what + "the same work", "Use the block index, or pl.at for one block.")

    def _is_kernel(self, function: ast.expr) -> bool:
        root = _root(function)
        if not isinstance(root, ast.Name) or (root is function and root.id in _PYTHON):
            return False
        return not self._means(root.id)  # the language itself is no kernel

    def _for(self, node: ast.For) -> None:
        name = called(node.iter)
        if name == "unroll" and isinstance(node.iter, ast.Call):
            for bound in node.iter.args:
                names = sorted(_names(bound) & self._runtime)
                if names or any(called(n) in _SCALARS for n in under(bound)):
                    about = f"{names[0] if names else ast.unparse(bound)} is a run-time value"
                    what = f"pl.unroll needs bounds known when the program is read; {about}"
                    raise self._fault(node.iter, what, "Use pl.range.")
        elif name == "while_":
            first = node.body[0]
            if not (isinstance(first, ast.Expr) and called(first.value) == "cond"):
                raise self._fault(node, "the first statement of a pl.while_ loop must be pl.cond(condition)")
        init = keyword(node.iter, "init_values")
        if init is None:
            return
        last = _last_yield(node.body)
        if not isinstance(last, ast.Assign):
            what = f"a pl.{name} loop with init_values must end with `names = pl.yield_(values)`"
            raise self._fault(node, what, "The names on the left hold the last values after the loop.")
        given = len(last.value.args) if isinstance(last.value, ast.Call) else 0
        if isinstance(init, ast.Tuple | ast.List) and len(init.elts) != given:
            what = f"pl.yield_ hands on {given} values, init_values of its pl.{name} {len(init.elts)}"
            raise self._fault(last, what)

    def _arms(self, node: ast.If) -> None:
        arms = [_last_yield(node.body), _last_yield(node.orelse)]
        counts = [len(arm.value.args) for arm in arms if arm is not None and isinstance(arm.value, ast.Call)]
        if len(counts) == 2 and counts[0] != counts[1]:
            raise self._fault(node, f"the branches of this if yield {counts[0]} and {counts[1]} values")


def rebound(definition: ast.FunctionDef, means: Means) -> dict[str, int]:
    """Parameters that an op's result takes the name of, with the line; not those that are returned."""
    arguments = {a.arg for a in definition.args.args}
    returned: set[str] = set()
    found: dict[str, int] = {}
    for node in under(definition):
        if isinstance(node, ast.Return) and node.value is not None:
            returned |= _names(node.value)
        elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            name, value = node.targets[0].id, node.value
            if name in arguments and (isinstance(value, ast.BinOp) or _computes(value, means)):
                found.setdefault(name, node.lineno)
    return {name: line for name, line in found.items() if name not in returned}


def _computes(value: ast.expr, means: Means) -> bool:
    """Whether it is an op whose result is a new value, not the tensor written or seen another way."""
    if not isinstance(value, ast.Call) or called(value) in _SAME:
        return False
    root = _root(value.func)
    return isinstance(root, ast.Name) and means(root.id)


def _is_int(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node = node.operand
    return isinstance(node, ast.Constant) and type(node.value) is int


def _reads_element(node: ast.expr) -> bool:
    return isinstance(node, ast.Subscript) or called(node) in READ.names


def _last_yield(body: Sequence[ast.stmt]) -> ast.Assign | ast.Expr | None:
    """The pl.yield_ that ends a body, as it is or as the phi of an if."""
    last = body[-1] if body else None
    if not isinstance(last, ast.Assign | ast.AnnAssign | ast.Expr) or called(last.value) != "yield_":
        return None
    return ast.Assign([last.target], last.value or ast.Constant(0)) if isinstance(last, ast.AnnAssign) else last


def _runtime_names(definition: ast.FunctionDef) -> set[str]:
    """Names that every binding of them gives a run-time value: Scalar parameters, loop variables, elements read."""
    arguments = [*definition.args.posonlyargs, *definition.args.args, *definition.args.kwonlyargs]
    scalars = {a.arg for a in arguments if a.annotation is not None and "Scalar" in ast.unparse(a.annotation)}
    bindings = list(_bindings(definition))
    parameters = {a.arg for a in arguments}
    found = set(scalars)
    while True:
        constant = (parameters - scalars) | {name for name, kind, value in bindings if not _runs(kind, value, found)}
        more = (scalars | {name for name, _, _ in bindings}) - constant
        if more <= found:
            return found - constant
        found |= more


def _runs(kind: str, value: ast.expr, found: set[str]) -> bool:
    if kind == "loop":
        return called(value) in _COUNTED
    return bool(_names(value) & found) or any(called(n) in _SCALARS for n in under(value))


def _bindings(definition: ast.FunctionDef) -> Iterator[tuple[str, str, ast.expr]]:
    for node in under(definition):
        if isinstance(node, ast.For) and isinstance(node.target, ast.Name):
            yield node.target.id, "loop", node.iter
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) and node.value is not None:
            for name in assigned(node.targets if isinstance(node, ast.Assign) else [node.target]):
                yield name, "value", node.value


class Constants:
    """Which expressions of a function the compiler knows the value of; `local`: the names that it binds.

    Literals, names from outside the function (module constants, closures) and their arithmetic are known; so is a local
    name that is bound once, to such an expression, outside every loop and branch. Parameters, sizes that are asked for
    at run time and everything read from a tensor are not.
    """

    def __init__(self, definition: ast.FunctionDef, local: set[str]) -> None:
        stores = [n for n in ast.walk(definition) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
        bound = Counter(node.id for node in stores)
        self._unknown = {*local, *bound}
        for statement in definition.body:
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                name = statement.targets[0].id
                if bound[name] == 1 and self.known(statement.value):
                    self._unknown.discard(name)

    def known(self, expression: ast.expr) -> bool:
        allowed = (ast.Constant, ast.Name, ast.Attribute, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.Load)
        parts = list(ast.walk(expression))
        unknown = any(isinstance(part, ast.Name) and part.id in self._unknown for part in parts)
        return not unknown and all(isinstance(part, allowed) for part in parts)


# --- names that are read before they are bound


def exposed(body: Sequence[ast.stmt], names: set[str]) -> set[str]:
    """Those of the names that some path reads before it binds them."""
    found: set[str] = set()

    def walk(body: Sequence[ast.stmt], bound: set[str]) -> set[str]:
        """The names that are surely bound after some statements, given those before."""
        for node in body:
            bound = statement(node, bound)
        return bound

    def read(node: ast.AST, bound: set[str]) -> None:
        found.update(used([node]) & (names - bound))

    def statement(node: ast.stmt, bound: set[str]) -> set[str]:
        match node:
            case ast.If():
                read(node.test, bound)
                return walk(node.body, bound) & walk(node.orelse, bound)
            case ast.For() | ast.While():
                read(node.iter if isinstance(node, ast.For) else node.test, bound)
                walk(node.body, bound | assigned([node.target]) if isinstance(node, ast.For) else bound)
                walk(node.orelse, bound)
                return bound
            case ast.With():
                for item in node.items:
                    read(item.context_expr, bound)
                    bound = bound | assigned([item.optional_vars] if item.optional_vars else [])
                return walk(node.body, bound)
            case ast.AugAssign():
                read(node.value, bound)
                if isinstance(node.target, ast.Name) and node.target.id in names - bound:
                    found.add(node.target.id)
                return bound | assigned([node.target])
        read(node, bound)
        return bound | assigned([node]) if isinstance(node, ast.Assign | ast.AnnAssign) else bound

    walk(body, set())
    return found


# --- names that are read after a region


def live_after(definition: ast.FunctionDef) -> dict[int, Names]:
    """id of each `with` and `for` statement of a function → the names that may be read after it.

    Backward through the statements, to a fixed point in loops. What is not understood reads every name.
    """
    walk = _Liveness(frozenset(used(definition.body)))
    walk.body(definition.body, _NONE, _Exits())
    # functions made inside may be called at any time
    made = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef
    inner = [n for n in under(definition) if isinstance(n, made) and n is not definition]
    always = frozenset(name for one in inner for name in _names(one))
    return {statement: names | always for statement, names in walk.found.items()}


class _Exits(NamedTuple):
    """What is read after `break` and after `continue` of the innermost loop."""

    broken: Names = _NONE
    continued: Names = _NONE


class _Liveness:
    def __init__(self, everything: Names) -> None:
        self.found: dict[int, Names] = {}
        self._everything = everything
        self._plain: dict[int, tuple[Names, Names]] = {}

    def body(self, body: Sequence[ast.stmt], after: Names, exits: _Exits) -> Names:
        """The names read from the start of some statements on."""
        for statement in reversed(body):
            after = self._statement(statement, after, exits)
        return after

    def _statement(self, node: ast.stmt, after: Names, exits: _Exits) -> Names:
        match node:
            case ast.If():
                arms = self.body(node.body, after, exits), self.body(node.orelse, after, exits)
                return frozenset(used([node.test])).union(*arms)
            case ast.For() | ast.While():
                self.found[id(node)] = self.found.get(id(node), _NONE) | after
                return self._loop(node, after, exits)
            case ast.With():
                self.found[id(node)] = self.found.get(id(node), _NONE) | after
                named = assigned([item.optional_vars for item in node.items if item.optional_vars is not None])
                reads = used([item.context_expr for item in node.items])
                return (self.body(node.body, after, exits) - named) | reads
            case ast.Break():
                return exits.broken
            case ast.Continue():
                return exits.continued
            case ast.Return():
                return frozenset(used([node]))
            case ast.Assign() | ast.AnnAssign() | ast.Expr() | ast.AugAssign() | ast.Pass() | ast.Assert():
                read, bound = self._of_plain(node)
                return read | (after - bound)
        for inner in under(node):
            if isinstance(inner, ast.With | ast.For):
                self.found[id(inner)] = self._everything
        return self._everything

    def _loop(self, node: ast.For | ast.While, after: Names, exits: _Exits) -> Names:
        bound = assigned([node.target]) if isinstance(node, ast.For) else set()
        again = left = (
            self.body(node.orelse, after, exits) | after | used([node.test] if isinstance(node, ast.While) else [])
        )
        while True:  # names only ever join
            turn = left | (self.body(node.body, again, _Exits(after, again)) - bound)
            if turn == again:
                break
            again = turn
        return again | used([node.iter] if isinstance(node, ast.For) else [])

    def _of_plain(self, node: ast.stmt) -> tuple[Names, Names]:
        known = self._plain.get(id(node))
        if known is None:
            reads = used([node]) | (assigned([node]) if isinstance(node, ast.AugAssign) else set())
            # A name inside a comprehension or behind `and` may not be bound.
            targets: list[ast.expr] = node.targets if isinstance(node, ast.Assign) else []
            if isinstance(node, ast.AnnAssign | ast.AugAssign) and node.value is not None:
                targets = [node.target]
            known = self._plain[id(node)] = (frozenset(reads), frozenset(assigned(targets)))
        return known
