"""What a terminal shows of an op and of a rule; docs/reference_pages.py has their pages."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import replace
from enum import Enum
from typing import cast

import polars as pl

import npuscope.tile.distributed  # noqa: F401 (binds the functions of pld)
from npuscope.check.rule import Rule
from npuscope.chip.devices import Device
from npuscope.ops.spec import OpSpec
from npuscope.ops.table import BY_NAME
from npuscope.table.columns import Column, Columns, Table
from npuscope.table.formats import COUNT, FLAG, LIST, TEXT
from npuscope.table.text import aligned
from npuscope.tile.calls.spellings import function_of
from npuscope.time.core.costs import DTYPE, SHAPE, OpPrice, op_price


def rule_text(rule: Rule) -> str:
    """One rule for a terminal."""
    example = rule.example
    lines = [f"{rule.id} ({rule.severity}): {rule.title}", "", rule.why, ""]
    lines += ["Runs where it is named by --select, and in npuscope graph --audit.", ""] if rule.on_request else []
    lines += [f"    {line}" for line in example.before.splitlines()] + ["", "better:", ""]
    lines += [f"    {line}" for line in example.after.splitlines()]
    return "\n".join([*lines, "", f"Waste: {example.costs}."] if example.costs else lines)


TILE = f"{SHAPE[0]} × {SHAPE[1]} {DTYPE}"
UNITS: dict[str, str] = {
    "cube": "cube",
    "vector": "vector",
    "scalar": "scalar",
    "load": "GM → core",
    "store": "core → GM",
    "move": "on chip",
    "view": "view",
    "sync": "order",
}
ONE = "`npuscope ops NAME` has it in sentences"
OPS = Columns(
    "ops",
    "An op of the tile language.",
    Column("name", TEXT, "what the table of ops calls it", title="op"),
    Column(
        "planes",
        replace(LIST, show=lambda value: units_text(cast("list[str]", value))),
        "the units at work",
        title="unit",
    ),
    Column("cycles", COUNT, "of one on a tile of that shape and type on an idle core"),
    Column("confidence", TEXT, "how its cost is known", title="sure"),
    Column("doc", TEXT, "what it does", title="what it does"),
    Column("signatures", LIST, "how it is called, one for each function", only=ONE),
    Column("spellings", LIST, "the names that programs write", only=ONE),
    Column("types", TEXT, "of its operands", only=ONE),
    Column("gives", TEXT, "the type of its result where it is another", only=ONE),
    Column("device", TEXT, "the chip that cycles are of", only=ONE),
    Column("tile", replace(TEXT, json="object"), "`shape` and `dtype` that cycles are of", only=ONE),
    Column("cost", TEXT, "the constant that it costs", only=ONE),
    Column("cost_with_number", TEXT, "the one with a number in place of a tile", only=ONE),
    Column("cost_widening", TEXT, "the one to a wider type", only=ONE),
    Column("source", TEXT, "where the cost comes from", only=ONE),
    Column("scratch", FLAG, "whether it needs another tile while it runs", only=ONE),
    Column("storage", TEXT, "where its result lies", only=ONE),
    Column("held", replace(LIST, json="list of int"), "operands that keep their place to its end", only=ONE),
    Column("roles", LIST, "what its operands are", only=ONE),
)
SCRATCH = ("tmp", "tmp_tile", "high_precision")  # parameters that hardly any program gives


def addresses(spec: OpSpec) -> list[str]:
    """What programs write, the op's own name first; an op that lowering makes is shown by its name."""
    if not spec.names:
        return [spec.name]
    return [name if name.startswith(("pl.", "pld.")) else f"pl.{name}" for name in spec.names]


def units_text(planes: Iterable[str]) -> str:
    """The units at work, or what an op does instead."""
    return " or ".join(UNITS.get(plane, plane) for plane in planes) or "none"


