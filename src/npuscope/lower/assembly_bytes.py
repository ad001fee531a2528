"""Where an assembly's tiles lie: names for the same bytes are tied together, slots and lifetimes follow from addresses.

A name is a value of its own in the bytes that the compiler gave it. Where one is read after another of the same bytes
was written, a view ties the two; names that share bytes share a slot. So the core model orders all that touches the
same bytes, as the flags do that the assembler puts in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from npuscope.chip.devices import Device
from npuscope.lower.assembly_text import TileBuffer
from npuscope.lower.memory_plan import Lifetime, MemoryPlan, Slot, SpacePlan, Tenant, lifetimes
from npuscope.lower.model import CoreKind, Instruction, Items, Lowered, Repeat, Value, instructions
from npuscope.ops.shaping import RESHAPE

SPACES = {"vec": "Vec", "mat": "Mat", "left": "Left", "right": "Right", "acc": "Acc", "bias": "Bias"}
DTYPES = {
    "f32": "FP32", "f16": "FP16", "bf16": "BF16", "i8": "INT8", "ui8": "UINT8", "i16": "INT16", "ui16": "UINT16",
    "i32": "INT32", "ui32": "UINT32", "i64": "INT64", "ui64": "UINT64",
}  # fmt: skip
SIZES = {"FP32": 4, "INT32": 4, "UINT32": 4, "INT64": 8, "UINT64": 8, "INT8": 1, "UINT8": 1}  # others take two bytes


@dataclass(frozen=True, slots=True)
class TileName:
    """A name for bytes on chip; `address` None where the compiler left it to the assembler."""

    name: str
    buffer: TileBuffer
    address: int | None
    valid: tuple[int, int]
    line: int
    source: tuple[str, int] | None
    size: int  # bytes from its first to its last
    stride: int  # elements from row to row
    in_ring: bool = False
    root: str = ""  # the tile that it is a window of
    somewhere: bool = False  # in it: only run time says where


def python_name(name: str) -> str:
    """What the program calls a tile: the compiler's name without its own endings."""
    return re.split(r"__(?:tile|ssa|rv|iter|idx|phi|tmp|co|rm|row)|_inline\d+|_l0_", name.lstrip("%"))[0]


def size_of(dtype: str) -> int:
    if dtype.startswith(("!pto.", "f8", "f4")):
        return 1
    return SIZES.get(DTYPES.get(dtype, ""), 2)


def bytes_of(buffer: TileBuffer) -> int:
    return buffer.rows * buffer.columns * size_of(buffer.dtype)


class Tiles:
    """The tiles of all functions of a file, a value each; `ends`: how far those of a function reach in each space."""

    def __init__(self) -> None:
        self.values: list[Value] = []
        self.names: list[TileName] = []
        self.units: list[CoreKind] = []
        self.reserved: dict[str, int] = {}  # bytes at the head of a space that are the ring's
        self.ends: dict[tuple[str, CoreKind], int] = {}
        self._numbers: dict[tuple[CoreKind, TileName], int] = {}

    def value(self, tile: TileName, unit: CoreKind, site: int) -> int:
        key = unit, tile
        if key not in self._numbers:
            number = self._numbers[key] = len(self.values)
            buffer = tile.buffer
            size = 0 if tile.in_ring else bytes_of(buffer)
            space, dtype = SPACES.get(buffer.space, buffer.space), DTYPES.get(buffer.dtype, "UINT8")
            name = python_name(tile.name)
            self.values.append(Value(number, name, tile.valid, dtype, site, number, space, size, tile.in_ring))
            self.names.append(tile)
            self.units.append(unit)
        return self._numbers[key]


