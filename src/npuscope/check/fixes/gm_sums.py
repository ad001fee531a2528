"""Sums that live in global memory: turns of a loop that add to one tensor, each reading and storing it, or by atomics.

sum-on-chip   the turns in one task, their sum in a tile, one store behind the loop
atomic        the turns side by side, each an atomic add: their order goes
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import libcst as cst

from npuscope.base.frozen import dataclass
from npuscope.check.fixes import tree
from npuscope.check.fixes.fix import NewText, Unmended, fix
from npuscope.check.fixes.products import MOST_PEELED, first_turn
from npuscope.check.fixes.scopes import body_of, in_a_task, is_scalar, scope_call, with_body
from npuscope.check.fixes.tree import Edit, Source, Statement, statement, stored
from npuscope.check.rule import Finding
from npuscope.ops.elementwise import ADD
from npuscope.ops.shaping import SLICE
from npuscope.ops.transfers import ASSEMBLE


@dataclass(frozen=True, eq=False)
class GmSum:
    """A statement that adds `part` to a place in a tensor: `read` is what it reads there, None of an atomic add.

    `place` is where it stores: the offsets of a pl.assemble, `call`, or `tensor[…]` without one. `apart` are statements
    that make only what it needs.
    """

    tensor: str
    statement: Statement
    part: cst.BaseExpression
    place: cst.BaseExpression
    read: cst.BaseExpression | None
    module: str
    call: cst.Call | None
    apart: tuple[Statement, ...]

    def stored(self, value: cst.BaseExpression, atomic: bool) -> Statement:
        """Another value stored to the same place."""
        if self.call is None:
            return statement(f"{tree.text_of(self.place)} = {tree.text_of(value)}\n")
        kept = tree.options(self.call, "atomic")
        added = {"atomic": tree.expression(f"{self.module}AtomicType.Add")} if atomic else {}
        call = tree.call_with(self.call, [cst.Name(self.tensor), value, self.place], {**kept, **added})
        return statement(f"{self.tensor} = {tree.text_of(call)}\n")


def gm_sum(source: Source, one: Statement) -> GmSum | None:
    """What a statement adds to a tensor, if it does."""
    into, found = stored(one, ASSEMBLE.names), tree.assigned(one)
    if into is None:
        return None
    call: cst.Call | None = None
    place: cst.BaseExpression
    if found is None:  # x[…] = …
        assert isinstance(one, cst.SimpleStatementLine)
        assert isinstance(one.body[0], cst.Assign)
        place, value = one.body[0].targets[0].target, one.body[0].value
    else:
        assert isinstance(found[1], cst.Call)
        call, given = found[1], tree.values(found[1])
        if len(given) != 3:
            return None
        value, place = given[1], given[2]
        if "atomic" in tree.keywords(call):
            part, apart = _behind(source, value, one)
            return GmSum(into[0], one, part, place, None, tree.module_of(call), call, apart)
    total, apart = _behind(source, value, one)
    sides = tree.values(total) if isinstance(total, cst.Call) else []
    if not isinstance(total, cst.Call) or tree.called(total) not in ADD.names or len(sides) != 2:
        return None
    user = apart[-1] if apart else one
    for held, added in (sides, sides[::-1]):
        read, reading = _behind(source, held, user)
        if _reads(read, into[0], place, call is None):
            part, making = _behind(source, added, user)
            return GmSum(into[0], one, part, place, read, tree.module_of(total), call, (*apart, *reading, *making))
    return None


def _reads(read: cst.BaseExpression, tensor: str, place: cst.BaseExpression, subscript: bool) -> bool:
    """Whether an expression is what lies at a place."""
    if subscript:
        return tree.same(read, place)
    inside = tree.values(read) if isinstance(read, cst.Call) else []
    return (
        tree.called(read) in SLICE.names
        and len(inside) == 3
        and tree.names_in(inside[0]) == {tensor}
        and tree.same(inside[2], place)
    )


def _behind(
    source: Source, value: cst.BaseExpression, user: Statement
) -> tuple[cst.BaseExpression, tuple[Statement, ...]]:
    """The expression that a name stands for where nothing else uses it, and its statement."""
    apart = source.only_for(value, user)
    made = tree.assigned(apart)
    return (value, ()) if apart is None or made is None else (made[1], (apart,))


@dataclass(frozen=True, eq=False)
class SummingLoop:
    """A loop whose turns add to one place: each a task of its own (`scope`), or turns within a task."""

    sum: GmSum
    loop: cst.For
    scope: cst.With | None

    def turn(self) -> list[Statement]:
        """The statements of a turn, as they stand in one task."""
        if self.scope is None:
            return body_of(self.loop)
        return [inner for one in body_of(self.loop) for inner in (body_of(self.scope) if one is self.scope else [one])]


def summing_loops(source: Source) -> Iterator[SummingLoop]:
    for one in source.statements:
        found = gm_sum(source, one)
        above = None if found is None else source.parent(source.block_of(one) or one)
        scope = above if isinstance(above, cst.With) and scope_call(above) is not None else None
        loop = above if scope is None else source.parent(source.block_of(scope) or scope)
        if found is None or not isinstance(loop, cst.For) or tree.called(loop.iter) not in (*tree.LOOPS, "parallel"):
            continue
        one_place = tree.names_in(found.place, *([found.read] if found.read is not None else []))
        changing = (tree.names_in(loop.target) | tree.bound_in(loop)) - {found.tensor}
        others = [other for other in body_of(loop) if other is not scope] if scope is not None else []
        if not one_place & changing and all(map(is_scalar, others)):
            yield SummingLoop(found, loop, scope)


def _mends(source: Source, found: GmSum, findings: Sequence[Finding]) -> tuple[Finding, ...]:
    lines = {line for one in (found.statement, *found.apart) for line in (source.line(one), source.last_line(one))}
    return tuple(one for one in findings if one.id == "gm-accumulate" and one.line in lines)


@fix("sum-on-chip", "sums that go through global memory every turn", ("*",))
def _on_chip(source: Source, findings: Sequence[Finding]) -> Iterator[NewText | Unmended]:
    known = tree.names_in(source.module)
    for one in summing_loops(source):
        found, turn = one.sum, one.turn()
        span = tree.bounds(one.loop.iter)
        uses = [other for other in turn if other is not found.statement and other not in found.apart]
        alone = found.tensor not in tree.names_in(*uses)
        if span is None or not alone or len(turn) > MOST_PEELED or not isinstance(one.loop.target, cst.Name):
            continue
        name = tree.fresh(f"{found.tensor}_sum", known)
        add, part = f"{found.module}add", tree.text_of(found.part)
        begun = part if found.read is None else f"{add}({tree.text_of(found.read)}, {part})"
        first = [
            statement(f"{name} = {begun}\n") if other is found.statement else tree.bare(other)
            for other in turn
            if other not in found.apart
        ]
        added = statement(f"{name} = {add}({name}, {part})\n")
        rest = [added if other is found.statement else other for other in turn if other not in found.apart]
        assert isinstance(one.loop.iter, cst.Call)
        inside = one.loop.with_changes(iter=in_a_task(one.loop.iter))
        inner = first_turn(inside, first, rest)
        whole: tuple[Statement, ...] = (*inner, found.stored(cst.Name(name), found.read is None))
        if one.scope is not None:
            whole = (with_body(one.scope.with_changes(leading_lines=()), whole),)
        title = f"add up {found.tensor} on chip, store it once"
        yield NewText(source.edited([Edit((one.loop,), whole)]), title, _mends(source, found, findings), reorders=True)


@fix("atomic", "sums in an order that nobody needs", ("*",))
def _atomic(source: Source, findings: Sequence[Finding]) -> Iterator[NewText | Unmended]:
    for one in summing_loops(source):
        found = one.sum
        if found.read is None or found.call is None or one.scope is None or not isinstance(one.loop.iter, cst.Call):
            continue
        edits = [Edit((gone,)) for gone in found.apart if found.part is not (tree.assigned(gone) or ("", gone))[1]]
        kept = [gone for gone in found.apart if found.part is (tree.assigned(gone) or ("", gone))[1]]
        value = cst.Name((tree.assigned(kept[0]) or ("", kept[0]))[0]) if kept else found.part
        edits.append(Edit((found.statement,), (found.stored(value, True),)))
        nodes: dict[cst.CSTNode, cst.CSTNode] = {one.loop.iter: tree.renamed(one.loop.iter, "parallel")}
        mends = _mends(source, found, findings)
        yield NewText(source.edited(edits, nodes), f"add to {found.tensor} atomically", mends, reorders=True)
