"""A body in readable lines: what each pass got and left."""

from __future__ import annotations

from collections.abc import Iterator

from npuscope.lower.model import Instruction, Items, Lowered, Repeat, Value
from npuscope.tile.record.model import Recording


def body_text(lowered: Lowered, recording: Recording) -> str:
    """One line per instruction: result, op, operands, core and pipe, source line."""
    lines = [f"{lowered.kernel}, body {lowered.body}"]
    lines += [f"ring {r.direction} in {r.space}: {r.slots} slots of {r.slot} B" for r in lowered.rings]
    lines += lowered.notes
    return "\n".join([*lines, *_lines(lowered.items, lowered, recording, 1)]) + "\n"


def _lines(items: Items, lowered: Lowered, recording: Recording, depth: int) -> Iterator[str]:
    indent = "  " * depth
    for item in items:
        if isinstance(item, Repeat):
            stage = f" stage {item.stage}" if item.stage > 1 else ""
            carried = ", ".join(_carried(lowered.values, carry.value, carry.next) for carry in item.carries)
            yield f"{indent}{item.count} x {item.kind}{stage}{f' carrying {carried}' if carried else ''}:"
            yield from _lines(item.items, lowered, recording, depth + 1)
        else:
            yield indent + _line(item, lowered, recording)


def _carried(values: tuple[Value, ...], inside: int, following: int) -> str:
    return f"%{following} as %{inside} {values[inside].name}"


def _line(one: Instruction, lowered: Lowered, recording: Recording) -> str:
    result = "" if one.result is None else f"{_value(lowered.values[one.result])} = "
    operands = ", ".join("_" if number is None else f"%{number}" for number in one.operands)
    touched = " ".join(f"{access.mode} GM {list(access.shape)}" for access in one.accesses)
    where = " ".join(filter(None, (one.unit, one.pipe)))
    site = recording.sites[one.site]
    place = f"{site.file.rpartition('/')[2]}:{site.line}"
    parts = (f"{result}{one.name}({operands})", touched, f"[{where}]" if where else "", f"# {place}")
    return "  ".join(filter(None, parts))


def _value(value: Value) -> str:
    """`%3 acc [16, 256] FP32 Acc 16384 B`, with the storage where it is another value's."""
    size = f" {value.bytes} B" if value.bytes else ""
    same = f" in %{value.storage}" if value.storage != value.id else ""
    ring = " in the ring" if value.in_ring else ""
    return f"%{value.id} {value.name} {list(value.shape)} {value.dtype} {value.space or '?'}{size}{same}{ring}"
