"""Launches: tasks of a loop, or turns within a task, as blocks of one `pl.spmd`; a loop whose turns need not wait.

spmd       a loop that launches a task per turn, or a nest of two, becomes blocks of one launch
finer      a loop within a task or block whose turns share nothing becomes blocks: cores that idle get work
parallel   a loop whose turns need not wait for one another
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import libcst as cst

from npuscope.check.fixes import tree
from npuscope.check.fixes.fix import NewText, Unmended, fix
from npuscope.check.fixes.scopes import body_of, is_scalar, scope_call, with_body, with_comments_of
from npuscope.check.fixes.tree import Edit, Source, Statement
from npuscope.check.rule import Finding
from npuscope.ops.transfers import ASSEMBLE, STORE

TURNS = ("range", "parallel")
LOADS = ("slice", "load", "cast", "reshape", "view")


@fix(
    "spmd",
    "tasks that could be blocks of one launch",
    ("many-tasks", "short-task", "sequential-independent", "serialised-parallel"),
)
def _spmd(source: Source, findings: Sequence[Finding]) -> Iterator[NewText | Unmended]:
    loops: dict[cst.For, list[Finding]] = {}
    for finding in findings:
        inner = _launching_loop(source, finding.line)
        if inner is None:
            yield Unmended(finding, "its line is in no loop that does nothing but launch one scope")
        else:
            loops.setdefault(inner, []).append(finding)
    for loop, those in loops.items():
        yield from _as_blocks(source, [loop], those)
        block = source.block_of(loop)
        outer = None if block is None else source.parent(block)
        while isinstance(outer, cst.For) and tree.called(outer.iter) in TURNS:
            nest = [one for one in body_of(outer) if not is_scalar(one)]
            if nest != [loop]:
                break
            yield from _as_blocks(source, [outer, loop], those)
            break


def _launching_loop(source: Source, line: int) -> cst.For | None:
    """The innermost loop around a line whose turns are one scope each, beside arithmetic of indices."""
    for one in source.around_line(line):
        if isinstance(one, cst.For) and tree.called(one.iter) in TURNS:
            others = [inner for inner in body_of(one) if not is_scalar(inner)]
            if len(others) == 1 and scope_call(others[0]) is not None:
                return one
    return None


def _as_blocks(source: Source, nest: list[cst.For], findings: list[Finding]) -> Iterator[NewText | Unmended]:
    """A nest of loops around one scope as blocks of one launch."""
    scope = next(one for one in body_of(nest[-1]) if isinstance(one, cst.With))
    call = scope_call(scope)
    assert call is not None
    inner: list[Statement] = []
    for loop in nest:
        for one in body_of(loop):
            if one is scope:
                inner += with_comments_of(scope, body_of(scope))
            elif one not in nest:
                inner.append(one)
    title = f"one pl.spmd launch in place of a task per turn{' of both loops' if len(nest) > 1 else ''}"
    options = tree.options(call, "level")
    yield from _launched(source, nest[0], nest, options, inner, title, findings)


def _launched(
    source: Source,
    old: Statement,
    nest: list[cst.For],
    options: dict[str, cst.BaseExpression],
    body: list[Statement],
    title: str,
    findings: Sequence[Finding],
) -> Iterator[NewText]:
    """One launch in place of a statement."""
    new = launch(nest, options, body)
    if new is not None:
        yield NewText(source.edited([Edit((old,), (new,))]), title, tuple(findings))


def launch(nest: list[cst.For], options: dict[str, cst.BaseExpression], body: list[Statement]) -> Statement | None:
    """A block for every turn of the nest, which does all of `body`; None where its turns cannot be counted."""
    counts, values = [], []
    if any(tree.names_in(inner.iter) & tree.bound_in(nest[0]) for inner in nest[1:]):
        return None  # as many turns as the outer one says
    for loop in nest:
        span = tree.bounds(loop.iter)
        if not isinstance(loop.target, cst.Name) or span is None:
            return None
        start, stop, step = span
        counts.append(_count(start, stop, step))
        values.append((loop.target.value, start, step))
    known = tree.names_in(*nest)
    index = (
        values[0][0]
        if len(nest) == 1 and _is(values[0][1], 0) and _is(values[0][2], 1)
        else tree.fresh("block", known, "item")
    )
    heads: list[Statement] = []
    if index != values[0][0] or len(nest) > 1:
        part = index if len(nest) == 1 else f"{index} // {_text(counts[1])}"
        heads.append(_index(values[0], part))
    if len(nest) == 2:
        heads.append(_index(values[1], f"{index} % {_text(counts[1])}"))
    total = counts[0] if len(nest) == 1 else tree.expression(f"{_text(counts[0])} * {_text(counts[1])}")
    assert isinstance(nest[0].iter, cst.Call)
    if "name_hint" not in options:
        options = {**options, "name_hint": cst.SimpleString(f'"{_hint(body)}"')}
    call = tree.call_with(tree.renamed(nest[0].iter, "spmd"), [tree.with_names(total, {})], options)
    return with_body(nest[0].with_changes(target=cst.Name(index), iter=call, leading_lines=()), [*heads, *body])


def _is(value: cst.BaseExpression, number: int) -> bool:
    return isinstance(value, cst.Integer) and value.value == str(number)


def _text(node: cst.CSTNode) -> str:
    """An expression as it may stand in a product."""
    text = tree.text_of(node)
    return text if isinstance(node, cst.Name | cst.Integer | cst.Attribute | cst.Call | cst.Subscript) else f"({text})"


def _count(start: cst.BaseExpression, stop: cst.BaseExpression, step: cst.BaseExpression) -> cst.BaseExpression:
    """How many turns there are."""
    length = stop if _is(start, 0) else tree.expression(f"{_text(stop)} - {_text(start)}")
    return length if _is(step, 1) else tree.expression(f"{_text(length)} // {_text(step)}")


def _index(value: tuple[str, cst.BaseExpression, cst.BaseExpression], part: str) -> Statement:
    """`n0 = start + block * step`, without what changes nothing."""
    name, start, step = value
    turn = part if _is(step, 1) else f"{part} * {_text(step)}"
    whole = turn if _is(start, 0) else f"{_text(start)} + {turn}"
    return tree.statement(f"{name} = {whole}\n")


def _hint(body: Sequence[Statement]) -> str:
    """A name for a launch that has none: the tensor that it writes."""
    for one in reversed(body):
        found = tree.stored(one, (*ASSEMBLE.names, *STORE.names))
        if found is not None:
            return found[0]
    return "blocks"


@fix("finer", "turns that could be blocks", ("*",))
def _finer(source: Source, findings: Sequence[Finding]) -> Iterator[NewText | Unmended]:
    for one in source.statements:
        call = scope_call(one)
        blocks = isinstance(one, cst.For) and tree.called(one.iter) == "spmd" and isinstance(one.target, cst.Name)
        if call is None and not blocks:
            continue
        assert isinstance(one, cst.With | cst.For)
        *before, last = body_of(one)
        if (
            not isinstance(last, cst.For)
            or tree.called(last.iter) not in ("range", "pipeline")
            or _hands_on(body_of(last))
        ):
            continue
        if any(
            not (is_scalar(other) or tree.called((tree.assigned(other) or ("", other))[1]) in LOADS) for other in before
        ):
            continue
        if isinstance(one, cst.For):
            call = one.iter if isinstance(one.iter, cst.Call) else None
        assert call is not None
        nest = [*([one] if isinstance(one, cst.For) else []), last]
        options = tree.options(call, "level")
        body = with_comments_of(last, [*before, *body_of(last)])
        title = f"a block for every turn over {', '.join(sorted(tree.names_in(last.target)))}"
        yield from _launched(source, one, nest, options, body, title, ())


def _hands_on(body: list[Statement]) -> bool:
    """Whether a turn may need what an earlier one made: a name that it reads before it gives it a value, or a tensor
    that it writes and reads."""
    made: set[str] = set()
    every = tree.bound_in(*body)
    for one in body:
        found, into = tree.assigned(one), tree.stored(one, (*ASSEMBLE.names, *STORE.names))
        reads = into[1] if into is not None else tree.names_in(found[1]) if found is not None else tree.names_in(one)
        if reads & (every - made):
            return True
        if found is not None and into is None:
            made.add(found[0])
    return False


@fix("parallel", "turns that wait for nothing", ("sequential-independent",))
def _parallel(source: Source, findings: Sequence[Finding]) -> Iterator[NewText | Unmended]:
    for finding in findings:
        loop = source.statement_at(finding.line)
        if isinstance(loop, cst.For) and tree.called(loop.iter) == "range" and isinstance(loop.iter, cst.Call):
            new = source.edited([], {loop.iter: tree.renamed(loop.iter, "parallel")})
            yield NewText(new, "turns that wait for nothing as pl.parallel", (finding,))
