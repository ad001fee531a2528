"""Scopes that could be one: neighbours fused, their loops walked together, a loop of scopes moved into one scope.

drawn-tasks     `with pl.auto_incore()` as the tasks that the compiler drew in it
fuse-scopes     neighbouring `with pl.at(…)` become one; where their loops are alike, one loop with one load for both
loop-in-scope   `for … : with pl.at(…):` becomes `with pl.at(…): for … :`, what a turn leaves stays on chip
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import libcst as cst

from npuscope.check.fixes import tree
from npuscope.check.fixes.fix import NewText, Unmended, fix
from npuscope.check.fixes.tree import Edit, Source, Statement, statement
from npuscope.check.phrases import listed
from npuscope.check.rule import Finding
from npuscope.ops.cube import MATMUL, MATMUL_ACC
from npuscope.ops.elementwise import ADD, CAST, EXP, MUL, SUB
from npuscope.ops.shaping import FULL
from npuscope.ops.transfers import ASSEMBLE, STORE

SCOPES = ("at", "incore")
CREATES = ("create_tensor", "create")
OPS = (MATMUL, MATMUL_ACC, ADD, MUL, SUB, EXP, CAST, ASSEMBLE, STORE, FULL)
COMPUTES = frozenset(name for op in OPS for name in op.names)
NO_SCOPE = "its lines open no scopes of one block"


def scope_call(statement: cst.CSTNode | None) -> cst.Call | None:
    """The call of `with pl.at(…):`, which opens a task; None where it opens none or names its task."""
    if not isinstance(statement, cst.With) or len(statement.items) != 1:
        return None
    item = statement.items[0]
    plain = item.asname is None and isinstance(item.item, cst.Call) and tree.called(item.item) in SCOPES
    return item.item if plain and isinstance(item.item, cst.Call) else None


def is_created(statement: Statement) -> bool:
    """`x = pl.create_tensor(…)`: it needs nothing that is computed, and stands in front of a scope."""
    found = tree.assigned(statement)
    return found is not None and tree.called(found[1]) in CREATES


def is_scalar(statement: Statement) -> bool:
    """Arithmetic of indices: `n0 = block * TILE`. It may stand inside a scope as well as in front of it."""
    found = tree.assigned(statement)
    names = {tree.called(call) for call in tree.calls_in(statement)}
    return found is not None and not names & {*COMPUTES, *CREATES}


def body_of(block: cst.With | cst.For) -> list[Statement]:
    return [one for one in block.body.body if isinstance(one, Statement)]


def with_body(block: cst.With | cst.For, body: Sequence[Statement]) -> cst.With | cst.For:
    return block.with_changes(body=block.body.with_changes(body=list(body)))


def with_comments_of(block: cst.With | cst.For, body: Sequence[Statement]) -> list[Statement]:
    """Statements below the comments that stand above a block which goes."""
    head, *rest = body
    above = [line for line in tree.leading(block) if line.comment]
    return [head.with_changes(leading_lines=[*above, *tree.leading(head)]), *rest]


@fix("fuse-scopes", "scopes that could be one", ("gm-round-trip", "split-halves", "shared-load"))
def _fuse(source: Source, findings: Sequence[Finding]) -> Iterator[NewText | Unmended]:
    for finding in findings:
        lines = sorted(set(source.lines_of(finding)))
        scopes = [scope for line in lines if (scope := _scope_at(source, line)) is not None]
        scopes = list(dict.fromkeys(scopes))
        blocks = {source.block_of(one) for one in scopes}
        if len(scopes) < 2 or len(blocks) != 1:
            yield Unmended(finding, NO_SCOPE)
            continue
        siblings, first = source.siblings(scopes[0])
        last = siblings.index(scopes[-1])
        between = siblings[first : last + 1]
        moved = [one for one in between if one not in scopes]
        if why := _immovable(scopes, moved):
            yield Unmended(finding, why)
            continue
        created = [one for one in moved if is_created(one)]
        title = f"one {'scope' if isinstance(scopes[0], cst.With) else 'launch'} in place of {len(scopes)}"
        bodies = {one: _with_index_of(scopes[0], one) for one in scopes}
        zipped = _walked_together([*bodies.values()]) if len(created) == len(moved) else None
        if zipped is not None:
            new = (*created, with_body(scopes[0], zipped))
            yield NewText(source.edited([Edit(tuple(between), new)]), f"{title}, one load for both", (finding,))
        inner: list[Statement] = []
        for one in between:
            if isinstance(one, cst.With | cst.For):
                inner += bodies[one] if one is scopes[0] else with_comments_of(one, bodies[one])
            elif one not in created:
                inner.append(one)
        new = (*created, with_body(scopes[0], inner))
        yield NewText(source.edited([Edit(tuple(between), new)]), title, (finding,))


def _scope_at(source: Source, line: int) -> cst.With | cst.For | None:
    """The scope or the launch of blocks on a line, or around it."""
    for one in source.around_line(line):
        if isinstance(one, cst.With) and scope_call(one) is not None:
            return one
        if isinstance(one, cst.For) and tree.called(one.iter) == "spmd" and isinstance(one.target, cst.Name):
            return one
    return None


def _with_index_of(first: cst.With | cst.For, other: cst.With | cst.For) -> list[Statement]:
    """The body of a launch with the name that another one has for its blocks."""
    if not isinstance(first, cst.For) or not isinstance(other, cst.For) or tree.same(first.target, other.target):
        return body_of(other)
    assert isinstance(other.target, cst.Name)
    return [tree.with_names(one, {other.target.value: first.target}) for one in body_of(other)]


def _immovable(scopes: Sequence[cst.With | cst.For], moved: Sequence[Statement]) -> str:
    """Why scopes cannot be one; "" where they can."""
    if any(isinstance(one, cst.With) for one in moved):
        return "another scope stands between them"
    counts = [[arg.value for arg in tree.positional(one.iter)] for one in scopes if isinstance(one, cst.For)]  # type: ignore[arg-type]
    if counts and (
        len(counts) < len(scopes) or any(len(one) != 1 or not tree.same(one[0], counts[0][0]) for one in counts)
    ):
        return "they are launches of different numbers of blocks"
    if any(not is_created(one) and not is_scalar(one) for one in moved):
        return "what stands between them cannot be moved into a scope"
    return ""


def _walked_together(bodies: Sequence[list[Statement]]) -> list[Statement] | None:
    """Bodies of scopes with one loop for all of theirs, what is equal once; None where they are not alike."""
    whole = bodies[0]
    for body in bodies[1:]:
        merged = _merged(whole, body)
        if merged is None:
            return None
        whole = merged
    return whole


def _merged(a: list[Statement], b: list[Statement]) -> list[Statement] | None:
    """Two bodies as one: up to the loop, the loop, after the loop, each of both. None where that changes a meaning."""
    at, bt = ([n for n, one in enumerate(body) if isinstance(one, cst.For)] for body in (a, b))
    if len(at) != 1 or len(bt) != 1:
        return None
    loop_a, loop_b = a[at[0]], b[bt[0]]
    assert isinstance(loop_a, cst.For)
    assert isinstance(loop_b, cst.For)
    if not (tree.same(loop_a.iter, loop_b.iter) and tree.same(loop_a.target, loop_b.target)):
        return None
    parts = ((a[: at[0]], b[: bt[0]]), (body_of(loop_a), body_of(loop_b)), (a[at[0] + 1 :], b[bt[0] + 1 :]))
    target = tree.names_in(loop_a.target)
    twice = {name for name in tree.bound_in(*a) & tree.bound_in(*b) - target if not _bound_alike(name, a, b)}
    if twice or tree.names_in(*parts[0][1], *parts[1][1]) & (tree.bound_in(*a) - _equal_names(a, b) - target):
        return None
    before, inside, after = (
        [*mine, *(one for one in theirs if not any(tree.same(one, other) for other in mine))] for mine, theirs in parts
    )
    return [*before, with_body(loop_a, inside), *after]


def _all(body: Sequence[Statement]) -> Iterator[Statement]:
    for one in body:
        yield one
        if isinstance(one, cst.For):
            yield from _all(body_of(one))


def _bound_alike(name: str, a: list[Statement], b: list[Statement]) -> bool:
    """Whether both give a name the same values."""
    mine, theirs = ([one for one in _all(body) if (got := tree.assigned(one)) and got[0] == name] for body in (a, b))
    return bool(mine) and len(mine) == len(theirs) and all(tree.same(x, y) for x, y in zip(mine, theirs, strict=True))


def _equal_names(a: list[Statement], b: list[Statement]) -> set[str]:
    return {name for name in tree.bound_in(*a) & tree.bound_in(*b) if _bound_alike(name, a, b)}


@fix(
    "loop-in-scope",
    "loops of scopes that could be one scope",
    ("short-task", "gm-round-trip", "many-tasks", "sequential-independent", "gm-accumulate"),
)
def _loop_in_scope(source: Source, findings: Sequence[Finding]) -> Iterator[NewText | Unmended]:
    found: dict[cst.For, list[Finding]] = {}
    for finding in findings:
        scope = _scope_at(source, finding.line)
        block = None if scope is None else source.block_of(scope)
        loop = None if block is None else source.parent(block)
        if isinstance(loop, cst.For) and tree.called(loop.iter) in ("range", "parallel"):
            found.setdefault(loop, []).append(finding)
    for loop, those in found.items():
        body = body_of(loop)
        scopes = [one for one in body if isinstance(one, cst.With)]
        others = [one for one in body if not isinstance(one, cst.With)]
        if len(scopes) != 1 or scope_call(scopes[0]) is None or not isinstance(loop.iter, cst.Call):
            continue
        if any(not is_created(one) and not is_scalar(one) for one in others):
            continue
        scope = scopes[0]
        created = [one for one in others if is_created(one)]
        flat: list[Statement] = []
        for one in body:
            if one is scope:
                flat += with_comments_of(scope, body_of(scope))
            elif one not in created:
                flat.append(one)
        inner = with_body(loop.with_changes(iter=in_a_task(loop.iter), leading_lines=()), flat)
        outside = with_body(scope.with_changes(leading_lines=()), [inner])
        name = listed(sorted(tree.names_in(loop.target)))
        title = f"one task for all turns of the loop over {name}"
        yield NewText(source.edited([Edit((loop,), (*created, outside))]), title, tuple(those))


def in_a_task(call: cst.Call) -> cst.Call:
    """`pl.range` of `pl.parallel`, and no chunks: inside a task turns go one after the other."""
    args = [one for one in call.args if one.keyword is None or one.keyword.value != "chunk"]
    if len(args) < len(call.args) and args:
        args[-1] = args[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
    return tree.renamed(call.with_changes(args=args), "range" if tree.called(call) == "parallel" else tree.called(call))


@fix("drawn-tasks", "tasks that the compiler drew", ("retired-spelling",), about="quality")
def _drawn(source: Source, findings: Sequence[Finding]) -> Iterator[NewText | Unmended]:
    """`with pl.auto_incore():` as the tasks that the compiler drew in it: a pl.at for each chunk and run of ops."""
    ours = tuple(one for one in findings if "auto_incore" in one.message or "(chunk=)" in one.message)
    edits = []
    for one in source.statements:
        if isinstance(one, cst.With) and len(one.items) == 1 and tree.called(one.items[0].item) == "auto_incore":
            call = one.items[0].item
            assert isinstance(call, cst.Call)
            given = tree.keywords(call)
            if len(given) == len(call.args) and given.keys() <= {"split"}:
                edits.append(Edit((one,), tuple(_tasks(body_of(one), _opened(call)))))
    if ours and edits:
        yield NewText(source.edited(edits), "a pl.at for every task that the compiler drew", ours)


def _opened(call: cst.Call) -> str:
    """`pl.at(…)` that opens one task of such a scope."""
    module, split = tree.module_of(call), tree.keywords(call).get("split")
    text = "" if split is None else tree.text_of(split.value)
    more = "" if not text or text.endswith(".NONE") else f", optimizations=[{module}split({text})]"
    return f"{module}at(level={module}Level.CORE_GROUP{more})"


def _tasks(body: Sequence[Statement], opened: str) -> Iterator[Statement]:
    """Statements with those that compute in scopes of their own."""
    run: list[Statement] = []
    for one in body:
        loop = one if isinstance(one, cst.For) else None
        outside = is_created(one) or is_scalar(one) or (loop is not None and (_chunk(loop) or _holds_chunks(loop)))
        if not outside:
            run.append(one)
            continue
        if run:
            yield _scope(run, opened)
        run = []
        if loop is not None:
            one = _by_chunks(loop, opened) if _chunk(loop) else with_body(loop, list(_tasks(body_of(loop), opened)))
        yield one
    if run:
        yield _scope(run, opened)


def _scope(body: Sequence[Statement], opened: str) -> cst.With:
    head, *rest = body
    scope = statement(f"with {opened}:\n    pass\n")
    assert isinstance(scope, cst.With)
    above = tree.leading(head)
    return with_body(scope.with_changes(leading_lines=above), [head.with_changes(leading_lines=()), *rest])  # type: ignore[return-value]


def _chunk(loop: cst.For) -> cst.BaseExpression | None:
    """How many turns of a parallel loop are one task; None where nothing says."""
    if (
        not isinstance(loop.iter, cst.Call)
        or tree.called(loop.iter) != "parallel"
        or not isinstance(loop.target, cst.Name)
    ):
        return None
    given = tree.keywords(loop.iter).get("chunk")
    return None if given is None else given.value


def _holds_chunks(loop: cst.For) -> bool:
    return any(isinstance(one, cst.For) and _chunk(one) is not None for one in tree.walk(loop) if one is not loop)


def _by_chunks(loop: cst.For, opened: str) -> cst.For:
    """A loop over chunks, each a task that goes over its turns."""
    chunk = _chunk(loop)
    assert isinstance(loop.iter, cst.Call)
    assert isinstance(loop.target, cst.Name)
    assert chunk is not None
    inside: dict[cst.CSTNode, cst.CSTNode] = {
        one.iter: in_a_task(one.iter)
        for one in tree.walk(loop.body)
        if isinstance(one, cst.For) and isinstance(one.iter, cst.Call)
    }
    body = [tree.replaced(one, inside) for one in body_of(loop)]
    given, span = tree.values(loop.iter), tree.bounds(loop.iter)
    assert span is not None
    if isinstance(chunk, cst.Integer) and chunk.value == "1":
        return with_body(loop.with_changes(iter=tree.call_with(loop.iter, given, {})), [_scope(body, opened)])  # type: ignore[return-value]
    start, stop, step = span
    name = f"{loop.target.value}_chunk"
    wide = tree.with_names(tree.expression("s * (c)"), {"s": step, "c": chunk})
    end = tree.with_names(tree.expression("n + w"), {"n": cst.Name(name), "w": wide})
    turns = [cst.Name(name), end, *([step] if len(given) == 3 else [])]
    inner = with_body(
        loop.with_changes(iter=tree.renamed(tree.call_with(loop.iter, turns, {}), "range"), leading_lines=()), body
    )
    outer = loop.with_changes(target=cst.Name(name), iter=tree.call_with(loop.iter, [start, stop, wide], {}))
    return with_body(outer, [_scope([inner], opened)])  # type: ignore[return-value]
