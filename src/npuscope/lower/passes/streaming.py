"""Several products of one left operand: that is staged once, the right operands stream.

A call such as `matmul_dual_acc(acc_a, acc_b, x, w_a, w_b)` is given both weights whole, which would keep both in Mat
at once. Here every tile that only products read is loaded right before the first of them, so that outside pipelined
loops (which load ahead on purpose) the weights take turns in one buffer while both accumulators stay live.
"""

from __future__ import annotations

from dataclasses import replace

from npuscope.chip.devices.chip import Device
from npuscope.lower.model import Instruction, Items, Lowered, Repeat, Value, instructions
from npuscope.lower.passes.dual import stream_dual


def stream(lowered: Lowered, device: Device) -> Lowered:
    lowered = stream_dual(lowered, device)
    return replace(lowered, items=_streamed(lowered.items, lowered.values))


def _streamed(items: Items, values: tuple[Value, ...]) -> Items:
    made: list[Instruction | Repeat] = []
    waiting: dict[int, Instruction] = {}  # storage -> its load
    for item in items:
        if isinstance(item, Repeat):
            item = replace(item, items=_streamed(item.items, values))
        elif item.plane == "load" and item.result is not None and values[item.result].space == "Mat":
            storage = values[item.result].storage
            if storage in waiting:
                made.append(waiting.pop(storage))  # loaded again before it was read: keep their order
            waiting[storage] = item
            continue
        touched = _touched(item, values)
        made += [waiting.pop(storage) for storage in tuple(waiting) if storage in touched]
        if isinstance(item, Instruction) and item.plane in ("store", "sync"):
            made += waiting.values()  # what it writes may be what a load reads
            waiting.clear()
        made.append(item)
    return (*made, *waiting.values())


def _touched(item: Instruction | Repeat, values: tuple[Value, ...]) -> set[int]:
    inside = instructions((item,))
    return {values[number].storage for one in inside for number in (*one.reads, one.result) if number is not None}
