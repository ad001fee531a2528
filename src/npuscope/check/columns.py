"""The columns of what checks tell: findings, errors, the memory of functions and the tiles in it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace

import polars as pl

from npuscope.check.memory_use import Usage
from npuscope.check.rule import Finding, Waste
from npuscope.lower.program import Program
from npuscope.table.columns import Column, Columns, Table
from npuscope.table.formats import COUNT, LIST, ROOM, TEXT, TIME, Form, duration, many, percent
from npuscope.tile.record.model import Site

NOTHING_NS = 10  # a simulated difference below this is none
BAR = 20  # characters of a full memory
PARAGRAPH = "a finding is told as a paragraph, not as a row"
PROGRAM = Column("program", COUNT, "which of the file's programs, counted from 0", only="a heading tells it")
NAMED_FILE = replace(TEXT, show=lambda value: str(value).rpartition("/")[2])


def _cost(value: object) -> str:
    if not isinstance(value, dict):
        return str(value)
    return cost_text(Waste(*(value[name] for name in ("bytes", "flops", "tasks", "waits"))))


def cost_text(cost: Waste) -> str:
    """A cost in the units it has."""
    parts = [f"{amount(cost.bytes)}B of GM traffic"] if cost.bytes else []
    parts += [f"{amount(cost.flops)}FLOP"] if cost.flops else []
    parts += [many(cost.tasks, "task")] if cost.tasks else []
    parts += [f"{many(cost.waits, 'task')} waiting"] if cost.waits else []
    return ", ".join(parts)


def saving_text(finding: Finding) -> str:
    """What a simulation with its fix says, or without the finding where none was tried; "" where there was none."""
    price, saves_ns = finding.price, finding.saves_ns
    if price is None or saves_ns is None:
        return ""
    by = f"{duration(abs(saves_ns))} {'shorter' if saves_ns > 0 else 'longer'}"
    by = "the same" if abs(saves_ns) < NOTHING_NS else by
    if finding.was_tried:
        return f"its fix was tried: the simulated time is {by}"
    return f"without it the simulated time is {by}; {price.tried or 'no fix was tried'}"


def worth_text(finding: Finding) -> str:
    """The same in two words."""
    worth = duration(finding.saves_ns or 0)
    return f"{worth}, tried" if finding.was_tried else f"about {worth}, not tried"


def amount(number: int) -> str:
    """A number to three figures with its prefix: 1.05 M."""
    value = float(number)
    for prefix in ("", "k", "M", "G"):
        if abs(value) < 1000:
            return f"{value:.3g} {prefix}"
        value /= 1000
    return f"{value:,.4g} T"


ERRORS = Columns(
    "check.errors",
    "What will not work.",
    PROGRAM,
    Column("id", TEXT, "of the rule (the page of rules)", title="finding"),
    Column("severity", TEXT, "error, warning or hint", only=PARAGRAPH),
    Column("file", NAMED_FILE, "where"),
    Column("line", COUNT, "where"),
    Column("message", TEXT, "what is wrong", only=PARAGRAPH),
    Column(
        "cost",
        Form("text", "object", _cost, right=False),
        "`bytes`, `flops`, `tasks`, `waits` over the run",
    ),
    Column("kernel", TEXT, 'the kernel, "" where it is about the source', only=PARAGRAPH),
    Column("remedy", TEXT, "what to do", only=PARAGRAPH),
    Column("change", TEXT, 'the line as it should be, or ""', only=PARAGRAPH),
    Column("count", COUNT, "times met", only=PARAGRAPH),
    Column("also", replace(LIST, json="list of objects"), "other places: `file`, `line`", only=PARAGRAPH),
)
FINDINGS = Columns(
    "check.findings",
    "A warning or a hint, the one that saves most first.",
    *ERRORS,
    Column("scope", TEXT, "the part of the source it belongs to", only="a heading tells it"),
    Column(
        "saves_ns",
        TIME,
        "what the simulated time is shorter with its fix, or without it where none was tried; null where "
        "that cannot be simulated",
        title="saves",
    ),
    Column("tried", TEXT, '`tried`: `saves_ns` is what its fix gave; else "" or why none was tried', only=PARAGRAPH),
)


def error_row(finding: Finding, program: int = 0) -> dict[str, object]:
    same = {name: getattr(finding, name) for name in ERRORS.keys if name not in ("program", "cost", "also")}
    also = [{"file": file, "line": line} for file, line in finding.also]
    return {"program": program, **same, "cost": asdict(finding.waste), "also": also}


def found_row(one: Finding, program: int = 0) -> dict[str, object]:
    return {
        **error_row(one, program),
        "scope": one.section.title,
        "saves_ns": one.saves_ns,
        "tried": one.price.tried if one.price else "",
    }


def table_of(columns: Columns, rows: Iterable[dict[str, object]]) -> Table:
    return Table(columns, pl.DataFrame(list(rows), infer_schema_length=None))


def bar(share: float) -> str:
    """A share of a memory; what is used at all shows."""
    full = min(max(round(share * BAR), 1 if share > 0 else 0), BAR)
    return "█" * full + "·" * (BAR - full)


def _filled(value: object) -> str:
    return f"{percent(value):>6}  {bar(value)}" if isinstance(value, float) else str(value)


def _fits(value: object) -> str:
    return "yes" if value else "does not fit"


MEMORY = Columns(
    "memory.memory",
    "A memory of a function, in the body that fills it most; what is too full comes first.",
    PROGRAM,
    Column("kernel", TEXT, "a mixed kernel is two functions, `_aic` and `_aiv`", title="function"),
    Column("launched_as", TEXT, "the kernel's own name", only="the function's name has it"),
    Column("space", TEXT, "Mat, Left, Right, Acc or Vec"),
    Column("used", ROOM, "in the fullest body", scale="room"),
    Column("limit", ROOM, "there are", scale="room"),
    Column("share", Form("share", "number, share of 1", _filled, right=False), "used, of the limit"),
    Column("ring", ROOM, "at the head, for the ring between the cores; part of `used`", scale="room", wide=True),
    Column("fits", Form("fits", "bool", _fits, right=False), "whether it does"),
    Column("buffers", replace(LIST, json="list"), "with `--kernel`: its tiles", only="a table of its own"),
)


def usage_row(usage: Usage, program: int = 0) -> dict[str, object]:
    space = usage.space
    return {
        "program": program, "kernel": usage.function, "launched_as": usage.body.kernel, "space": space.space,
        "used": space.used, "limit": space.limit, "share": usage.share, "ring": space.reserved, "fits": space.fits,
    }  # fmt: skip


def place_of(where: Site | Finding) -> str:
    """`layer.py:12`."""
    return f"{where.file.rpartition('/')[2]}:{where.line}"


def _turns(value: object) -> str:
    turns = value if isinstance(value, list) else []
    return ", ".join(f"{one['turn'] + 1} of {one['of']}" for one in turns if one["of"] > 1)


def _shape(value: object) -> str:
    return "×".join(map(str, value)) or "one" if isinstance(value, list) else str(value)


TILES = Columns(
    "memory.memory.buffers.tiles",
    "A tile in its buffer, in order of address; JSON has the tiles of a buffer together, with its address and bytes.",
    Column("address", COUNT, "of the buffer"),
    Column("room", ROOM, "of the buffer", title="buffer"),
    Column("name", TEXT, "the variable", title="tile"),
    Column("shape", Form("shape", "list of int", _shape, right=False), "rows and columns"),
    Column("dtype", TEXT, "of its elements", title="type"),
    Column("bytes", ROOM, "of the tile"),
    Column("place", TEXT, "file and line that make it", title="made at"),
    Column("file", TEXT, "that makes it", only="`place` tells it"),
    Column("line", COUNT, "that makes it", only="`place` tells it"),
    Column("from", COUNT, "the instruction of the body that makes it", title="needed from"),
    Column("to", COUNT, "the last that needs it"),
    Column(
        "turns",
        Form("turns", "list of objects", _turns, right=False),
        "per pipelined loop around it: `turn`, `of` so many in flight",
        title="in flight",
    ),
)


def tile_table(usage: Usage, program: Program) -> Table:
    rows: list[dict[str, object]] = []
    for slot in usage.space.slots:
        for tenant in slot.tenants:
            value, site = tenant.value, program.site_in(usage.body.lowered, tenant.value.site)
            rows.append(
                {
                    "address": slot.address, "room": slot.bytes, "name": value.name, "shape": list(value.shape),
                    "dtype": value.dtype, "bytes": value.bytes, "place": place_of(site),
                    "file": site.file, "line": site.line, "from": tenant.first // 2, "to": tenant.last // 2,
                    "turns": [{"turn": turn, "of": depth} for _, turn, depth in tenant.turns],
                }
            )  # fmt: skip
    return table_of(TILES, rows)