class Ties:
    """Which names share bytes, and where a write through one makes what is read through another."""

    def __init__(self, tiles: Tiles) -> None:
        self.tiles = tiles
        self.clobbered: list[tuple[str, str, int]] = []
        self.written: set[str] = set()  # tiles that are written by their own name, not only seen by another
        spans = [self._span(n) for n in range(len(tiles.values))]
        self.near: list[
            list[tuple[int, bool]]
        ] = []  # of each value: others that share bytes, and whether it covers them
        for n, (place, start, end) in enumerate(spans):
            self.near.append(
                [
                    (m, start <= other_start and other_end <= end)
                    for m, (other, other_start, other_end) in enumerate(spans)
                    if m != n and other == place and other_start < end and start < other_end
                ]
            )
        self.spans = spans

    def _span(self, n: int) -> tuple[str, int, int]:
        value, tile = self.tiles.values[n], self.tiles.names[n]
        size = max(tile.size, 1)
        if tile.address is None:  # a place of its own, which its windows share
            return f"{self.tiles.units[n]} {tile.root or tile.name}", 0, size
        return f"{self.tiles.units[n]} {value.space}", tile.address, tile.address + size

    def tied(self, items: Items) -> Items:
        roots = (self._root(one.result) for one in instructions(items) if one.result is not None)
        self.written = set(roots)
        made, _, _ = self._walk(items, frozenset(), frozenset())
        return made

    def _root(self, n: int) -> str:
        return self.tiles.names[n].root or self.tiles.names[n].name

    def _walk(
        self, items: Items, live: frozenset[int], needed: frozenset[str]
    ) -> tuple[Items, frozenset[int], frozenset[str]]:
        """Backwards: `live` values are read before all of them is written again, `needed` tiles before any of them."""
        made: list[Instruction | Repeat] = []
        for item in reversed(items):
            if isinstance(item, Repeat):
                inner, before, wanted = self._walk(item.items, live, needed)
                if item.count > 1:
                    inner, before, wanted = self._walk(item.items, live | before, needed | wanted)
                live, needed = before, wanted
                made.append(replace(item, items=inner))
                continue
            if item.result is not None:
                covered = {item.result}
                for other, whole in self.near[item.result]:
                    if other in live:
                        reads = (item.result,) if whole else (other, item.result)
                        made.append(Instruction(RESHAPE.name, "view", item.site, reads, other, unit=item.unit))
                        self._clobber(item, other, needed)
                        covered |= {other} if whole else set()
                live, needed = live - covered, needed - {self._root(item.result)}
            made.append(item)
            live, needed = live | set(item.reads), needed | {self._root(number) for number in item.reads}
        return tuple(reversed(made)), live, needed

    def _clobber(self, one: Instruction, other: int, needed: frozenset[str]) -> None:
        """Notes a tile that is still read by its own name after part of its bytes became another tile's.

        Not where the new tile is made of the old one, in its place, nor where what is read may lie beside it.
        """
        assert one.result is not None
        new, old = self._root(one.result), self._root(other)
        if old == new or old not in needed or old not in self.written or self.spans[one.result] == self.spans[other]:
            return
        if old not in map(self._root, one.reads) and not self.tiles.names[other].somewhere:
            self.clobbered.append((python_name(old), python_name(new), one.site))

    def plan(self, lowered: Lowered, device: Device) -> MemoryPlan:
        """Where the compiler put every tile; tiles that share bytes share a slot."""
        lives = lifetimes(lowered).found
        groups: dict[str, list[int]] = {}
        for n, (place, _, _) in enumerate(self.spans):
            if n in lives and not self.tiles.values[n].in_ring:
                groups.setdefault(place if self.tiles.names[n].address is not None else f"{place} alone", []).append(n)
        slots: dict[tuple[str, CoreKind], list[Slot]] = {}
        ends: dict[tuple[str, CoreKind], int] = {}
        for key in self.tiles.ends:
            slots[key] = []
        for place, numbers in groups.items():
            unit = self.tiles.units[numbers[0]]
            key = self.tiles.values[numbers[0]].space, unit
            base = ends.get(key, 0) if place.endswith(" alone") else 0
            for slot, end in self._slots(numbers, lives, base):
                slots.setdefault(key, []).append(slot)
                ends[key] = max(ends.get(key, 0), end)
        for space, size in self.tiles.reserved.items():
            key = space, "AIV" if space == "Vec" else "AIC"
            slots.setdefault(key, [])
            ends[key] = max(ends.get(key, 0), size)
        ends |= {key: max(end, ends.get(key, 0)) for key, end in self.tiles.ends.items()}
        limits = {space: int(one.size.value) for space, one in device.space.items()}
        return tuple(
            SpacePlan(
                space, unit, end := ends[space, unit], limits.get(space, end), self.tiles.reserved.get(space, 0),
                tuple(sorted(found)),
            )
            for (space, unit), found in slots.items()
        )  # fmt: skip

    def _slots(self, numbers: list[int], lives: Mapping[int, Lifetime], base: int) -> Iterator[tuple[Slot, int]]:
        found: list[int] = []
        end = start = 0
        for n in [*sorted(numbers, key=lambda n: self.spans[n][1:]), None]:
            if found and (n is None or self.spans[n][1] >= end):
                tenants = tuple(self._tenant(m, lives) for m in found)
                yield Slot(base + start, end - start, tenants), base + end
                found = []
            if n is not None:
                start = self.spans[n][1] if not found else start
                end = max(self.spans[n][2], end if found else 0)
                found.append(n)

    def _tenant(self, n: int, lives: Mapping[int, Lifetime]) -> Tenant:
        life = lives[n]
        return Tenant(self.tiles.values[n], life.first, life.last)
