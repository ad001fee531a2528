"""Sums of products: kept in the cube's accumulator, begun by their first product, and zeros that nobody needs left out.

matmul-acc   `acc = pl.add(acc, pl.matmul(a, b))` becomes `pl.matmul_acc`; where it starts from zeros, the first turn is
             `pl.matmul`
no-zeros     stores of zeros that later writes replace unread, with the scopes and loops that do nothing else
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import libcst as cst

from npuscope.base.frozen import dataclass
from npuscope.check.fixes import tree
from npuscope.check.fixes.fix import NewText, Unmended, fix
from npuscope.check.fixes.tree import Edit, Source, Statement
from npuscope.check.phrases import listed
from npuscope.check.rule import Finding
from npuscope.ops.cube import MATMUL, MATMUL_ACC
from npuscope.ops.elementwise import ADD
from npuscope.ops.shaping import FULL
from npuscope.ops.transfers import ASSEMBLE, STORE

MOST_PEELED = 8  # statements of a turn that are written twice; more, and the first turn is told by an `if`


@dataclass(frozen=True, eq=False)
class ProductSum:
    """A statement `acc = …` that adds the product of a and b to acc; `call` is the pl.matmul or pl.matmul_acc.

    `apart` is the statement of the product where that is one of its own, which nothing else uses.
    """

    acc: str
    statement: Statement
    call: cst.Call
    operands: tuple[cst.BaseExpression, cst.BaseExpression]
    out_dtype: cst.BaseExpression | None
    apart: Statement | None = None

    def accumulated(self) -> cst.Call:
        kept = {k: arg.value for k, arg in tree.keywords(self.call).items() if k in ("a_trans", "b_trans")}
        return tree.call_with(tree.renamed(self.call, "matmul_acc"), [cst.Name(self.acc), *self.operands], kept)

    def first(self, seed: cst.Call) -> cst.Call:
        """The product alone, of the type that the zeros had."""
        kept = {k: arg.value for k, arg in tree.keywords(self.call).items() if k in ("a_trans", "b_trans")}
        dtype = self.out_dtype
        if dtype is None:
            given = tree.keywords(seed).get("dtype")
            dtype = given.value if given is not None else None
        return tree.call_with(
            tree.renamed(self.call, "matmul"),
            self.operands,
            {**kept, **({"out_dtype": dtype} if dtype is not None else {})},
        )


def product_sum(source: Source, statement: Statement) -> ProductSum | None:
    """What a statement adds up, if it adds a product."""
    found = tree.assigned(statement)
    if found is None:
        return None
    acc, value = found
    if not isinstance(value, cst.Call):
        return None
    if tree.called(value) in MATMUL_ACC.names:
        parts = tree.values(value)
        if len(parts) == 3 and isinstance(parts[0], cst.Name) and parts[0].value == acc:
            return ProductSum(acc, statement, value, (parts[1], parts[2]), None)
    if tree.called(value) in ADD.names and len(parts := tree.values(value)) == 2:
        for total, product in (parts, parts[::-1]):
            named = isinstance(total, cst.Name) and total.value == acc
            apart = source.only_for(product, statement)
            call = product if apart is None else (tree.assigned(apart) or ("", product))[1]
            if named and isinstance(call, cst.Call) and tree.called(call) in MATMUL.names:
                operands = tree.values(call)
                dtype = tree.keywords(call).get("out_dtype")
                if len(operands) == 2:
                    both = (operands[0], operands[1])
                    return ProductSum(acc, statement, call, both, dtype.value if dtype else None, apart)
    return None


def is_zeros(statement: Statement | None) -> tuple[str, cst.Call] | None:
    """Name and call of `name = pl.full(…, value=0.0)`."""
    found = tree.assigned(statement)
    if found is None or not isinstance(found[1], cst.Call) or tree.called(found[1]) not in FULL.names:
        return None
    given = tree.keywords(found[1]).get("value")
    parts = tree.positional(found[1])
    value = given.value if given is not None else parts[-1].value if len(parts) > 1 else None
    number = isinstance(value, cst.Integer | cst.Float) and float(value.value) == 0.0
    return (found[0], found[1]) if number else None


@fix("matmul-acc", "sums of products in the accumulator", ("add-matmul", "zero-fill"))
def _matmul_acc(source: Source, findings: Sequence[Finding]) -> Iterator[NewText | Unmended]:
    loops: dict[cst.For, list[Finding]] = {}
    for finding in findings:
        found = _sum_of(source, finding)
        if found is None:
            if finding.id != "zero-fill":
                yield Unmended(finding, "its sum is no statement `x = pl.add(x, product)`")
            continue
        block = source.parent(source.block_of(found.statement) or found.statement)
        if isinstance(block, cst.For) and tree.called(block.iter) in tree.LOOPS:
            loops.setdefault(block, []).append(finding)
        else:
            yield _added_once(source, found, finding)
    for loop, those in loops.items():
        yield from _in_accumulator(source, loop, those)


def _sum_of(source: Source, finding: Finding) -> ProductSum | None:
    """The statement that a finding is about."""
    for line in [finding.line, *(line for file, line in finding.also if file == source.file)]:
        statement = source.statement_at(line)
        if statement is not None and (found := product_sum(source, statement)) is not None:
            return found
    return None


def _started(source: Source, acc: str, before: Statement) -> cst.Call | None:
    """The product that a sum starts from: the last value of its name in front of a statement."""
    siblings, at = source.siblings(before)
    for one in reversed(siblings[:at]):
        found = tree.assigned(one)
        if found is not None and found[0] == acc:
            call = found[1]
            return (
                call if isinstance(call, cst.Call) and tree.called(call) in (*MATMUL.names, *MATMUL_ACC.names) else None
            )
        if acc in tree.bound_in(one):
            return None
    return None


def _added_once(source: Source, found: ProductSum, finding: Finding) -> NewText | Unmended:
    """A product that is added to another one, in no loop."""
    if tree.called(found.call) in MATMUL_ACC.names or _started(source, found.acc, found.statement) is None:
        return Unmended(finding, f"{found.acc} starts neither from a product nor from zeros")
    return NewText(source.edited(_accumulated(found)), _title({found.acc}), (finding,), reorders=True)


def _accumulated(found: ProductSum) -> list[Edit]:
    gone = [Edit((found.apart,))] if found.apart is not None else []
    return [*gone, Edit((found.statement,), (_replaced(found.statement, found.accumulated()),))]


def _title(names: set[str]) -> str:
    return f"keep {listed(sorted(names))} in the accumulator"


def _in_accumulator(source: Source, loop: cst.For, findings: list[Finding]) -> Iterator[NewText | Unmended]:
    body = [one for one in loop.body.body if isinstance(one, Statement)]
    sums = {found.acc: found for one in body if (found := product_sum(source, one)) is not None}
    siblings, at = source.siblings(loop)
    seeds: dict[str, tuple[Statement, cst.Call]] = {}
    for one in siblings[:at]:
        zeros = is_zeros(one)
        if zeros is not None and zeros[0] in sums:
            seeds[zeros[0]] = (one, zeros[1])
        else:
            for name in tree.names_in(one) & seeds.keys():  # used before the sum begins
                del seeds[name]
    wanted = {one.acc for one in sums.values() if one.acc in seeds}
    added = {acc for acc in sums if tree.called(sums[acc].call) not in MATMUL_ACC.names}
    missing = [acc for acc in added - wanted if _started(source, acc, loop) is None]
    mends = tuple(findings)
    if missing:
        for finding in findings:
            yield Unmended(finding, f"{listed(missing)} starts neither from a product nor from zeros before the loop")
        return
    if not wanted:
        if added:
            edits = [edit for acc in added for edit in _accumulated(sums[acc])]
            yield NewText(source.edited(edits), _title(added), mends, reorders=True)
        return
    title = f"{_title(wanted | added)}, begun by its first product"
    span = tree.bounds(loop.iter)
    if span is None or not isinstance(loop.target, cst.Name):
        return
    if len(body) <= MOST_PEELED:
        yield NewText(_peeled(source, loop, sums, seeds, wanted), title, mends, reorders=True)
    branched = _with_a_branch(source, loop, span[0], sums, seeds, wanted)
    yield NewText(branched, f"{title} (by an if)", mends, reorders=True)


def _replaced(one: Statement, call: cst.BaseExpression) -> Statement:
    """`acc = …` with another value."""
    assert isinstance(one, cst.SimpleStatementLine)
    small = one.body[0]
    assert isinstance(small, cst.Assign)
    return one.with_changes(body=[small.with_changes(value=call), *one.body[1:]])


Sums = dict[str, ProductSum]
Seeds = dict[str, tuple[Statement, cst.Call]]


def _peeled(source: Source, loop: cst.For, sums: Sums, seeds: Seeds, wanted: set[str]) -> str:
    """The first turn in front of the loop, which goes on from the second."""
    assert isinstance(loop.target, cst.Name)
    assert isinstance(loop.iter, cst.Call)
    by_statement = {found.statement: found for found in sums.values()}
    apart = {found.apart for found in sums.values()}
    first: list[Statement] = []
    rest: list[Statement] = []
    for one in loop.body.body:
        assert isinstance(one, Statement)
        found = by_statement.get(one)
        if one in apart:
            continue
        if found is not None:
            begun = found.first(seeds[found.acc][1]) if found.acc in wanted else found.accumulated()
            first.append(_replaced(tree.bare(one), begun))
            rest.append(_replaced(one, found.accumulated()))
        else:
            first.append(tree.bare(one))
            rest.append(one)
    edits = [Edit((seeds[acc][0],)) for acc in sorted(wanted)]
    return source.edited([*edits, Edit((loop,), first_turn(loop, first, rest))])


def first_turn(loop: cst.For, first: Sequence[Statement], rest: Sequence[Statement]) -> tuple[Statement, ...]:
    """The first turn in front of a loop, which goes on from the second, each with a body of its own."""
    assert isinstance(loop.target, cst.Name)
    assert isinstance(loop.iter, cst.Call)
    span = tree.bounds(loop.iter)
    assert span is not None
    start, stop, step = span
    peeled = [tree.with_names(one, {loop.target.value: start}) for one in first]
    second = tree.with_names(tree.expression("a + b"), {"a": start, "b": step})
    args = [second, stop, *tree.values(loop.iter)[2:]]
    head = tree.call_with(loop.iter, args, tree.options(loop.iter))
    new = loop.with_changes(iter=head, body=loop.body.with_changes(body=list(rest)), leading_lines=())
    return (*(one.with_changes(leading_lines=()) for one in peeled), new)


def _with_a_branch(
    source: Source, loop: cst.For, start: cst.BaseExpression, sums: Sums, seeds: Seeds, wanted: set[str]
) -> str:
    """The loop as it is, with its first turn told by an `if`."""
    assert isinstance(loop.target, cst.Name)
    edits = [Edit((seeds[acc][0],)) for acc in sorted(wanted)]
    for found in sums.values():
        if found.acc in wanted:
            edits += [Edit((found.apart,))] if found.apart is not None else []
        else:
            edits += _accumulated(found)
    at = f"{loop.target.value} == {source.code(start)}"
    ours = [found for found in sums.values() if found.acc in wanted]
    body = [one for one in loop.body.body if isinstance(one, Statement)]
    places = [body.index(found.statement) for found in ours]
    groups: list[list[ProductSum]] = []
    for n, (found, place) in enumerate(zip(ours, places, strict=True)):
        if n and place == places[n - 1] + 1:
            groups[-1].append(found)
        else:
            groups.append([found])
    for group in groups:
        first = [_replaced(tree.bare(one.statement), one.first(seeds[one.acc][1])) for one in group]
        later = [_replaced(one.statement, one.accumulated()).with_changes(leading_lines=()) for one in group]
        branch = cst.If(
            test=tree.expression(at),
            body=cst.IndentedBlock(first),
            orelse=cst.Else(body=cst.IndentedBlock(later)),
        )
        edits.append(Edit(tuple(one.statement for one in group), (branch,)))
    return source.edited(edits)


@fix("no-zeros", "zeros that nobody reads", ("zero-fill",))
def _no_zeros(source: Source, findings: Sequence[Finding]) -> Iterator[NewText | Unmended]:
    for finding in findings:
        seed = source.statement_at(finding.line)
        zeros = is_zeros(seed)
        if seed is None or zeros is None or "start" in finding.message.split()[0]:
            continue
        lines = {line for file, line in finding.also if file == source.file} - {finding.line}
        stores = [one for line in sorted(lines) if (one := source.statement_at(line)) is not None and one is not seed]
        if not stores or any(zeros[0] not in tree.names_in(one) for one in stores):
            continue
        gone = set(stores)
        block, _ = source.siblings(seed)
        if not any(zeros[0] in tree.names_in(one) for one in block if one not in gone and one is not seed):
            gone.add(seed)
        edits = _without(source, gone)
        added = _atomics(source, {found[0] for one in stores if (found := tree.assigned(one)) is not None})
        names = listed(sorted({found[0] for one in stores if (found := tree.assigned(one)) is not None}))
        if added and "atomic" in finding.message:
            text = source.edited(edits, added)
            yield NewText(text, f"store {names} once, without zeros and atomic adds", (finding,), reorders=True)
        yield NewText(source.edited(edits), f"leave out the zeros of {names}", (finding,))


def _atomics(source: Source, names: set[str]) -> dict[cst.CSTNode, cst.CSTNode]:
    """Stores that add to these tensors, as stores that replace."""
    found: dict[cst.CSTNode, cst.CSTNode] = {}
    for one in source.statements:
        target = tree.assigned(one)
        if target is None or target[0] not in names or not isinstance(target[1], cst.Call):
            continue
        call = target[1]
        if tree.called(call) in (*ASSEMBLE.names, *STORE.names) and "atomic" in tree.keywords(call):
            found[call] = tree.call_with(call, tree.values(call), tree.options(call, "atomic"))
    return found


def _without(source: Source, gone: set[Statement]) -> list[Edit]:
    """Edits that take statements away, and with them blocks that are left empty."""
    while True:
        emptied = {
            block
            for one in gone
            if isinstance(block := source.parent(source.block_of(one) or one), cst.With | cst.For)
            and all(inner in gone for inner in block.body.body)
        } - gone
        if not emptied:
            break
        gone = gone | emptied
    outermost = [one for one in gone if not any(above in gone for above in source.around(one))]
    return [Edit((one,)) for one in sorted(outermost, key=source.line)]
