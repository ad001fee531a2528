"""the page of ops, and what `npuscope ops` prints: every op of the tile language, from the table of ops.

The site has it (docs/generate.py).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from enum import Enum

import npuscope.tile.distributed  # noqa: F401  (binds the functions of pld)
from npuscope.chip.devices import Device, load
from npuscope.ops import table
from npuscope.ops.spec import OpSpec, Plane
from npuscope.table.text import aligned
from npuscope.tile.calls.bound import function_of
from npuscope.time.core.costs import DTYPE, SHAPE, OpPrice, op_price

DEVICE = "ascend910b1"
TILE = f"{SHAPE[0]} × {SHAPE[1]} {DTYPE}"
UNITS: dict[Plane, str] = {
    "cube": "cube",
    "vector": "vector",
    "scalar": "scalar",
    "load": "GM → core",
    "store": "core → GM",
    "move": "on chip",
    "view": "view",
    "sync": "order",
}
SCRATCH = ("tmp", "tmp_tile", "high_precision")  # parameters that hardly any program gives
BAR = "\\|"  # within a cell
PAGE = """# The ops of the tile language

Every op that programs can call, and the few that only the compiler makes. A plain name is in `pl`, in `pl.tile` and in
`pl.tensor`; where it is elsewhere the name says so. Made from `src/npuscope/ops/`, where each op is declared once;
`npuscope ops NAME` prints more about one: its signature, what it needs on chip, where its cost comes from.

*cycles* are those of one instruction on a tile of {tile} on an idle core of the {device} ({clock} cycles are a
microsecond): of a product of two such tiles, of a transfer of one such tile. *sure* is how its cost is known: measured,
documented, fitted, or guessed. A cost taken over from another op is a guess, however sure the other one is.
`npuscope simulate` says how much of a run rests on guesses.

{sections}
"""


def ops_page() -> str:
    """The whole page."""
    device = load(DEVICE)
    assert device.clock is not None
    sections = "\n\n".join(_section(title, specs, device) for title, specs in table.FAMILIES.items())
    return PAGE.format(tile=TILE, device=device.name, clock=f"{device.clock.core.value / 1e6:,.0f}", sections=sections)


def _section(title: str, specs: Sequence[OpSpec], device: Device) -> str:
    cells = [(_spelled(spec), spec.doc, unit(spec), spec.types, *_told(spec, device)) for spec in specs]
    rows = [f"| {' | '.join(cell.replace('|', BAR) for cell in row)} |" for row in cells]
    head = "| op | what it does | unit | types | cycles | sure |\n|---|---|---|---|---:|---|"
    return f"## {title}\n\n" + "\n".join([head, *rows])


def _spelled(spec: OpSpec) -> str:
    """How it is called, a line for each function, with other names of the same function behind."""
    lines = []
    for given, names in _calls(spec).items():
        also = f", also {', '.join(f'`{name}`' for name in names[1:])}" if len(names) > 1 else ""
        lines.append(f"`{names[0]}({given})`{also}")
    return "<br>".join(lines) or f"`{spec.name}`, made by lowering"


def addresses(spec: OpSpec) -> list[str]:
    """What programs write, the op's own name first; an op that lowering makes is shown by its name."""
    if not spec.names:
        return [spec.name]
    return [name if name.startswith(("pl.", "pld.")) else f"pl.{name}" for name in spec.names]


def unit(spec: OpSpec) -> str:
    """The unit at work, or what it does instead."""
    return " or ".join(UNITS[plane] for plane in spec.planes) or "none"


def _told(spec: OpSpec, device: Device) -> tuple[str, str]:
    cost = op_price(spec, device)
    return ("–", "–") if cost is None else (f"{cost.cycles:,.0f}", cost.confidence)


# --- for a terminal


def ops_text(device: Device) -> str:
    """All ops."""
    rows = [
        [spec.name, unit(spec), *_told(spec, device), spec.doc] for specs in table.FAMILIES.values() for spec in specs
    ]
    head = ["op", "unit", "cycles", "sure", "what it does"]
    lines = aligned([head, *rows], (False, False, True, False, False))
    return "\n".join([f"{len(rows)} ops; cycles of one on {TILE} on {device.name}", "", *lines])


def op_text(spec: OpSpec, device: Device) -> str:
    """One op, all that is known of it."""
    lines = [f"{spec.name}: {spec.doc}", ""]
    lines += [f"  {signature}" for signature in signatures(spec)]
    lines += ["", f"  unit    {unit(spec)}", f"  types   {spec.types}{f' → {spec.gives}' if spec.gives else ''}"]
    cost = op_price(spec, device)
    lines.append(f"  cost    {_cost_told(spec, cost, device)}")
    if cost is not None:
        lines.append(f"          {cost.source}")
    lines += [f"  {'' if n else 'memory':8}{sentence}" for n, sentence in enumerate(_needs(spec))]
    return "\n".join(lines)


def _cost_told(spec: OpSpec, cost: OpPrice | None, device: Device) -> str:
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
    calls = _calls(spec).items()
    return [f"{' · '.join(names)}({given})" for given, names in calls] or ["only lowering makes it"]


def _calls(spec: OpSpec) -> dict[str, list[str]]:
    """Parameters -> the addresses of the function that has them."""
    found: dict[str, list[str]] = {}
    for name, address in zip(spec.names, addresses(spec), strict=False):
        found.setdefault(", ".join(_given(function_of(name))), []).append(address)
    return found


def _given(function: Callable[..., object]) -> list[str]:
    """Parameters by name and default, without types: `x`, `mode='round'`, `*`, `atomic=None_`."""
    told: list[str] = []
    for one in inspect.signature(function).parameters.values():
        if one.kind is inspect.Parameter.KEYWORD_ONLY and "*" not in told:
            told.append("*")
        default = one.default.name if isinstance(one.default, Enum) else repr(one.default)
        told.append(one.name if one.default is inspect.Parameter.empty else f"{one.name}={default}")
    return told


def _needs(spec: OpSpec) -> list[str]:
    told = {
        "free": "its result may take the place of an operand that is read for the last time",
        "apart": "its result lies apart from its operands",
        "apart_if_wider": "its result lies apart from its operand where its elements are wider",
        "operand": "its result lies where its first operand lies",
    }
    needs = [told[spec.storage]] if spec.planes and spec.plane not in ("scalar", "sync", "store") else []
    if spec.scratch:
        needs.append("room for another whole tile while it runs")
    if spec.held:
        which = ", ".join(("first", "second", "third")[n] for n in spec.held)
        needs.append(f"its {which} operand keeps its place until the last element is written")
    return needs


def op_dict(spec: OpSpec, device: Device) -> dict[str, object]:
    """The contract of `npuscope ops --json` (docs/reference/json.md)."""
    cost = op_price(spec, device)
    return {
        "name": spec.name,
        "doc": spec.doc,
        "signatures": signatures(spec),
        "spellings": addresses(spec),
        "planes": list(spec.planes),
        "types": spec.types,
        "gives": spec.gives or None,
        "device": device.name,
        "tile": {"shape": list(SHAPE), "dtype": DTYPE},
        "cycles": None if cost is None else cost.cycles,
        "cost": None if cost is None else cost.place,
        "cost_with_number": spec.with_number or None,
        "cost_widening": spec.widening or None,
        "confidence": None if cost is None else cost.confidence,
        "source": None if cost is None else cost.source,
        "scratch": spec.scratch,
        "storage": spec.storage,
        "held": list(spec.held),
        "roles": [role.name for role in spec.roles],
    }


if __name__ == "__main__":
    print(ops_page(), end="")
