"""Products for the cube: weights that stream through Mat, and tiles cut for Left, Right and Acc.

A product becomes a loop over K whose turns move a piece of each operand and multiply, two turns in flight. Where the
accumulator does not fit and the product only leaves it (to GM, or narrowed to Mat), the output is cut too. The cut is
the one of least time by the chip's formula: cube and loads into Left and Right run side by side, the drain comes after.

Before that, weights stream: a call such as `matmul_dual_acc(acc_a, acc_b, x, w_a, w_b)` is given both weights whole,
which would keep both in Mat at once. Every tile that only products read is loaded right before the first of them, so
that outside pipelined loops (which load ahead on purpose) the weights take turns in one buffer while both accumulators
stay live. Weights of a dual product that are too large for Mat come in parts of K: each turn loads a part of the first
and multiplies, then a part of the second, so that four parts (two weights, two turns in flight) and the left operand
fit. Both accumulators stay in Acc for all turns and leave it by their own stores.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from npuscope.chip.devices import Device
from npuscope.lower.chip import matrix, tile_bytes
from npuscope.lower.model import Instruction, Items, Lowered, Repeat, Value, add_value, instructions, rewritten
from npuscope.ops.dtypes import BY_NAME
from npuscope.ops.shaping import SLICE
from npuscope.ops.spec import OpRole
from npuscope.ops.transfers import MOVE

Floats = npt.NDArray[np.float64]
HALVES = 2  # of Left and Right: one is filled while the other is read
IN_FLIGHT = 2  # turns of a loop over parts of K


def stream(lowered: Lowered, device: Device) -> Lowered:
    """Right operands of products are loaded when they are needed, and in parts where they do not fit."""
    if any(one.spec.is_a(OpRole.DUAL) for one in lowered.instructions):
        streamer = _DualStreamer(lowered, device)
        items = streamer.items(lowered.items)
        lowered = replace(lowered, items=items, values=tuple(streamer.values))
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
        numbers = (number for one in instructions((item,)) for number in (*one.reads, one.result))
        touched = {values[number].storage for number in numbers if number is not None}
        made += [waiting.pop(storage) for storage in tuple(waiting) if storage in touched]
        if isinstance(item, Instruction) and item.plane in ("store", "sync"):
            made += waiting.values()  # what it writes may be what a load reads
            waiting.clear()
        made.append(item)
    return (*made, *waiting.values())


class _DualStreamer:
    def __init__(self, lowered: Lowered, device: Device) -> None:
        self.device = device
        self.values = list(lowered.values)
        self.readers = Counter(number for one in lowered.instructions for number in one.reads)
        self.loop = _next_loop(lowered.items)

    def items(self, items: Items) -> Items:
        made: list[Instruction | Repeat] = []
        pair: Instruction | None = None  # the first of two products of one left operand
        for item in items:
            if isinstance(item, Repeat):
                made.append(replace(item, items=self.items(item.items)))
            elif pair is not None and item.spec.is_a(OpRole.DUAL) and pair.operands[1] == item.operands[1]:
                made = self._in_parts(made[:-1], pair, item) or [*made, item]
                pair = None
                continue
            else:
                made.append(item)
            pair = item if isinstance(item, Instruction) and item.spec.is_a(OpRole.DUAL) else None
        return tuple(made)

    def _in_parts(
        self, before: list[Instruction | Repeat], one: Instruction, other: Instruction
    ) -> list[Instruction | Repeat]:
        """The instructions before and the loop in place of the pair; none where the weights fit, or are not loads."""
        loads = [load for product in (one, other) if (load := self._load(before, product.operands[2])) is not None]
        part = self._part(one)
        if part is None or len(loads) < 2:
            return []
        turn = [
            piece
            for product, load in zip((one, other), loads, strict=True)
            for piece in self._turn(product, load, part)
        ]
        count = product_of(one, self.values, self.device).k // part
        self.loop += 1
        rest = [item for item in before if item not in loads]
        return [*rest, Repeat("pipeline", self.loop - 1, IN_FLIGHT, one.site, count, tuple(turn))]

    def _load(self, before: list[Instruction | Repeat], number: int | None) -> Instruction | None:
        """The load of a weight that nothing else reads."""
        for item in before:
            if isinstance(item, Instruction) and item.plane == "load" and item.result == number:
                return item if number is not None and self.readers[number] == 1 else None
        return None

    def _part(self, one: Instruction) -> int | None:
        """The largest part of K with which everything fits; None where both weights fit whole, one after the other."""
        product = product_of(one, self.values, self.device)
        left, right = (self.values[number] for number in one.operands[1:3])  # type: ignore[index]
        room = int(self.device.space["Mat"].size.value) - tile_bytes(left.shape, left.dtype, "Mat", self.device)
        if tile_bytes(right.shape, right.dtype, "Mat", self.device) <= room:
            return None
        step = max(int(self.device.core["fractal"].value), int(self.device.core["fractal_k"].value) // product.right)
        sizes = [k for k in range(step, product.k, step) if product.k % k == 0]
        return max((k for k in sizes if 2 * IN_FLIGHT * k * product.n * product.right <= room), default=None)

    def _turn(self, product: Instruction, load: Instruction, part: int) -> list[Instruction]:
        left, right = self.values[product.operands[1]], self.values[load.result]  # type: ignore[index]
        deep = product_of(product, self.values, self.device).k

        def cut(shape: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(part if extent == deep else extent for extent in shape)

        piece = add_value(self.values, right, shape=cut(right.shape))
        view = add_value(self.values, left, shape=cut(left.shape), storage=left.storage)
        accesses = tuple(access._replace(shape=cut(access.shape)) for access in load.accesses)
        operands = (product.operands[0], view, piece, *product.operands[3:])
        return [
            load._replace(result=piece, accesses=accesses),
            Instruction(SLICE.name, "view", product.site, (left.id,), view),
            product._replace(operands=operands, flops=product.flops * part // deep),
        ]


def _next_loop(items: Items) -> int:
    """A number that no loop has yet."""
    inner = (max(item.loop + 1, _next_loop(item.items)) for item in items if isinstance(item, Repeat))
    return max(inner, default=1)


def tile_products(lowered: Lowered, device: Device) -> Lowered:
    """Products whose operands lie in Mat, cut for Left, Right and Acc; others are left as the program put them."""
    tiler = _Tiler(lowered, device)
    items = rewritten(lowered.items, tiler.product)
    return replace(lowered, items=items, values=tuple(tiler.values))


def product_of(one: Instruction, values: Sequence[Value], device: Device) -> Product:
    """A product's sizes, read off its operands."""
    left, right, result = (values[number] for number in (one.operands[1], one.operands[2], one.result))  # type: ignore[index]
    rows, columns = matrix(left.shape)
    deep = rows if one.attribute("a_trans") else columns
    m, n = matrix(result.shape)
    least = int(device.core["acc_rows_int32" if result.dtype == "INT32" else "fractal"].value)
    return Product(m, n, deep, BY_NAME[left.dtype].bytes, BY_NAME[right.dtype].bytes, 4, least)


