"""Products whose operands lie in Mat are cut for Left, Right and Acc; operands the program put there are left alone.

A product becomes a loop over K whose turns move a piece of each operand and multiply, two turns in flight. Where the
accumulator does not fit and the product only leaves it (to GM, or narrowed to Mat), the output is cut too.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from npuscope.chip.devices.chip import Device
from npuscope.lower.model import Instruction, Items, Lowered, Repeat, Value
from npuscope.lower.passes.l0 import HALVES, Cut, Product, choose
from npuscope.lower.sizes import matrix, tile_bytes
from npuscope.ops.dtypes import BY_NAME
from npuscope.ops.transfers import MOVE


def tile_products(lowered: Lowered, device: Device) -> Lowered:
    return _Tiler(lowered, device).tiled()


def product_of(one: Instruction, values: tuple[Value, ...] | list[Value], device: Device) -> Product:
    """A product's sizes, read off its operands."""
    left, right, result = (values[number] for number in (one.operands[1], one.operands[2], one.result))  # type: ignore[index]
    rows, columns = matrix(left.shape)
    deep = rows if one.attribute("a_trans") else columns
    m, n = matrix(result.shape)
    least = int(device.core["acc_rows_int32" if result.dtype == "INT32" else "fractal"].value)
    sizes = [BY_NAME[value.dtype].bytes for value in (left, right)]
    return Product(m, n, deep, sizes[0], sizes[1], 4, least)


class _Tiler:
    def __init__(self, lowered: Lowered, device: Device) -> None:
        self.lowered, self.device = lowered, device
        self.values = list(lowered.values)
        self.loops = next_loop(lowered.items)
        readers = Counter(number for one in lowered.instructions for number in one.reads)
        drained = {one.reads[0] for one in lowered.instructions if one.reads and self._drains(one)}
        self.only_drained = {number for number in drained if readers[number] == 1}
        self.notes = list(lowered.notes)

    def tiled(self) -> Lowered:
        items = self._items(self.lowered.items)
        return replace(self.lowered, items=items, values=tuple(self.values), notes=tuple(self.notes))

    def _items(self, items: Items) -> Items:
        made: list[Instruction | Repeat] = []
        for item in items:
            if isinstance(item, Repeat):
                made.append(replace(item, items=self._items(item.items)))
            elif item.plane == "cube" and any(self._in_mat(number) for number in item.operands[1:3]):
                made += self._product(item)
            else:
                made.append(item)
        return tuple(made)

    def _drains(self, one: Instruction) -> bool:
        """Whether an accumulator can leave piece by piece: to GM, or narrowed into Mat."""
        to_mat = one.plane == "move" and one.result is not None and self.values[one.result].space == "Mat"
        return one.plane == "store" or to_mat

    def _in_mat(self, number: int | None) -> bool:
        return number is not None and self.values[number].space == "Mat"

    def _product(self, one: Instruction) -> list[Instruction | Repeat]:
        product = product_of(one, self.values, self.device)
        result = self.values[one.result]  # type: ignore[index]
        room = int(self.device.space["Acc"].size.value)
        fits = tile_bytes(result.shape, result.dtype, "Acc", self.device) <= room
        cuts_output = not fits and one.result in self.only_drained and one.operands[0] is None
        cut = choose(product, self.device, whole_output=not cuts_output)
        if cut is None or (cut.m, cut.n, cut.k) == (product.m, product.n, product.k):
            return [*self._turn(one, product, product.m, product.n, product.k, one.flops)]
        if cuts_output:
            self._cut_output(one, cut)
        return self._loop(one, product, cut)

    def _cut_output(self, one: Instruction, cut: Cut) -> None:
        value = self.values[one.result]  # type: ignore[index]
        self.values[value.id] = value._replace(bytes=tile_bytes((cut.m, cut.n), value.dtype, "Acc", self.device))

    def _loop(self, one: Instruction, product: Product, cut: Cut) -> list[Instruction | Repeat]:
        grid = -(-product.m // cut.m) * -(-product.n // cut.n)
        whole, rest = divmod(product.k, cut.k)
        share = one.flops // max(grid * product.k, 1)
        turn = self._turn(one, product, cut.m, cut.n, cut.k, share * cut.k)
        made: list[Instruction | Repeat] = [Repeat("l0", self.loops, HALVES, one.site, whole * grid, tuple(turn))]
        self.loops += 1
        if rest:
            last = tuple(self._turn(one, product, cut.m, cut.n, rest, share * rest))
            made += [Repeat("l0", self.loops, HALVES, one.site, grid, last)] if grid > 1 else last
            self.loops += grid > 1
        return made

    def _turn(self, one: Instruction, product: Product, m: int, n: int, k: int, flops: int) -> list[Instruction]:
        made, operands = [], list(one.operands)
        for place, space, shape in ((1, "Left", (m, k)), (2, "Right", (k, n))):
            number = operands[place]
            if number is None or not self._in_mat(number):
                continue
            new = len(self.values)
            source = self.values[number]
            self.values.append(source._replace(id=new, storage=new, space=space, shape=shape, in_ring=False, bytes=0))
            made.append(Instruction(MOVE.name, MOVE.plane, one.site, (number,), new))
            operands[place] = new
        return [*made, one._replace(operands=tuple(operands), flops=flops)]


def next_loop(items: Items) -> int:
    """A number that no loop has yet."""
    return 1 + max((item.loop for item in _repeats(items)), default=0)


def _repeats(items: Items) -> list[Repeat]:
    found: list[Repeat] = []
    for item in items:
        if isinstance(item, Repeat):
            found += [item, *_repeats(item.items)]
    return found
