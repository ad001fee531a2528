"""Products for the cube: weights that stream through Mat, and tiles cut for Left, Right and Acc.

A product becomes a loop over K whose turns move a piece of each operand and multiply, two turns in flight. Where the
accumulator does not fit and the product only leaves it (to GM, or narrowed to Mat), the output is cut too. The cut is
the one of least time by the chip's formula: cube and loads into Left and Right run side by side, the drain comes after.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from npuscope.chip.devices import Device
from npuscope.lower.chip import matrix, tile_bytes
from npuscope.lower.model import Instruction, Items, Lowered, Repeat, Value, instructions
from npuscope.ops.dtypes import BY_NAME
from npuscope.ops.shaping import SLICE
from npuscope.ops.spec import Role
from npuscope.ops.transfers import MOVE

Floats = npt.NDArray[np.float64]
HALVES = 2  # of Left and Right: one is filled while the other is read


@dataclass(frozen=True, slots=True)
class Product:
    """A product as the cube core sees it: sizes and bytes per element of operands and accumulator."""

    m: int
    n: int
    k: int
    left: int
    right: int
    acc: int
    acc_rows: int  # rows of the accumulator are rounded up to it


@dataclass(frozen=True, slots=True)
class Cut:
    """A tile of the product and what the whole product takes with it, in cycles."""

    m: int
    n: int
    k: int
    cycles: float


def choose(product: Product, device: Device, whole_output: bool) -> Cut | None:
    """The best cut that fits; None where none does. `whole_output`: the accumulator is not to be cut."""
    return _choose(product, tuple(sorted((k, c.value) for k, c in device.core.items())), _sizes(device), whole_output)


def _sizes(device: Device) -> tuple[int, int, int]:
    left, right, acc = (int(device.space[name].size.value) for name in ("Left", "Right", "Acc"))
    return left, right, acc


@lru_cache(maxsize=4096)
def _choose(
    product: Product, constants: tuple[tuple[str, float], ...], sizes: tuple[int, int, int], whole_output: bool
) -> Cut | None:
    core = dict(constants)
    fractal = int(core["fractal"])
    deep = max(fractal, int(core["fractal_k"]) // product.left)
    m, n, k = np.meshgrid(
        _steps(product.m, fractal, whole_output),
        _steps(product.n, fractal, whole_output),
        _steps(product.k, deep, False),
        indexing="ij",
    )
    rows = -(-m // product.acc_rows) * product.acc_rows
    fits = (
        (m * k * product.left * HALVES <= sizes[0])
        & (k * n * product.right * HALVES <= sizes[1])
        & (rows * n * product.acc <= sizes[2])
    )
    if not np.any(fits):
        return None
    m, n, k = m[fits], n[fits], k[fits]
    cycles = cycles_of(product, m, n, k, core)
    # Of equal times fewer steps of K, then the larger tile.
    best = np.lexsort((-m * n, -(-product.k // k), np.round(cycles)))[0]
    return Cut(int(m[best]), int(n[best]), int(k[best]), float(cycles[best]))


def _steps(extent: int, step: int, whole: bool) -> Floats:
    """Multiples of a fractal up to the extent, and the extent itself."""
    if whole or extent <= step:
        return np.array([extent], np.float64)
    return np.unique([*range(step, extent + 1, step), extent]).astype(np.float64)


def cycles_of(product: Product, m: Floats, n: Floats, k: Floats, core: dict[str, float]) -> Floats:
    """Core cycles of the whole product for every cut."""
    fractal = core["fractal"]
    tiles_m, tiles_n = np.ceil(product.m / m), np.ceil(product.n / n)
    blocks = np.ceil(product.k / k)
    per_fractal = core["l0_cycles_fp32"] if product.left == 4 else core["l0_cycles"]
    fractals = np.ceil(product.k / (core["fractal_k"] / product.left))
    mad = (
        tiles_m
        * tiles_n
        * (blocks * core["l0_head"] + per_fractal * np.ceil(m / fractal) * fractals * np.ceil(n / fractal))
    )
    left, right = float(product.left * product.m * product.k), float(product.right * product.k * product.n)
    hold_left = left / core["l0_left"] + right * tiles_m / core["l0_right"]
    hold_right = left * tiles_n / core["l0_left"] + right / core["l0_right"]
    neither = left * tiles_n / core["l0_left"] + right * tiles_m / core["l0_right"]
    load = np.where(k >= product.k, np.minimum(hold_left, hold_right), neither)
    blocks_of_row = np.ceil(n * product.acc / 32)
    row = np.maximum(core["l0_drain_row"], product.acc * n / core["l0_drain"])
    row = row + core["l0_drain_odd"] * (_odd_part(blocks_of_row) - 1)
    drain = tiles_m * tiles_n * (core["l0_drain_fixed"] + m * row)
    cycles: Floats = np.maximum(load, mad) + drain
    return cycles


def _odd_part(numbers: Floats) -> Floats:
    whole = numbers.astype(np.int64)
    return (whole // (whole & -whole)).astype(np.float64)


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
