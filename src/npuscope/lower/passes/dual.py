"""Two products of one left operand, `matmul_dual` and `matmul_dual_acc`: weights too large for Mat come in parts of K.

The left operand is staged once and stays. Each turn loads a part of the first weight and multiplies, then a part of
the second, so that four parts (two weights, two turns in flight) and the left operand fit. Both accumulators stay in
Acc for all turns and leave it by their own stores: nothing is ever moved from Acc to Acc.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from npuscope.chip.devices.chip import Device
from npuscope.lower.model import Instruction, Items, Lowered, Repeat, Value
from npuscope.lower.passes.l0_tiling import next_loop, product_of
from npuscope.lower.sizes import tile_bytes
from npuscope.ops.shaping import SLICE
from npuscope.ops.spec import Role

IN_FLIGHT = 2


def stream_dual(lowered: Lowered, device: Device) -> Lowered:
    """Dual products whose weights do not fit whole, as a loop over parts of K."""
    if not any(one.spec.is_a(Role.DUAL) for one in lowered.instructions):
        return lowered
    streamer = _Streamer(lowered, device)
    items = streamer.items(lowered.items)
    return replace(lowered, items=items, values=tuple(streamer.values))


class _Streamer:
    def __init__(self, lowered: Lowered, device: Device) -> None:
        self.device = device
        self.values = list(lowered.values)
        self.readers = Counter(number for one in lowered.instructions for number in one.reads)
        self.loop = next_loop(lowered.items)

    def items(self, items: Items) -> Items:
        made: list[Instruction | Repeat] = []
        n = 0
        while n < len(items):
            item = items[n]
            if isinstance(item, Repeat):
                made.append(replace(item, items=self.items(item.items)))
            elif self._pair(items, n):
                turned = self._streamed(made, item, items[n + 1])  # type: ignore[arg-type]
                made = turned if turned is not None else [*made, item, items[n + 1]]
                n += 1
            else:
                made.append(item)
            n += 1
        return tuple(made)

    def _pair(self, items: Items, n: int) -> bool:
        if n + 1 == len(items):
            return False
        one, other = items[n], items[n + 1]
        return (
            isinstance(one, Instruction)
            and isinstance(other, Instruction)
            and one.spec.is_a(Role.DUAL)
            and other.spec.is_a(Role.DUAL)
            and one.operands[1] == other.operands[1]
        )

    def _streamed(
        self, before: list[Instruction | Repeat], one: Instruction, other: Instruction
    ) -> list[Instruction | Repeat] | None:
        """The instructions before and the loop in place of the pair; None where the weights fit, or are not loads."""
        loads = [self._load(before, product.operands[2]) for product in (one, other)]
        part = self._part(one)
        if part is None or any(load is None for load in loads):
            return None
        turn: list[Instruction | Repeat] = []
        for product, load in zip((one, other), loads, strict=True):
            assert load is not None
            turn += self._part_of(product, load, part)
        deep = product_of(one, self.values, self.device).k
        kept = [item for item in before if item not in loads]
        self.loop += 1
        return [*kept, Repeat("pipeline", self.loop - 1, IN_FLIGHT, one.site, deep // part, tuple(turn))]

    def _load(self, before: list[Instruction | Repeat], number: int | None) -> Instruction | None:
        """The load of a weight that nothing else reads."""
        for item in before:
            if isinstance(item, Instruction) and item.plane == "load" and item.result == number:
                return item if number is not None and self.readers[number] == 1 else None
        return None

    def _part(self, one: Instruction) -> int | None:
        """The largest part of K with which everything fits; None where both weights fit whole, one after the other."""
        product = product_of(one, self.values, self.device)
        left, right = self.values[one.operands[1]], self.values[one.operands[2]]  # type: ignore[index]
        room = int(self.device.space["Mat"].size.value) - tile_bytes(left.shape, left.dtype, "Mat", self.device)
        if tile_bytes(right.shape, right.dtype, "Mat", self.device) <= room:
            return None
        step = max(int(self.device.core["fractal"].value), int(self.device.core["fractal_k"].value) // product.right)
        sizes = [k for k in range(step, product.k, step) if product.k % k == 0]
        fits = [k for k in sizes if 2 * IN_FLIGHT * k * product.n * product.right <= room]
        return max(fits, default=None)

    def _part_of(self, product: Instruction, load: Instruction, part: int) -> list[Instruction]:
        left, right = self.values[product.operands[1]], self.values[load.result]  # type: ignore[index]
        deep = product_of(product, self.values, self.device).k
        shape = tuple(part if n == deep else n for n in right.shape)
        piece = self._value(right._replace(shape=shape))
        slice_shape = tuple(part if n == deep else n for n in left.shape)
        view = self._value(left._replace(shape=slice_shape), storage=left.storage)
        accesses = tuple(
            access._replace(shape=tuple(part if n == deep else n for n in access.shape)) for access in load.accesses
        )
        share = product.flops * part // deep
        return [
            load._replace(result=piece, accesses=accesses),
            Instruction(SLICE.name, "view", product.site, (left.id,), view),
            product._replace(operands=(product.operands[0], view, piece, *product.operands[3:]), flops=share),
        ]

    def _value(self, value: Value, storage: int | None = None) -> int:
        number = len(self.values)
        self.values.append(value._replace(id=number, storage=number if storage is None else storage))
        return number
