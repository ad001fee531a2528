"""Loads: what every turn loads again hoisted out of its loop, loads without a use left out, rows without data declared.

hoist        `x = pl.slice(t, …)` that names nothing of its loop stands in front of it
unused       a load that nothing is made of
valid-rows   a tile filled up to 16 rows says with valid_shape= how many are data
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import libcst as cst

from npuscope.check.fixes.fix import Fix, NewText, Unmended
from npuscope.check.fixes.scopes import body_of, is_scalar
from npuscope.check.fixes.tree import (
    LOOPS,
    Edit,
    Source,
    Statement,
    assigned,
    bound_in,
    call_with,
    called,
    calls_in,
    expression,
    keywords,
    names_in,
    positional,
)
from npuscope.check.rule import Finding
from npuscope.ops.cube import MATMUL, MATMUL_ACC
from npuscope.ops.shaping import SLICE, TRANSPOSE

LOADS = ("slice", "load", "gather", "read", "cast", "reshape", "view")


def _hoist(source: Source, findings: Sequence[Finding]) -> Iterator[NewText | Unmended]:
    seen: set[cst.For] = set()
    for finding in findings:
        at = source.statement_at(finding.line)
        around = [] if at is None else [at, *source.around(at)]
        loops = [one for one in around if isinstance(one, cst.For) and called(one.iter) in LOOPS]
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
            names = ", ".join(sorted(bound_in(*moved)))
            yield NewText(
                source.edited([Edit((loop,), (*moved, new))]), f"load {names} once, in front of the loop", (finding,)
            )


def _invariant(loop: cst.For) -> list[Statement]:
    """The first statements of a loop that do the same in every turn: loads, and what they need."""
    body = body_of(loop)
    changing = names_in(loop.target) | bound_in(*body)
    moved: list[Statement] = []
    for one in body:
        found = assigned(one)
        if found is None or not (is_scalar(one) or called(found[1]) in LOADS):
            continue
        name, value = found
        others = bound_in(*(other for other in body if other is not one))
        if name not in others and not names_in(value) & (changing - bound_in(*moved)):
            moved.append(one)
    return moved if any(called(found[1]) in LOADS for one in moved if (found := assigned(one))) else []


HOIST = Fix("hoist", "loads that every turn repeats", ("shared-load",), _hoist)


def _unused(source: Source, findings: Sequence[Finding]) -> Iterator[NewText | Unmended]:
    for finding in findings:
        at = source.statement_at(finding.line)
        found = assigned(at)
        if at is None or found is None or called(found[1]) not in LOADS:
            yield Unmended(finding, "its line does more than load")
            continue
        yield NewText(source.edited([Edit((at,))]), f"leave out the load of {found[0]}", (finding,))


UNUSED = Fix("unused-load", "loads without a use", ("unused-load",), _unused)


def _valid_rows(source: Source, findings: Sequence[Finding]) -> Iterator[NewText | Unmended]:
    for finding in findings:
        told = re.search(r"pl\.slice\((\w+), (\[.*?\]), \[\.\.\.\], valid_shape=(\[.*?\])\)", finding.change)
        if told is None:
            continue
        name, shape, valid = told.groups()
        shape, valid = _as_created(source, name, shape, valid)
        lines = [finding.line, *(line for file, line in finding.also if file == source.file)]
        new = next((one for line in lines if (one := _declared(source, line, name, shape, valid)) is not None), None)
        if new is None:
            yield Unmended(finding, f"no slice or product of {name} stands on its line")
        else:
            yield NewText(new, f"say which rows of {name} are data", (finding,))


def _as_created(source: Source, name: str, shape: str, valid: str) -> tuple[str, str]:
    """Both shapes in the words of the tensor's creation, so that they follow its constants."""
    for one in source.statements:
        found = assigned(one)
        if found is None or found[0] != name or called(found[1]) != "create_tensor":
            continue
        given = positional(found[1])[0].value if isinstance(found[1], cst.Call) and positional(found[1]) else None
        if isinstance(given, cst.List) and len(given.elements) == 2:
            columns = source.code(given.elements[1].value)
            return source.code(given), f"{valid.partition(',')[0]}, {columns}]"
    return shape, valid


def _declared(source: Source, line: int, name: str, shape: str, valid: str) -> str | None:
    at = source.statement_at(line)
    for call in calls_in(at) if at is not None else ():
        first = positional(call)[0].value if positional(call) else None
        if called(call) in SLICE.names and isinstance(first, cst.Name) and first.value == name:
            if "valid_shape" in keywords(call):
                return None
            named = {key: arg.value for key, arg in keywords(call).items()} | {"valid_shape": expression(valid)}
            return source.edited([], {call: call_with(call, [one.value for one in positional(call)], named)})
    for call in calls_in(at) if at is not None else ():  # given whole
        for arg in positional(call):
            if (
                called(call) in (*MATMUL.names, *MATMUL_ACC.names)
                and isinstance(arg.value, cst.Name)
                and arg.value.value == name
            ):
                func = call.func.with_changes(attr=cst.Name("slice")) if isinstance(call.func, cst.Attribute) else None
                if func is not None:
                    text = f"{source.code(func)}({name}, {shape}, [0, 0], valid_shape={valid})"
                    return source.edited([], {arg.value: expression(text)})
    return None


VALID_ROWS = Fix("valid-rows", "rows without data", ("padded-rows",), _valid_rows)


def _transposed(source: Source, findings: Sequence[Finding]) -> Iterator[NewText | Unmended]:
    """`pl.matmul(a, pl.transpose(b, 0, 1))`: the load turns the tile on its way, the vector cores need not."""
    nodes: dict[cst.CSTNode, cst.CSTNode] = {}
    gone: list[Edit] = []
    for one in source.statements:
        if not isinstance(one, cst.SimpleStatementLine):
            continue
        for call in calls_in(one):
            given = positional(call)
            first = {MATMUL.name: 0, MATMUL_ACC.name: 1}.get(called(call))
            if first is None or len(given) != first + 2:
                continue
            operands, named = [arg.value for arg in given], {key: arg.value for key, arg in keywords(call).items()}
            for place, option in ((first, "a_trans"), (first + 1, "b_trans")):
                apart = source.only_for(operands[place], one)
                turned = operands[place] if apart is None else (assigned(apart) or ("", operands[place]))[1]
                if isinstance(turned, cst.Call) and called(turned) in TRANSPOSE.names and option not in named:
                    operands[place] = positional(turned)[0].value
                    named[option] = cst.Name("True")
                    gone += [Edit((apart,))] if apart is not None else []
            if len(named) > len(keywords(call)):
                nodes[call] = call_with(call, operands, named)
    if nodes:
        yield NewText(source.edited(gone, nodes), "turn operands while they are loaded", ())


TRANSPOSED = Fix("transposed", "operands that are turned on vector cores", ("*",), _transposed)
