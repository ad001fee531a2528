"""What the source of a function says before it runs: what PyPTO's parser rejects, and which names code reads or binds.

Only what can be told from the text without doubt is an error here; everything else is left to the run. Statements are
looked through many times, loop inside loop, so a function's nodes are listed once (`list_nodes`) and each knows its
part of the list: walking anew took a third of the time of recording a layer.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from npuscope.ops.scalars import GET_BLOCK_IDX, READ
from npuscope.ops.spec import Role
from npuscope.ops.table import spelled
from npuscope.tile.fault import TileError

Means = Callable[[str], bool]  # whether a global or closure name stands for the language itself

_SCALARS = spelled(Role.NUMBER)
_COUNTED = {"range", "parallel", "pipeline", "spmd", "split_aiv"}  # loops whose variable is known at run time only
_SAME = spelled(Role.NO_NEW_VALUE) | {"update_element", "yield_", "no_dep"}
_PYTHON = {"range", "min", "max", "int", "float", "len", "abs", "list", "tuple", "sum", "print"}


def check(definition: ast.FunctionDef, file: str, means: Means) -> None:
    """Raises for the first statement that the language does not have."""
    _Grammar(definition, file, means).body(definition.body, ())


def keyword(call: ast.expr, name: str) -> ast.expr | None:
    if not isinstance(call, ast.Call):
        return None
    return next((k.value for k in call.keywords if k.arg == name), None)


class _Grammar:
    def __init__(self, definition: ast.FunctionDef, file: str, means: Means) -> None:
        self._file, self._means = file, means
        self._runtime = _runtime_names(definition)

    def _fault(self, node: ast.AST, what: str, remedy: str = "") -> TileError:
        return TileError(what, path=self._file, line=getattr(node, "lineno", None), remedy=remedy)

    def body(self, statements: Sequence[ast.stmt], around: tuple[str, ...]) -> None:
        """`around`: the loops and launches a statement stands in, outermost first."""
        for statement in statements:
            self._statement(statement, around)

    def _statement(self, node: ast.stmt, around: tuple[str, ...]) -> None:
        if isinstance(node, ast.For):
            name = called(node.iter)
            if name == "spmd":
                self._no_launch_options(node.iter, "a pl.spmd loop")
            elif name == "unroll":
                self._unroll(node.iter)
            elif name == "while_":
                self._while(node)
            if keyword(node.iter, "init_values") is not None:
                self._carried(node)
            self.body(node.body, (*around, name or "for"))
        elif isinstance(node, ast.While):
            self.body(node.body, (*around, "while_"))
        elif isinstance(node, ast.With):
            launch = node.items[0].context_expr
            if called(launch) == "spmd":
                if node.items[0].optional_vars is None:
                    self._no_launch_options(launch, "a pl.spmd block without `as`")
                self._predicate(launch)
                self._differs_by_block(node)
                self.body(node.body, (*around, "spmd"))
            else:
                self.body(node.body, around)
        elif isinstance(node, ast.If):
            self._arms(node)
            self.body(node.body, around)
            self.body(node.orelse, around)
        elif isinstance(node, ast.Break | ast.Continue):
            word = "break" if isinstance(node, ast.Break) else "continue"
            loop = around[-1] if around else ""
            if loop not in ("range", "while_", "for"):
                where = f"in a pl.{loop} loop" if loop else "outside every loop"
                raise self._fault(node, f"{word} {where}", "It works in pl.range and pl.while_ only.")
        elif isinstance(node, ast.Return) and "spmd" in around:
            raise self._fault(node, "return inside pl.spmd", "A block cannot end the function that launched it.")

    # --- launches

    def _no_launch_options(self, call: ast.expr, where: str) -> None:
        for name in ("deps", "predicate"):
            if keyword(call, name) is not None:
                raise self._fault(
                    call,
                    f"pl.spmd() does not accept '{name}=' in {where}",
                    f"Write `with pl.spmd(n, {name}=…) as tid:`.",
                )

    def _predicate(self, call: ast.expr) -> None:
        test = keyword(call, "predicate")
        if test is None or isinstance(test, ast.Name):
            return
        whole = isinstance(test, ast.Compare) and len(test.ops) == 1
        if not whole or not _is_int(test.comparators[0]) or not _reads_element(test.left):  # type: ignore[attr-defined]
            raise self._fault(
                test, "pl.spmd(predicate=…) compares one element with a whole number", "Write predicate=(t[i] > 0)."
            )

    def _differs_by_block(self, node: ast.With) -> None:
        """The body must read its block index or call a kernel, else every block would do the same work."""
        calls = [n for n in under(*node.body) if isinstance(n, ast.Call)]
        if not any(called(n) in GET_BLOCK_IDX.names or self._is_kernel(n.func) for n in calls):
            raise self._fault(
                node,
                "this pl.spmd block neither reads pl.tile.get_block_idx() nor calls a kernel: every block would do the "
                "same work",
                "Use the block index, or pl.at for one block.",
            )

    def _is_kernel(self, function: ast.expr) -> bool:
        root = function
        while isinstance(root, ast.Attribute):
            root = root.value
        if not isinstance(root, ast.Name) or (root is function and root.id in _PYTHON):
            return False
        return not self._means(root.id)  # the language itself is no kernel

    # --- loops and branches

    def _unroll(self, call: ast.expr) -> None:
        assert isinstance(call, ast.Call)
        for bound in call.args:
            names = sorted(_names(bound) & self._runtime)
            if names or any(called(n) in _SCALARS for n in under(bound)):
                what = names[0] if names else ast.unparse(bound)
                raise self._fault(
                    call, f"pl.unroll needs bounds known when the program is read; {what} is a run-time value",
                    "Use pl.range.",
                )  # fmt: skip

    def _while(self, node: ast.For) -> None:
        first = node.body[0]
        if not (isinstance(first, ast.Expr) and called(first.value) == "cond"):
            raise self._fault(node, "the first statement of a pl.while_ loop must be pl.cond(condition)")

    def _carried(self, node: ast.For) -> None:
        init = keyword(node.iter, "init_values")
        found = _last_yield(node.body)
        loop = f"pl.{called(node.iter)}"
        if found is None or not isinstance(found, ast.Assign):
            raise self._fault(
                node, f"a {loop} loop with init_values must end with `names = pl.yield_(values)`",
                "The names on the left hold the last values after the loop.",
            )  # fmt: skip
        given = len(found.value.args) if isinstance(found.value, ast.Call) else 0
        if isinstance(init, ast.Tuple | ast.List) and len(init.elts) != given:
            raise self._fault(found, f"pl.yield_ hands on {given} values, init_values of its {loop} {len(init.elts)}")

    def _arms(self, node: ast.If) -> None:
        one, other = _last_yield(node.body), _last_yield(node.orelse)
        if one is None or other is None:
            return
        counts = [len(s.value.args) for s in (one, other) if isinstance(s.value, ast.Call)]
        if counts[0] != counts[1]:
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
    root: ast.expr = value.func
    while isinstance(root, ast.Attribute):
        root = root.value
    return isinstance(root, ast.Name) and means(root.id)


def _is_int(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node = node.operand
    return isinstance(node, ast.Constant) and type(node.value) is int


def _reads_element(node: ast.expr) -> bool:
    return isinstance(node, ast.Subscript) or called(node) in READ.names


def _last_yield(body: Sequence[ast.stmt]) -> ast.Assign | ast.AnnAssign | ast.Expr | None:
    """The pl.yield_ that ends a body, as it is or as the phi of an if."""
    if not body:
        return None
    last = body[-1]
    if isinstance(last, ast.Assign | ast.AnnAssign | ast.Expr) and called(last.value) == "yield_":
        return last if not isinstance(last, ast.AnnAssign) else ast.Assign([last.target], last.value or ast.Constant(0))
    return None


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in under(node) if isinstance(n, ast.Name)}


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
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                for n in under(target):
                    if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store):
                        yield n.id, "value", node.value


_PART = "_npuscope_part"


def called(node: ast.AST | None) -> str:
    """The last name of what a call calls: `spmd` of `pl.spmd(...)`; "" of what is no call."""
    if not isinstance(node, ast.Call):
        return ""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


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


def assigned(body: Sequence[ast.AST]) -> set[str]:
    """Names that the statements bind."""
    return {node.id for node in under(*body) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def used(body: Sequence[ast.AST]) -> set[str]:
    """Names that the statements read."""
    nodes = under(*body)
    return {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


def exposed(body: Sequence[ast.stmt], names: set[str]) -> set[str]:
    """Those of the names that some path reads before it binds them."""
    found: set[str] = set()
    _walk(body, names, set(), found)
    return found


def _walk(body: Sequence[ast.stmt], names: set[str], sure: set[str], found: set[str]) -> set[str]:
    for statement in body:
        sure = _statement(statement, names, sure, found)
    return sure


def _reads(node: ast.AST, names: set[str], sure: set[str], found: set[str]) -> None:
    found |= used([node]) & (names - sure)


def _statement(node: ast.stmt, names: set[str], sure: set[str], found: set[str]) -> set[str]:
    if isinstance(node, ast.If):
        _reads(node.test, names, sure, found)
        one = _walk(node.body, names, set(sure), found)
        other = _walk(node.orelse, names, set(sure), found)
        return one & other
    if isinstance(node, ast.For):
        _reads(node.iter, names, sure, found)
        _walk(node.body, names, sure | assigned([node.target]), found)
        _walk(node.orelse, names, set(sure), found)
        return sure
    if isinstance(node, ast.While):
        _reads(node.test, names, sure, found)
        _walk(node.body, names, set(sure), found)
        _walk(node.orelse, names, set(sure), found)
        return sure
    if isinstance(node, ast.With):
        for item in node.items:
            _reads(item.context_expr, names, sure, found)
            sure = sure | assigned([item.optional_vars] if item.optional_vars else [])
        return _walk(node.body, names, sure, found)
    if isinstance(node, ast.AugAssign):
        _reads(node.value, names, sure, found)
        if isinstance(node.target, ast.Name) and node.target.id in names - sure:
            found.add(node.target.id)
        return sure | assigned([node.target])
    _reads(node, names, sure, found)
    return sure | assigned([node]) if isinstance(node, ast.Assign | ast.AnnAssign) else sure


Names = frozenset[str]
_NONE: Names = frozenset()


class _Exits(NamedTuple):
    """What is read after `break` and after `continue` of the innermost loop."""

    broken: Names = _NONE
    continued: Names = _NONE


def live_after(definition: ast.FunctionDef) -> dict[int, Names]:
    """id of each `with` and `for` statement of a function → the names that may be read after it."""
    walk = _Walk(frozenset(used(definition.body)))
    walk.body(definition.body, _NONE, _Exits())
    always = _in_functions(definition)
    return {statement: names | always for statement, names in walk.found.items()}


def _in_functions(definition: ast.FunctionDef) -> Names:
    """Names that functions made inside read: they may be called at any time."""
    made = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef
    inner = [n for n in under(definition) if isinstance(n, made) and n is not definition]
    return frozenset(n.id for one in inner for n in under(one) if isinstance(n, ast.Name))


class _Walk:
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
        if isinstance(node, ast.If):
            arms = self.body(node.body, after, exits), self.body(node.orelse, after, exits)
            return _read_by(node.test).union(*arms)
        if isinstance(node, ast.For | ast.While):
            self.found[id(node)] = self.found.get(id(node), _NONE) | after
            return self._loop(node, after, exits)
        if isinstance(node, ast.With):
            self.found[id(node)] = self.found.get(id(node), _NONE) | after
            named = assigned([item.optional_vars for item in node.items if item.optional_vars is not None])
            reads = [_read_by(item.context_expr) for item in node.items]
            return (self.body(node.body, after, exits) - named).union(*reads)
        if isinstance(node, ast.Break):
            return exits.broken
        if isinstance(node, ast.Continue):
            return exits.continued
        if isinstance(node, ast.Return):
            return _read_by(node) if node.value is not None else _NONE
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.Expr | ast.AugAssign | ast.Pass | ast.Assert):
            read, bound = self._of_plain(node)
            return read | (after - bound)
        for inner in under(node):
            if isinstance(inner, ast.With | ast.For):
                self.found[id(inner)] = self._everything
        return self._everything

    def _loop(self, node: ast.For | ast.While, after: Names, exits: _Exits) -> Names:
        bound, head = _NONE, _NONE
        if isinstance(node, ast.For):
            bound = frozenset(assigned([node.target]))
        else:
            head = _read_by(node.test)
        left = self.body(node.orelse, after, exits) | after | head
        again = left
        while True:  # names only ever join
            turn = left | (self.body(node.body, again, _Exits(after, again)) - bound)
            if turn == again:
                break
            again = turn
        return again | (_read_by(node.iter) if isinstance(node, ast.For) else _NONE)

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


def _read_by(node: ast.AST) -> Names:
    return frozenset(used([node]))


class Constants:
    """What is constant in one function; `local`: the names that it binds."""

    def __init__(self, definition: ast.FunctionDef, local: set[str]) -> None:
        bound: dict[str, int] = {}
        for node in ast.walk(definition):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                bound[node.id] = bound.get(node.id, 0) + 1
        self._unknown = {*local, *bound}
        for statement in definition.body:
            if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Name):
                continue
            name = statement.targets[0].id
            if bound[name] == 1 and self.known(statement.value):
                self._unknown.discard(name)

    def known(self, expression: ast.expr) -> bool:
        allowed = (ast.Constant, ast.Name, ast.Attribute, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.Load)
        parts = list(ast.walk(expression))
        if not all(isinstance(part, allowed) for part in parts):
            return False
        return not any(isinstance(part, ast.Name) and part.id in self._unknown for part in parts)