class _Tiler:
    def __init__(self, lowered: Lowered, device: Device) -> None:
        self.device = device
        self.values = list(lowered.values)
        self.loops = _next_loop(lowered.items)
        readers = Counter(number for one in lowered.instructions for number in one.reads)
        drained = {one.reads[0] for one in lowered.instructions if one.reads and self._drains(one)}
        self.only_drained = {number for number in drained if readers[number] == 1}

    def _drains(self, one: Instruction) -> bool:
        """Whether an accumulator can leave piece by piece: to GM, or narrowed into Mat."""
        return one.plane == "store" or (one.plane == "move" and self._in_mat(one.result))

    def _in_mat(self, number: int | None) -> bool:
        return number is not None and self.values[number].space == "Mat"

    def product(self, one: Instruction) -> list[Instruction | Repeat]:
        """What comes in place of an instruction: itself, or the product that it is in pieces."""
        if one.plane != "cube" or not any(self._in_mat(number) for number in one.operands[1:3]):
            return [one]
        product = product_of(one, self.values, self.device)
        result = self.values[one.result]  # type: ignore[index]
        room = int(self.device.space["Acc"].size.value)
        fits = tile_bytes(result.shape, result.dtype, "Acc", self.device) <= room
        cuts_output = not fits and one.result in self.only_drained and one.operands[0] is None
        cut = choose(product, self.device, whole_output=not cuts_output)
        if cut is None or (cut.m, cut.n, cut.k) == (product.m, product.n, product.k):
            return [*self._turn(one, product.m, product.n, product.k, one.flops)]
        if cuts_output:
            size = tile_bytes((cut.m, cut.n), result.dtype, "Acc", self.device)
            self.values[result.id] = result._replace(bytes=size)
        return self._loop(one, product, cut)

    def _loop(self, one: Instruction, product: Product, cut: Cut) -> list[Instruction | Repeat]:
        grid = -(-product.m // cut.m) * -(-product.n // cut.n)
        whole, rest = divmod(product.k, cut.k)
        share = one.flops // max(grid * product.k, 1)
        turn = self._turn(one, cut.m, cut.n, cut.k, share * cut.k)
        made: list[Instruction | Repeat] = [Repeat("l0", self.loops, HALVES, one.site, whole * grid, tuple(turn))]
        self.loops += 1
        if rest:
            last = tuple(self._turn(one, cut.m, cut.n, rest, share * rest))
            made += [Repeat("l0", self.loops, HALVES, one.site, grid, last)] if grid > 1 else last
            self.loops += grid > 1
        return made

    def _turn(self, one: Instruction, m: int, n: int, k: int, flops: int) -> list[Instruction]:
        made, operands = [], list(one.operands)
        for place, space, shape in ((1, "Left", (m, k)), (2, "Right", (k, n))):
            number = operands[place]
            if number is not None and self._in_mat(number):
                source = self.values[number]
                operands[place] = add_value(self.values, source, space=space, shape=shape, in_ring=False, bytes=0)
                made.append(Instruction(MOVE.name, MOVE.plane, one.site, (number,), operands[place]))
        return [*made, one._replace(operands=tuple(operands), flops=flops)]


# --- the cut of least time


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
    constants = tuple(sorted((name, constant.value) for name, constant in device.core.items()))
    sizes = tuple(int(device.space[name].size.value) for name in ("Left", "Right", "Acc"))
    return _choose(product, constants, sizes, whole_output)


@lru_cache(maxsize=4096)
def _choose(
    product: Product, constants: tuple[tuple[str, float], ...], sizes: tuple[int, ...], whole_output: bool
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
    cycles, load = cycles_of(product, m, n, k, core)
    blocks = -(-product.k // k)
    padded = -(-product.m // m) * m * (-(-product.n // n) * n) * (blocks * k)
    # Of equal times what pads least, then the fewest steps of K, cycles of moves, the largest tile (l0_tile_chooser)
    best = np.lexsort((-k, -m * n, load, blocks, padded, np.round(cycles)))[0]
    return Cut(int(m[best]), int(n[best]), int(k[best]), float(cycles[best]))


def _steps(extent: int, step: int, whole: bool) -> Floats:
    """Multiples of a fractal up to the extent, and the extent itself."""
    if whole or extent <= step:
        return np.array([extent], np.float64)
    return np.unique([*range(step, extent + 1, step), extent]).astype(np.float64)


def cycles_of(product: Product, m: Floats, n: Floats, k: Floats, core: dict[str, float]) -> tuple[Floats, Floats]:
    """Core cycles of the whole product for every cut, and those of its moves into Left and Right."""
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
    load: Floats = np.where(k >= product.k, np.minimum(hold_left, hold_right), neither)
    blocks_of_row = np.ceil(n * product.acc / 32)
    row = np.maximum(core["l0_drain_row"], product.acc * n / core["l0_drain"])
    row = row + core["l0_drain_odd"] * (_odd_part(blocks_of_row) - 1)
    drain = tiles_m * tiles_n * (core["l0_drain_fixed"] + m * row)
    return np.maximum(load, mad) + drain, load


def _odd_part(numbers: Floats) -> Floats:
    whole = numbers.astype(np.int64)
    return (whole // (whole & -whole)).astype(np.float64)
