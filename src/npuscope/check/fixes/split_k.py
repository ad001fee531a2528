"""Long sums that few cores add up.

split-k   the products of a sum along K by several blocks, each a part of K, which add to zeros
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import libcst as cst

from npuscope.check.fixes import tree
from npuscope.check.fixes.fix import NewText, Unmended, fix
from npuscope.check.fixes.launches import launch
from npuscope.check.fixes.products import ProductSum, product_sum
from npuscope.check.fixes.scopes import body_of, is_scalar, scope_call, with_body
from npuscope.check.fixes.tree import Edit, Source, Statement, statement
from npuscope.check.rule import Finding
from npuscope.ops.cube import MATMUL, MATMUL_ACC
from npuscope.ops.elementwise import CAST
from npuscope.ops.shaping import SLICE
from npuscope.ops.transfers import ASSEMBLE

PARTS = (2, 4, 8)


@fix("split-k", "long sums that few cores add up", ("*",))
def _split_k(source: Source, findings: Sequence[Finding]) -> Iterator[NewText | Unmended]:
    for scope in source.statements:
        blocks = isinstance(scope, cst.For) and tree.called(scope.iter) == "spmd"
        call = scope.iter if blocks and isinstance(scope, cst.For) else scope_call(scope)
        if not isinstance(scope, cst.With | cst.For) or not isinstance(call, cst.Call):
            continue
        body = body_of(scope)
        loops = [one for one in body if isinstance(one, cst.For) and tree.called(one.iter) in tree.LOOPS]
        sums = [found for one in loops for inner in body_of(one) if (found := product_sum(source, inner)) is not None]
        if len(loops) == len(sums) == 1 and tree.called(sums[0].call) in MATMUL_ACC.names:
            yield from _in_parts(source, scope, call, loops[0], sums[0])


def _in_parts(
    source: Source, scope: cst.With | cst.For, call: cst.Call, loop: cst.For, found: ProductSum
) -> Iterator[NewText]:
    body = body_of(scope)
    at = body.index(loop)
    seed = next((one for one in body[:at] if (tree.assigned(one) or ("",))[0] == found.acc), None)
    made = tree.assigned(seed)
    users = [one for one in body if found.acc in tree.names_in(one) and one is not seed and one is not loop]
    place = _place(users[0], found, loop) if len(users) == 1 and users[0] in body[at:] else None
    span = tree.bounds(loop.iter)
    if seed is None or made is None or not isinstance(made[1], cst.Call) or tree.called(made[1]) not in MATMUL.names:
        return
    if place is None or span is None or not tree.same(span[0], span[2]) or not isinstance(loop.target, cst.Name):
        return  # its first turn does not stand in front of it
    assert isinstance(loop.iter, cst.Call)
    (tensor, offsets, shape), (_, stop, step) = place, span
    text, module, known = tree.text_of, tree.module_of(call), tree.names_in(source.module)
    first, part = (name if name not in known else f"{name}_of_k" for name in ("first", "part"))
    gone = {seed, *(apart for one in tree.values(made[1]) if (apart := source.only_for(one, seed)) is not None)}
    begun = tree.call_with(tree.renamed(found.call, "matmul"), found.operands, tree.options(made[1]))
    turn = [
        statement(f"{found.acc} = {text(begun)}\n") if one is found.statement else tree.bare(one)
        for one in body_of(loop)
    ]
    length = text(stop) if isinstance(stop, cst.Name | cst.Integer) else f"({text(stop)})"
    options = tree.options(call, "level", "name_hint")
    hint = tree.keywords(call).get("name_hint")
    name = hint.value.value.strip("\"'") if hint is not None and isinstance(hint.value, cst.SimpleString) else tensor
    add = f"{tensor} = {module}assemble({tensor}, {found.acc}, [{offsets}], atomic={module}AtomicType.Add)\n"
    zeros = f"{module}full([{shape}], dtype={module}FP32, value=0.0)"
    zero = f"{tensor} = {module}assemble({tensor}, {zeros}, [{offsets}])\n"
    indices = [tree.bare(one) for one in body[:at] if one not in gone and is_scalar(one)]
    named = {"name_hint": cst.SimpleString(f'"{name}_zeros"')}
    level = {one: arg.value for one, arg in tree.keywords(call).items() if one == "level"}
    emptied = with_body(
        _headed(scope, tree.call_with(call, tree.values(call), {**level, **named})),
        [*indices, statement(zero)],
    )
    for parts in PARTS:
        each = f"{length} // {parts}"
        given = [tree.expression(f"{first} + {text(step)}"), tree.expression(f"{first} + {each}")]
        along = tree.call_with(loop.iter, [*given, *tree.values(loop.iter)[2:]], tree.options(loop.iter))
        inner = [
            *(one for one in body[:at] if one not in gone),
            statement(f"{first} = {part} * ({each})\n"),
            *(tree.with_names(one, {loop.target.value: cst.Name(first)}) for one in turn),
            loop.with_changes(iter=along),
            *(statement(add) if one is users[0] else one for one in body[at + 1 :]),
        ]
        each_part = cst.parse_statement(f"for {part} in {module}range({parts}):\n    pass\n")
        assert isinstance(each_part, cst.For)
        nest = [*([scope] if isinstance(scope, cst.For) else []), each_part]
        new = launch(nest, {**options, "name_hint": cst.SimpleString(f'"{name}"')}, inner)
        if new is not None:
            title = f"split K of {tensor} into {parts} parts that are added up"
            yield NewText(source.edited([Edit((scope,), (emptied, new))]), title, (), reorders=True)


def _headed(scope: cst.With | cst.For, call: cst.Call) -> cst.With | cst.For:
    """The same scope with another call at its head, without its comments."""
    scope = scope.with_changes(leading_lines=())
    if isinstance(scope, cst.For):
        return scope.with_changes(iter=call)
    return scope.with_changes(items=[one.with_changes(item=call, asname=None) for one in scope.items])


def _place(one: Statement, found: ProductSum, loop: cst.For) -> tuple[str, str, str] | None:
    """Tensor, offsets and shape of the store of a sum, where it stores that and nothing else."""
    into, made, text = tree.stored(one, ASSEMBLE.names), tree.assigned(one), tree.text_of
    if into is None or not isinstance(one, cst.SimpleStatementLine):
        return None
    if made is None:  # x[m : m + TILE, n : n + TILE] = total
        assert isinstance(one.body[0], cst.Assign)
        target, shape = one.body[0].targets[0].target, _shape(one.body[0].targets[0].target)
        if not isinstance(one.body[0].value, cst.Name) or shape is None or not isinstance(target, cst.Subscript):
            return None
        lower = [part.slice.lower for part in target.slice if isinstance(part.slice, cst.Slice)]
        return into[0], ", ".join("0" if low is None else text(low) for low in lower), ", ".join(shape)
    if not isinstance(made[1], cst.Call) or "atomic" in tree.keywords(made[1]) or len(tree.positional(made[1])) != 3:
        return None
    _, value, offsets = tree.values(made[1])
    behind = dict(pair for inner in body_of(loop) if (pair := tree.assigned(inner)) is not None)
    sides = (behind.get(side.value, side) if isinstance(side, cst.Name) else side for side in found.operands)
    left, right = map(_shape, sides)
    turned = [name in tree.keywords(found.call) for name in ("a_trans", "b_trans")]
    if left is None or right is None or not isinstance(offsets, cst.List) or not isinstance(value, cst.Name):
        return None
    return into[0], text(offsets)[1:-1], f"{left[int(turned[0])]}, {right[int(not turned[1])]}"


def _shape(node: cst.BaseExpression) -> list[str] | None:
    """The lengths of a tile that is a part of a tensor, as the text says them."""
    text = tree.text_of
    if isinstance(node, cst.Call) and tree.called(node) in CAST.names and tree.positional(node):
        return _shape(tree.positional(node)[0].value)
    if isinstance(node, cst.Call) and tree.called(node) in SLICE.names and len(tree.positional(node)) > 1:
        sizes = tree.positional(node)[1].value
        return [text(one.value) for one in sizes.elements] if isinstance(sizes, cst.List) else None
    if not isinstance(node, cst.Subscript):
        return None
    found = []
    for one in node.slice:
        part = one.slice
        if not isinstance(part, cst.Slice) or part.upper is None:
            return None
        lower, upper = part.lower, part.upper
        if lower is None or (isinstance(lower, cst.Integer) and lower.value == "0"):
            found.append(text(upper))
        elif (
            isinstance(upper, cst.BinaryOperation)
            and isinstance(upper.operator, cst.Add)
            and tree.same(upper.left, lower)
        ):
            found.append(text(upper.right))
        else:
            return None
    return found
