"""The passes in their order, from a recorded body to one with places, pipes and sizes; a body in readable lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from npuscope.chip.devices import Device
from npuscope.lower.build import build, settle_carries
from npuscope.lower.cores import measure, order_stages, split_cores
from npuscope.lower.epilogue import fold_epilogues
from npuscope.lower.model import Instruction, Items, Lowered, Repeat, Value
from npuscope.lower.placement import copy_windows, expand_casts, place
from npuscope.lower.products import stream, tile_products
from npuscope.tile.record.model import Recording, Task


@dataclass(frozen=True, slots=True)
class LoweringOptions:
    """Settings of the compiler that a program does not say.

    `ring_slots`: depth of the ring between cores, None is the chip's. `stream`: right operands of several products
    come one after the other; without it all are loaded where the program slices them.
    """

    ring_slots: int | None = None
    stream: bool = True


Pass = Callable[[Lowered, Device, LoweringOptions], Lowered]
PASSES: tuple[tuple[str, Pass], ...] = (
    ("carries", lambda lowered, device, options: settle_carries(lowered)),
    ("epilogues", lambda lowered, device, options: fold_epilogues(lowered, device)),
    ("casts", lambda lowered, device, options: expand_casts(lowered, device)),
    ("placement", lambda lowered, device, options: place(lowered)),
    ("windows", lambda lowered, device, options: copy_windows(lowered)),
    ("streaming", lambda lowered, device, options: stream(lowered, device) if options.stream else lowered),
    ("products", lambda lowered, device, options: tile_products(lowered, device)),
    ("split", lambda lowered, device, options: split_cores(lowered, device, options.ring_slots)),
    ("stages", lambda lowered, device, options: order_stages(lowered)),
    ("sizes", lambda lowered, device, options: measure(lowered, device)),
)


def passed(lowered: Lowered, device: Device, options: LoweringOptions = LoweringOptions()) -> Lowered:
    """A body after all passes."""
    for _, run in PASSES:
        lowered = run(lowered, device, options)
    return lowered


def after_each_pass(
    recording: Recording, task: Task, body: int, device: Device, options: LoweringOptions = LoweringOptions()
) -> Iterator[tuple[str, Lowered]]:
    """The body as recorded and after every pass, with the pass's name."""
    lowered = build(recording, task, body)
    yield "recorded", lowered
    for name, run in PASSES:
        lowered = run(lowered, device, options)
        yield name, lowered


def body_text(lowered: Lowered, recording: Recording) -> str:
    """One line per instruction: result, op, operands, core and pipe, source line."""
    lines = [f"{lowered.kernel}, body {lowered.body}"]
    lines += [f"ring {r.direction} in {r.space}: {r.slots} slots of {r.slot} B" for r in lowered.rings]
    return "\n".join([*lines, *_lines(lowered.items, lowered, recording, 1)]) + "\n"


def _lines(items: Items, lowered: Lowered, recording: Recording, depth: int) -> Iterator[str]:
    indent = "  " * depth
    for item in items:
        if isinstance(item, Repeat):
            stage = f" stage {item.stage}" if item.stage > 1 else ""
            carried = ", ".join(f"%{c.next} as %{c.value} {lowered.values[c.value].name}" for c in item.carries)
            yield f"{indent}{item.count} x {item.kind}{stage}{f' carrying {carried}' if carried else ''}:"
            yield from _lines(item.items, lowered, recording, depth + 1)
        else:
            yield indent + _line(item, lowered, recording)


def _line(one: Instruction, lowered: Lowered, recording: Recording) -> str:
    result = "" if one.result is None else f"{_value(lowered.values[one.result])} = "
    operands = ", ".join("_" if number is None else f"%{number}" for number in one.operands)
    touched = " ".join(f"{access.mode} GM {list(access.shape)}" for access in one.accesses)
    where = " ".join(filter(None, (one.unit, one.pipe)))
    site = recording.sites[lowered.sites[one.site]]
    place = f"{site.file.rpartition('/')[2]}:{site.line}"
    parts = (f"{result}{one.name}({operands})", touched, f"[{where}]" if where else "", f"# {place}")
    return "  ".join(filter(None, parts))


def _value(value: Value) -> str:
    """`%3 acc [16, 256] FP32 Acc 16384 B`, with the storage where it is another value's."""
    size = f" {value.bytes} B" if value.bytes else ""
    same = f" in %{value.storage}" if value.storage != value.id else ""
    ring = " in the ring" if value.in_ring else ""
    return f"%{value.id} {value.name} {list(value.shape)} {value.dtype} {value.space or '?'}{size}{same}{ring}"
