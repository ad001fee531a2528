"""Memories that are too small for their kernel, with the tiles that fill them and the constant to change."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from npuscope.check.findings import Finding
from npuscope.check.memory.advice import advice
from npuscope.check.memory.usage import Usage, usages
from npuscope.check.rule import Example, Rule
from npuscope.lower.memory_plan import Slot
from npuscope.lower.program import Program

MOST_TILES = 6  # that a message names


def check(program: Program) -> Iterator[Finding]:
    return (_finding(program, usage) for usage in usages(program.planned.values()) if not usage.space.fits)


def _finding(program: Program, usage: Usage) -> Finding:
    space = usage.space
    largest = sorted(space.slots, key=lambda slot: -slot.bytes)
    tiles = "; ".join(_told(slot, program) for slot in largest[:MOST_TILES])
    if space.reserved:
        tiles = f"the ring between cube and vector cores takes {space.reserved} B; {tiles}"
    if len(largest) > MOST_TILES:
        tiles += f"; and {len(largest) - MOST_TILES} more"
    site = largest[0].tenants[0].value.site if largest else program.recording.tasks[usage.body.task].site
    shallower = ", or a shallower ring: optimizations=[pl.cross_core_slot(slot_num=2)]"
    otherwise = f"Use smaller tiles{shallower if space.reserved else ', or fewer of them at once'}."
    return RULE.at(
        program.site(site),
        f"{usage.function} {space.space} buffer usage {space.used} > {space.limit}: {tiles}",
        advice(program, usage) or otherwise,
        usage.body.kernel,
    )


def _told(slot: Slot, program: Program) -> str:
    """`wq [512, 512] INT8 262144 B (layer.py:12)`."""
    value = slot.tenants[0].value
    site = program.site(value.site)
    return f"{value.name} {list(value.shape)} {value.dtype} {slot.bytes} B ({Path(site.file).name}:{site.line})"


RULE = Rule(
    "buffer-overflow",
    "error",
    "a kernel needs more of a memory than a core has",
    "The compiler plans all tiles that are alive at once into their memory, and refuses what does not fit.",
    check,
    Example(
        "x = pl.add(pl.slice(a, [128, 512], [0, 0]), 1.0)  # FP32: 262144 bytes of Vec, which has 188416",
        "x = pl.add(pl.slice(a, [64, 512], [0, 0]), 1.0)",
    ),
    about="chip",
)
