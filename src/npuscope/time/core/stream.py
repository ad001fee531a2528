"""A lowered body as arrays: what the interpreter of one core runs. Nothing here depends on time.

One row per instruction, and per begin and end of a loop. Values have a readiness per copy (turns in flight have their
own), storages a slot per copy, which is busy until its last reader is done. Of elements that the scalar unit reads the
first of a line waits for GM, the others do not: the core's data cache begins empty and holds all lines of a block.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from npuscope.base.errors import NpuscopeError
from npuscope.base.files import cached
from npuscope.chip.devices import Device
from npuscope.lower.model import Instruction, Items, Lowered, instructions
from npuscope.lower.program import KIND, PlannedBody, device_content
from npuscope.ops.spec import OpRole
from npuscope.ops.transfers import DEFER_WAIT, NOTIFY, WAIT
from npuscope.time.core.costs import NS, Cost, cost_of, hand_over, moved_far, signal_cost

PIPES = ("MTE2", "MTE1", "M", "FIXP", "S", "MTE2", "V", "MTE3", "S")  # the cube core's, then a vector core's
UNITS = ("AIC",) * 5 + ("AIV",) * 4
PLACE = {(unit, pipe): n for n, (unit, pipe) in enumerate(zip(UNITS, PIPES, strict=True))}
RUN, VIEW, BEGIN, END, CARRY_IN, CARRY_ROUND, BARRIER, HOLD = range(8)
# columns of `costs`: the pipe is taken for FIXED and for NEAR (out of L2) or FAR (out of HBM); the scalar unit takes
# ISSUE to give it (of a loop, a turn); its result is there LATENCY later. Where HBM is slowed down, NEAR and LATENCY
# grow by CROWDING times as much
FIXED, NEAR, ISSUE, LATENCY, FAR, CROWDING = range(6)
READS = 8  # tiles that an instruction reads at most
LOADED, STORED = 4 + READS, 5 + READS  # columns of `code`: the tensor in GM that is read, and that is written; or -1
DEEP = 4  # most pipelined loops around a storage
MOST_NESTED = 32  # loops

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class Message(NamedTuple):
    """What a block tells another rank, or waits to be told: about a counter of a window, by its bytes.

    `sign`: "set" and "add" change the counter of `peer` (-1: its own) to or by `value`; "ge" and "eq" wait for it, and
    then take `takes` off it. A `value` that only run-time data decides is None.
    """

    sign: str
    window: int
    cell: int
    value: int | None
    peer: int = -1
    takes: int = 0
    deferred: bool = False  # the core does not wait, the task does
    site: int = -1  # where in the source: index into the body's lines, then into the recording's

    @property
    def waits(self) -> bool:
        return self.sign in ("ge", "eq")


@dataclass(frozen=True)
class InstructionStream:
    """`code` rows: kind, pipe, result, loop or count (of an instruction 1 if it takes from the ring), then operands,
    then tensors in GM.

    `costs` rows, in nanoseconds: see the columns FIXED to CROWDING.
    """

    code: Ints
    costs: Floats
    storage: Ints  # of each value
    copies: Ints  # of each storage: how many slots it turns through
    turns: Ints  # of each storage: loop and depth, pairwise, outermost first; -1 where there is none
    slots: Ints  # slot of each copy of each storage, from `first_slot`
    first_slot: Ints
    loops: int
    sites: Ints  # of each row
    read: int  # bytes of GM in whole lines, over the whole body; what is added to is read as well
    written: int
    names: tuple[str, ...] = ()  # of each row: the op and the tile it makes or reads
    places: tuple[tuple[str, str], ...] = ()  # of each row: the constants of its cost and of its latency
    barriers: int = 0  # that a block comes to
    groups: int = 0  # bits of the pipes whose results wait for all slots of the turns before
    spent: Mapping[tuple[str, str], float] = field(
        default_factory=dict
    )  # op, or "", and place of a cost -> nanoseconds
    drawn: float = 0.0  # bytes for which HBM is taken where nothing is in L2
    messages: tuple[Message | None, ...] = ()  # in the order in which a block comes to them; None is a barrier
    remote: int = 0  # transfers from and to other ranks
    remote_bytes: int = 0

    @property
    def stops(self) -> tuple[Message, ...]:
        return tuple(one for one in self.messages if one is not None)

    def exchanges(self, rank: int) -> bool:
        """Whether a block of this rank has to do with other ranks and does not multiply."""
        multiplies = np.any((self.code[:, 0] == RUN) & (self.code[:, 1] == PLACE["AIC", "M"]))
        others = any(one.waits or one.peer not in (-1, rank) for one in self.stops)
        return (others or self.remote > 0) and not multiplies


class KnownReads(NamedTuple):
    """What is known of the tensors that a body reads.

    `fresh`: of each scalar read's access how many lines it is the first to touch; unknown, every one is fresh. `made`:
    the arguments that earlier tasks of the run have written.
    """

    fresh: Mapping[int, int] = {}
    made: frozenset[int] = frozenset()


def stream_of(body: PlannedBody, device: Device, known: KnownReads = KnownReads()) -> InstructionStream:
    return _located(_StreamWriter(body, device, known).stream(), body)


def _located(stream: InstructionStream, body: PlannedBody) -> InstructionStream:
    """With the recording's numbers of lines in place of the body's."""
    sites = np.array(body.lowered.sites, np.int64)
    if not len(sites):
        return stream
    messages = tuple(one and one._replace(site=int(sites[one.site])) for one in stream.messages)
    return replace(stream, sites=sites[stream.sites], messages=messages)


class _StreamWriter:
    def __init__(self, body: PlannedBody, device: Device, known: KnownReads) -> None:
        self.body, self.device, self.known = body, device, known
        self.lowered: Lowered = body.lowered
        self.rows: list[tuple[int, ...]] = []
        self.costs: list[tuple[float, ...]] = []
        self.sites: list[int] = []
        self.names: list[str] = []
        self.places: list[tuple[str, str]] = []
        self.read = self.written = self.barriers = 0
        self.drawn = 0.0
        assert device.clock is not None
        names = ("scalar_step", "scalar_access", "scalar_turn", "barrier")
        cycles = (device.timing[name].value * (NS / device.clock.core.value) for name in names)
        self.step, self.access, self.turn, self.barrier = cycles
        self.spent: dict[tuple[str, str], float] = defaultdict(float)
        self.messages: list[Message | None] = []
        self.remote = self.remote_bytes = 0
        self.loops = self.nested = 0
        self.in_order = device.timing["store_order"].value != 0

    def stream(self) -> InstructionStream:
        self._items(self.lowered.items, 1, 1)
        storage = np.array([value.storage for value in self.lowered.values] or [0], np.int64)
        copies, turns, first, slots = self._slots(max(len(self.lowered.values), 1))
        return InstructionStream(
            np.array(self.rows or [(VIEW, -1, -1, 0, *(-1,) * (READS + 2))], np.int64),
            np.array(self.costs or [(0.0,) * 6], np.float64),
            storage,
            copies,
            turns,
            slots,
            first,
            self.loops + 1,
            np.array(self.sites or [0], np.int64),
            self.read,
            self.written,
            tuple(self.names),
            tuple(self.places),
            self.barriers,
            1 << PLACE["AIV", "MTE2"] if self.device.timing["load_groups"].value else 0,
            self.spent,
            self.drawn,
            tuple(self.messages),
            self.remote,
            self.remote_bytes,
        )

    def _items(self, items: Items, times: int, met: int) -> None:
        """`times`: how often the items are gone through on all lanes, `met`: on one of them."""
        for item in items:
            if isinstance(item, Instruction):
                self.barriers += met * item.spec.is_a(OpRole.BARRIER)
                self._instruction(item, times)
                continue
            self.loops = max(self.loops, item.loop)
            for carry in item.carries:
                if carry.first is not None:
                    self._row((CARRY_IN, -1, carry.value, 0), (carry.first,), item.site)
            turns = 1 if item.kind == "split_aiv" else item.count  # both lanes at once, each on its own vector core
            self._row((BEGIN, item.loop, -1, turns), (), item.site)
            self.nested += 1
            if self.nested > MOST_NESTED:
                raise self._too_much(f"more than {MOST_NESTED} loops in one another")
            before = len(self.messages)
            self._items(item.items, times * item.count, met * turns)
            self.messages += self.messages[before:] * (turns - 1)
            self.nested -= 1
            for carry in item.carries:
                self._row((CARRY_ROUND, -1, carry.value, 0), (carry.next,), item.site)
            turn, place = (self.turn, "scalar_turn") if only_scalars(item.items) else (self.step, "scalar_step")
            self.spent["", f"timing.{place}"] += turn * times * item.count
            self._row((END, item.loop, -1, turns), (), item.site, issue=turn)

    def _instruction(self, one: Instruction, times: int) -> None:
        result = -1 if one.result is None else one.result
        reads = list(dict.fromkeys(one.reads))
        if one.spec.is_a(OpRole.SEND):
            result = one.attribute("tile")  # type: ignore[assignment]
        elif one.spec.is_a(OpRole.RECEIVE):
            reads = [result]
        if one.spec.is_a(OpRole.BARRIER):
            self.spent["", "timing.barrier"] += self.barrier * times
            self.messages.append(None)
            self._row((BARRIER, -1, -1, 0), (), one.site, Cost(self.barrier))
            return
        if one.spec.is_a(OpRole.HOLD) and one.unit is not None and one.pipe is not None:
            for n in range(0, len(reads), READS):
                self._row((HOLD, PLACE[one.unit, one.pipe], -1, 0), tuple(reads[n : n + READS]), one.site)
            return
        if one.spec in SIGNALS:
            self._stop(one, times)
            return
        self.remote += times * (one.attribute("peer") is not None)
        self.remote_bytes += times * moved_far(one, self.lowered)
        if one.pipe is None or one.unit is None:
            self._row((VIEW, -1, result, 0), tuple(reads), one.site)
            return
        cost = cost_of(one, self.lowered, self.device, self.known.made)
        issue = self.step
        if one.pipe == "S":
            issue = self.access
            cost = replace(cost, fixed=cost.fixed * self.known.fresh.get(one.first_access, times) / times)
        self.spent["", "timing.scalar_access" if one.pipe == "S" else "timing.scalar_step"] += issue * times
        if one.spec.is_a(OpRole.SEND):
            self.spent["", f"timing.{hand_over(one)}"] += cost.latency * times
        if cost.place:
            self.spent[one.name, cost.place] += (cost.fixed + cost.memory) * times
        adds = one.plane == "store" and any(access.mode == "add" for access in one.accesses)
        if one.plane == "load" or adds:
            self.read += cost.lines * times
            self.drawn += (cost.lines if adds else cost.drawn) * times
        if one.plane == "store":
            self.written += cost.lines * times
        if (one.unit, one.pipe) not in PLACE:
            raise NpuscopeError(
                f"{self.body.kernel} cannot be timed: {one.name} would need a pipe {one.pipe} on the {one.unit}",
                remedy="npuscope check names the line, and the way that the chip has.",
            )
        taken = int(one.spec.is_a(OpRole.RECEIVE))
        place = PLACE[one.unit, one.pipe]
        self._row((RUN, place, result, taken), tuple(reads), one.site, cost, issue, self._tensors(one))
        tile = one.result if one.result is not None else next(iter(one.reads), None)
        self.places[-1] = _ruling_place(one, cost), _latency_place(one)
        self.names[-1] = one.name if tile is None else f"{one.name} {self.lowered.values[tile].name}"
        if one.attribute("window") is not None:  # a counter that other ranks see is written
            self._stop(one, times, Cost(0.0))

    def _stop(self, one: Instruction, times: int, cost: Cost | None = None) -> None:
        """A block tells another rank something or waits for it, when all that it did before is done."""
        cost = signal_cost(one, self.device) if cost is None else cost
        if one.attribute("window") is None:  # nothing is known of the ranks, as of the compiler's own output
            self._row((VIEW, -1, -1, 0), (), one.site)
            return
        if cost.place:
            self.spent[one.name, cost.place] += cost.fixed * times
        self.messages.append(_message(one))
        self._row((BARRIER, -1, -1, 0), (), one.site, cost)
        self.names[-1] = one.name

    def _tensors(self, one: Instruction) -> tuple[int, int]:
        """The tensor in this rank's GM that an instruction reads, and the one it writes: -1 for none.

        The cube core's drains have such barriers, too, but are measured as if they had none (row pl741).
        """
        if not self.in_order or one.pipe == "FIXP" or one.attribute("peer") is not None:
            return -1, -1
        read = (access.argument for access in one.accesses if access.mode == "read")
        written = (access.argument for access in one.accesses if access.mode != "read")
        return next(read, -1), next(written, -1)

    def _row(
        self,
        head: tuple[int, ...],
        reads: tuple[int, ...],
        site: int,
        cost: Cost = Cost(0.0),
        issue: float = 0.0,
        tensors: tuple[int, int] = (-1, -1),
    ) -> None:
        if len(reads) > READS:
            raise self._too_much(f"an instruction reads {len(reads)} tiles, {READS} at most")
        self.rows.append((*head, *reads, *(-1,) * (READS - len(reads)), *tensors))
        self.costs.append((cost.fixed, cost.memory, issue, cost.latency, cost.far, cost.crowding))
        self.sites.append(site)
        self.names.append("")
        self.places.append(("", ""))

    def _too_much(self, what: str) -> NpuscopeError:
        return NpuscopeError(f"{self.body.kernel} cannot be timed: {what}", remedy="Please report it.")

    def _slots(self, count: int) -> tuple[Ints, Ints, Ints, Ints]:
        """Where the plan put each copy of each storage; what lies in the ring turns through the ring's slots."""
        copies = np.ones(count, np.int64)
        turns = np.full((count, 2 * DEEP), -1, np.int64)
        places: dict[int, dict[tuple[int, ...], int]] = {}
        number = 0
        for space in self.body.plan:
            for slot in space.slots:
                for tenant in slot.tenants:
                    storage = tenant.value.storage
                    places.setdefault(storage, {})[tuple(turn for _, turn, _ in tenant.turns)] = number
                    if len(tenant.turns) > DEEP:
                        raise self._too_much(f"{len(tenant.turns)} pipelined loops around one tile, {DEEP} at most")
                    for n, (loop, _, depth) in enumerate(tenant.turns):
                        turns[storage, 2 * n : 2 * n + 2] = loop, depth
                number += 1
        ring = {ring.space: ring.slots for ring in self.lowered.rings}
        first = np.zeros(count, np.int64)
        slots: list[int] = []
        for storage in range(count):
            first[storage] = len(slots)
            value = self.lowered.values[storage] if self.lowered.values else None
            if storage in places:
                found = [places[storage][key] for key in sorted(places[storage])]
            elif value is not None and value.in_ring:
                depth = ring.get(value.space, 1)
                found = list(range(number, number + depth))
                number += depth
                turns[storage, 0:2] = -2, depth  # turns by how often it was pushed
            else:
                found = [number]
                number += 1
            copies[storage] = len(found)
            slots += found
        return copies, turns, first, np.array(slots or [0], np.int64)


