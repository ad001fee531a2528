"""The compiler's assembly of a kernel as a lowered and planned body, the form that npuscope's own lowering gives.

A mixed kernel is two functions; they are merged so that a tile is pushed before it is popped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from npuscope.chip.devices import Device
from npuscope.lower.assembly_bytes import Ties
from npuscope.lower.assembly_run import KernelRun
from npuscope.lower.assembly_text import AssemblyFile
from npuscope.lower.memory_plan import MemoryPlan
from npuscope.lower.model import CoreKind, Instruction, Items, Lowered, Repeat, instructions
from npuscope.ops.spec import OpRole
from npuscope.ops.transfers import HOLD
from npuscope.tile.record.model import Core


@dataclass(frozen=True)
class Assembly:
    """A kernel's assembly: what runs on the core and where its tiles lie.

    `unknown`: ops that npuscope does not know, with the line of the first and how often they stand in the file.
    `assumed`: what only run-time data decides, by line; `bounded`: where it only decides how large a box is.
    `clobbered`: live tiles that another one is written over.
    """

    kernel: str
    path: Path
    arch: str
    lowered: Lowered
    plan: MemoryPlan
    places: tuple[tuple[str, int], ...]  # file and line of each of the body's lines
    unknown: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    assumed: Mapping[int, str] = field(default_factory=dict)
    clobbered: tuple[tuple[str, str, int], ...] = ()
    addressed: bool = True
    bounded: Mapping[int, str] = field(default_factory=dict)

    @property
    def core(self) -> Core:
        units = {one.unit for one in self.lowered.instructions if one.unit}
        return "MIX" if len(units) > 1 else next(iter(units), "AIV")

    @property
    def notes(self) -> Iterator[str]:
        """Every op that is not known and every place where run-time data decides."""
        for name, (line, count) in self.unknown.items():
            often = f" ({count} times)" if count > 1 else ""
            yield f"{self.path.name}:{line}: {name} is not known, so it takes no time here{often}"
        for line, what in (*self.assumed.items(), *self.bounded.items()):
            yield f"{self.path.name}{f':{line}' if line else ''}: {what}"
        if not self.addressed:
            yield f"{self.path.name}: no addresses in it (the assembler plans), so its tiles are added up"


def assembly_of(file: AssemblyFile, device: Device, scalars: Mapping[str, int] | None = None) -> Assembly:
    """A kernel on a device; `scalars` are arguments by name, without %."""
    known = {"__pypto_spmd_block_idx": 0, "__pypto_spmd_subblock_idx": 0, **(scalars or {})}
    body = KernelRun(file, device)
    parts = [part for function in file.functions if (part := body.function(function, known))]
    by_unit: dict[CoreKind, Items] = {}
    for unit, items in parts:
        by_unit[unit] = (*by_unit.get(unit, ()), *items)
    both = _merged(by_unit["AIC"], by_unit["AIV"], body) if len(by_unit) > 1 else next(iter(by_unit.values()), ())
    return _assembled(body, both)


def _assembled(body: KernelRun, items: Items) -> Assembly:
    """What was gathered, as a planned body."""
    places = tuple(body.lines) or ((str(body.file.path), 1),)
    ties = Ties(body.tiles)
    items = ties.tied(items)
    rings = tuple(body.rings.values())
    lowered = Lowered(body.file.path.stem, 0, tuple(body.tiles.values), items, rings, sites=tuple(range(len(places))))
    named = {name: (body.first[name], count) for name, count in body.unknown.items()}
    addressed = all(tile.address is not None or tile.in_ring for tile in body.tiles.names)
    plan, clobbered = ties.plan(lowered, body.device), tuple(dict.fromkeys(ties.clobbered))
    if body.device.timing and body.device.timing["load_groups"].value:
        lowered = replace(lowered, items=_held(items, False))
    return Assembly(
        body.file.path.stem,
        body.file.path,
        body.file.arch,
        lowered,
        plan,
        places,
        named,
        dict(body.assumed),
        clobbered,
        addressed,
        dict(body.bounded),
    )


# --- turns side by side


def _held(items: Items, turning: bool) -> Items:
    """A vector core's loads of one tile for several turns of a pipelined loop wait until all their slots are free.

    The compiler wrote such turns out: the loop loads equal boxes of a tensor more than once.
    """
    made: list[Instruction | Repeat] = []
    together: dict[object, list[int]] = {}
    for item in items if turning else ():
        if isinstance(item, Instruction) and item.plane == "load" and item.unit == "AIV" and item.result is not None:
            together.setdefault(item.accesses, []).append(item.result)
    for item in items:
        if isinstance(item, Repeat):
            made.append(replace(item, items=_held(item.items, item.count > 1)))
            continue
        if item.plane == "load" and len(set(tiles := together.pop(item.accesses, []))) > 1:
            made.append(Instruction(HOLD.name, HOLD.plane, item.site, tuple(tiles), unit="AIV", pipe="MTE2"))
        made.append(item)
    return tuple(made)


# --- two functions as one


def _merged(cube: Items, vector: Items, body: KernelRun) -> Items:
    """Both in an order in which every tile is pushed before it is popped, and popped before the next push is needed."""
    sides: dict[CoreKind, deque[Instruction | Repeat]] = {"AIC": deque(cube), "AIV": deque(vector)}
    waiting: dict[str, deque[int]] = {"C2V": deque(), "V2C": deque()}  # places of pushes not yet popped
    made: list[Instruction | Repeat] = []
    unit: CoreKind = "AIC"
    stuck = 0
    while any(sides.values()) and stuck < 2:
        queue = sides[unit]
        moved = False
        while queue:
            item = queue[0]
            if isinstance(item, Repeat):
                if not _hands_over(item.items):
                    made.append(queue.popleft())
                    moved = True
                    continue
                queue.popleft()
                if item.count > 1:
                    queue.appendleft(replace(item, count=item.count - 1))
                queue.extendleft(reversed(item.items))
                continue
            way = str(item.attribute("way")) if item.spec.is_a(OpRole.SEND, OpRole.RECEIVE) else ""
            if item.spec.is_a(OpRole.RECEIVE):
                if not waiting[way]:
                    break
                at = waiting[way].popleft()
                given = made[at]
                assert isinstance(given, Instruction)
                made[at] = given._replace(attributes=(("way", way), ("tile", item.result)))
                item = item._replace(attributes=(("way", way), ("tile", item.result)))
            made.append(queue.popleft())
            made[-1] = item
            body.count()
            moved = True
            if item.spec.is_a(OpRole.SEND):
                waiting[way].append(len(made) - 1)
                break  # let the other side take it first
        stuck = 0 if moved else stuck + 1
        unit = "AIV" if unit == "AIC" else "AIC"
    left = sum(1 for queue in sides.values() for item in queue for _ in instructions((item,)))
    if left:
        body.assumed[0] = f"cube and vector core wait for each other: {left} instructions are not counted"
    unpopped = {at for places in waiting.values() for at in places}
    return tuple(one for n, one in enumerate(made) if n not in unpopped)


def _hands_over(items: Items) -> bool:
    return any(one.spec.is_a(OpRole.SEND, OpRole.RECEIVE) for one in instructions(items))