def op_table(specs: Iterable[OpSpec], device: Device) -> Table:
    """Ops with what they cost on a chip."""
    rows = []
    for spec in specs:
        cost = op_price(spec, device)
        rows.append(
            {
                "name": spec.name,
                "planes": list(spec.planes),
                "cycles": None if cost is None else cost.cycles,
                "confidence": None if cost is None else cost.confidence,
                "doc": spec.doc,
                "signatures": signatures(spec),
                "spellings": addresses(spec),
                "types": spec.types,
                "gives": spec.gives or None,
                "device": device.name,
                "tile": {"shape": list(SHAPE), "dtype": DTYPE},
                "cost": None if cost is None else cost.place,
                "cost_with_number": spec.with_number or None,
                "cost_widening": spec.widening or None,
                "source": None if cost is None else cost.source,
                "scratch": spec.scratch,
                "storage": spec.storage,
                "held": list(spec.held),
                "roles": [role.name for role in spec.roles],
            }
        )
    return Table(OPS, pl.DataFrame(rows, infer_schema_length=None))


def ops_text(device: Device) -> str:
    """All ops, for a terminal."""
    found = op_table(BY_NAME.values(), device)
    shown = found.shown()
    lines = aligned([[one.heading for one in shown], *found.cells()], [one.right for one in shown])
    return "\n".join([f"{len(BY_NAME)} ops; cycles of one on {TILE} on {device.name}", "", *lines])


def op_text(spec: OpSpec, device: Device) -> str:
    """One op, all that is known of it."""
    lines = [f"{spec.name}: {spec.doc}", ""]
    lines += [f"  {signature}" for signature in signatures(spec)]
    lines += [
        "",
        f"  unit    {units_text(spec.planes)}",
        f"  types   {spec.types}{f' → {spec.gives}' if spec.gives else ''}",
    ]
    cost = op_price(spec, device)
    lines.append(f"  cost    {_cost_text(spec, cost, device)}")
    if cost is not None:
        lines.append(f"          {cost.source}")
    lines += [f"  {'' if n else 'memory':8}{sentence}" for n, sentence in enumerate(_needs(spec))]
    return "\n".join(lines)


def _cost_text(spec: OpSpec, cost: OpPrice | None, device: Device) -> str:
    if cost is None:
        return "none"
    assert device.clock is not None
    microseconds = cost.cycles / device.clock.core.value * 1e6
    other = f"; with a number {spec.with_number}" if spec.with_number else ""
    other += f"; to a wider type {spec.widening}" if spec.widening else ""
    return (
        f"{cost.cycles:,.0f} cycles ({microseconds:.3g} µs) for {TILE} on {device.name}, {cost.confidence} "
        f"({cost.place}{other})"
    )


def first_call(spec: OpSpec) -> str:
    """How it is called first of all, without scratch tiles: `pl.cast(input, target_type, mode='round')`."""
    given = [one for one in _given(function_of(spec.names[0])) if one.partition("=")[0] not in SCRATCH]
    return f"{addresses(spec)[0]}({', '.join(given)})"


def signatures(spec: OpSpec) -> list[str]:
    """How it is called, a line for each function."""
    listed = calls(spec).items()
    return [f"{' · '.join(names)}({given})" for given, names in listed] or ["only lowering makes it"]


def calls(spec: OpSpec) -> dict[str, list[str]]:
    """Parameters -> the addresses of the function that has them."""
    found: dict[str, list[str]] = {}
    for name, address in zip(spec.names, addresses(spec), strict=False):
        found.setdefault(", ".join(_given(function_of(name))), []).append(address)
    return found


def _given(function: Callable[..., object]) -> list[str]:
    """Parameters by name and default, without types: `x`, `mode='round'`, `*`, `atomic=None_`."""
    found: list[str] = []
    for one in inspect.signature(function).parameters.values():
        if one.kind is inspect.Parameter.KEYWORD_ONLY and "*" not in found:
            found.append("*")
        default = one.default.name if isinstance(one.default, Enum) else repr(one.default)
        found.append(one.name if one.default is inspect.Parameter.empty else f"{one.name}={default}")
    return found


def _needs(spec: OpSpec) -> list[str]:
    storage = {
        "free": "its result may take the place of an operand that is read for the last time",
        "separate": "its result lies apart from its operands",
        "separate_if_wider": "its result lies apart from its operand where its elements are wider",
        "operand": "its result lies where its first operand lies",
    }
    needs = [storage[spec.storage]] if spec.planes and spec.plane not in ("scalar", "sync", "store") else []
    if spec.scratch:
        needs.append("room for another whole tile while it runs")
    if spec.held:
        which = ", ".join(("first", "second", "third")[n] for n in spec.held)
        needs.append(f"its {which} operand keeps its place until the last element is written")
    return needs