SIGNALS = (NOTIFY, WAIT, DEFER_WAIT)


def _message(one: Instruction) -> Message:
    given: dict[str, Any] = dict(one.attributes)
    sign = given.get("op") or given.get("cmp") or "set"
    peer, takes = given.get("peer", -1), given.get("takes", 0)
    return Message(sign, given["window"], given["cell"], given["value"], peer, takes, one.spec is DEFER_WAIT, one.site)


def _ruling_place(one: Instruction, cost: Cost) -> str:
    """The constant that most of an instruction's time is from: of short transfers their fixed time."""
    if one.plane in ("load", "store") and cost.fixed > cost.memory:
        return f"timing.{one.plane}_fixed"
    return cost.place


def _latency_place(one: Instruction) -> str:
    if one.spec.is_a(OpRole.SEND):
        return f"timing.{hand_over(one)}"
    return "timing.load_latency" if one.pipe == "MTE2" else "timing.store_latency"


def only_scalars(items: Items) -> bool:
    """Whether a loop gives the pipes nothing to do: its turns are a few instructions of the scalar unit."""
    return all(one.pipe in ("S", None) and one.plane != "sync" for one in instructions(items))


def fresh_lines(
    lowered: Lowered, offsets: Sequence[npt.NDArray[np.int64]], sizes: Sequence[float], line: int
) -> dict[int, int]:
    """Of each access of a scalar read, how many lines it is the first to touch in the first block of a group.

    `sizes`: bytes of an element of each argument.
    """
    seen: dict[int, set[int]] = {}
    found: dict[int, int] = {}
    for one in lowered.instructions:
        if one.pipe != "S" or one.first_access < 0 or all(access.mode != "read" for access in one.accesses):
            continue
        (access, *_) = one.accesses
        lines = np.unique(offsets[one.first_access][..., 0] * sizes[access.argument] // line).tolist()
        known = seen.setdefault(access.argument, set())
        found[one.first_access] = len(set(lines) - known)
        known.update(lines)
    return found


class CachedStreams:
    """Streams on one chip, kept between runs beside the bodies that they are made of."""

    def __init__(self, device: Device) -> None:
        self.device, self._chip = device, device_content(device)

    def stream(self, body: PlannedBody, known: KnownReads) -> InstructionStream:
        """As `stream_of` makes it."""
        if body.content is None:
            return stream_of(body, self.device, known)
        told = "stream", body.content, sorted(known.fresh.items()), sorted(known.made)
        key = sha256(repr(told).encode() + self._chip).hexdigest()
        return _located(cached(KIND, key, lambda: _StreamWriter(body, self.device, known).stream()), body)
