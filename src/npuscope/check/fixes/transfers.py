"""Loads: what every turn loads again hoisted out of its loop, loads without a use left out, rows without data declared.

hoist        `x = pl.slice(t, …)` that names nothing of its loop stands in front of it
unused       a load that nothing is made of
valid-rows   a tile filled up to 16 rows says with valid_shape= how many are data
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import libcst as cst

from npuscope.check.fixes import tree
from npuscope.check.fixes.fix import NewText, Unmended, fix
from npuscope.check.fixes.scopes import body_of, is_scalar
from npuscope.check.fixes.tree import Edit, Source, Statement
from npuscope.check.rule import Finding
from npuscope.ops.cube import MATMUL, MATMUL_ACC
from npuscope.ops.shaping import SLICE, TRANSPOSE

LOADS = ("slice", "load", "gather", "read", "cast", "reshape", "view")


@fix("hoist", "loads that every turn repeats", ("shared-load",))
def _hoist(source: Source, findings: Sequence[Finding]) -> Iterator[NewText | Unmended]:
    seen: set[cst.For] = set()
    for finding in findings:
        around = source.around_line(finding.line)
        loops = [one for one in around if isinstance(one, cst.For) and tree.called(one.iter) in tree.LOOPS]
        loop = next((one for one in loops if _invariant(one)), None)
        if loop is None:
            yield Unmended(finding, "what it loads depends on every turn of its loop")
        elif loop not in seen:
            seen.add(loop)
            moved = _invariant(loop)
            left = [one for one in body_of(loop) if one not in moved]
            if not left:
                continue
            new = loop.with_changes(leading_lines=(), body=loop.body.with_changes(body=left))
            names = ", ".join(sorted(tree.bound_in(*moved)))
            yield NewText(
                source.edited([Edit((loop,), (*moved, new))]),
                f"load {names} once, in front of the loop",
                (finding,),
            )


def _invariant(loop: cst.For) -> list[Statement]:
    """The first statements of a loop that do the same in every turn: loads, and what they need."""
    body = body_of(loop)
    changing = tree.names_in(loop.target) | tree.bound_in(*body)
    moved: list[Statement] = []
    for one in body:
        found = tree.assigned(one)
        if found is None or not (is_scalar(one) or tree.called(found[1]) in LOADS):
            continue
        name, value = found
        others = tree.bound_in(*(other for other in body if other is not one))
        if name not in others and not tree.names_in(value) & (changing - tree.bound_in(*moved)):
            moved.append(one)
    return moved if any(tree.called(found[1]) in LOADS for one in moved if (found := tree.assigned(one))) else []


@fix("unused-load", "loads without a use", ("unused-load",))
def _unused(source: Source, findings: Sequence[Finding]) -> Iterator[NewText | Unmended]:
    for finding in findings:
        at = source.statement_at(finding.line)
        found = tree.assigned(at)
        if at is None or found is None or tree.called(found[1]) not in LOADS:
            yield Unmended(finding, "its line does more than load")
            continue
        yield NewText(source.edited([Edit((at,))]), f"leave out the load of {found[0]}", (finding,))


@fix("valid-rows", "rows without data", ("padded-rows",))
def _valid_rows(source: Source, findings: Sequence[Finding]) -> Iterator[NewText | Unmended]:
    for finding in findings:
        told = re.search(r"pl\.slice\((\w+), (\[.*?\]), \[\.\.\.\], valid_shape=(\[.*?\])\)", finding.change)
        if told is None:
            continue
        name, shape, valid = told.groups()
        shape, valid = _as_created(source, name, shape, valid)
        tried = (_declared(source, line, name, shape, valid) for line in source.lines_of(finding))
        new = next((text for text in tried if text is not None), None)
        if new is None:
            yield Unmended(finding, f"no slice or product of {name} stands on its line")
        else:
            yield NewText(new, f"say which rows of {name} are data", (finding,))


def _as_created(source: Source, name: str, shape: str, valid: str) -> tuple[str, str]:
    """Both shapes in the words of the tensor's creation, so that they follow its constants."""
    for one in source.statements:
        found = tree.assigned(one)
        if found is None or found[0] != name or tree.called(found[1]) != "create_tensor":
            continue
        given = next(iter(tree.values(found[1])), None) if isinstance(found[1], cst.Call) else None
        if isinstance(given, cst.List) and len(given.elements) == 2:
            columns = source.code(given.elements[1].value)
            return source.code(given), f"{valid.partition(',')[0]}, {columns}]"
    return shape, valid


def _declared(source: Source, line: int, name: str, shape: str, valid: str) -> str | None:
    at = source.statement_at(line)
    for call in tree.calls_in(at) if at is not None else ():
        first = next(iter(tree.values(call)), None)
        if tree.called(call) in SLICE.names and isinstance(first, cst.Name) and first.value == name:
            if "valid_shape" in tree.keywords(call):
                return None
            named = tree.options(call) | {"valid_shape": tree.expression(valid)}
            return source.edited([], {call: tree.call_with(call, tree.values(call), named)})
    for call in tree.calls_in(at) if at is not None else ():  # given whole
        for arg in tree.positional(call):
            if (
                tree.called(call) in (*MATMUL.names, *MATMUL_ACC.names)
                and isinstance(arg.value, cst.Name)
                and arg.value.value == name
            ):
                func = call.func.with_changes(attr=cst.Name("slice")) if isinstance(call.func, cst.Attribute) else None
                if func is not None:
                    text = f"{source.code(func)}({name}, {shape}, [0, 0], valid_shape={valid})"
                    return source.edited([], {arg.value: tree.expression(text)})
    return None


@fix("transposed", "operands that are turned on vector cores", ("*",))
def _transposed(source: Source, findings: Sequence[Finding]) -> Iterator[NewText | Unmended]:
    """`pl.matmul(a, pl.transpose(b, 0, 1))`: the load turns the tile on its way, the vector cores need not."""
    nodes: dict[cst.CSTNode, cst.CSTNode] = {}
    gone: list[Edit] = []
    for one in source.statements:
        if not isinstance(one, cst.SimpleStatementLine):
            continue
        for call in tree.calls_in(one):
            operands, named = tree.values(call), tree.options(call)
            first = {MATMUL.name: 0, MATMUL_ACC.name: 1}.get(tree.called(call))
            if first is None or len(operands) != first + 2:
                continue
            for place, option in ((first, "a_trans"), (first + 1, "b_trans")):
                apart = source.only_for(operands[place], one)
                turned = operands[place] if apart is None else (tree.assigned(apart) or ("", operands[place]))[1]
                if isinstance(turned, cst.Call) and tree.called(turned) in TRANSPOSE.names and option not in named:
                    operands[place] = tree.positional(turned)[0].value
                    named[option] = cst.Name("True")
                    gone += [Edit((apart,))] if apart is not None else []
            if len(named) > len(tree.keywords(call)):
                nodes[call] = tree.call_with(call, operands, named)
    if nodes:
        yield NewText(source.edited(gone, nodes), "turn operands while they are loaded", ())
