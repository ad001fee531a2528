"""Perfetto's own protobuf trace (.pftrace): a track per lane, slices with arguments, flows for edges, counter tracks.

Slices that cross on one lane would be cut or dropped by Perfetto without a word, so they go to further
tracks of the same name. Every one of several ranks has a clock of its own.
Field numbers are those of perfetto/protos/perfetto/trace/*.proto.

Messages come by the million, so they are rows of optional pieces of fixed width, assembled in NumPy: protobuf lets a
varint be longer than it need be. Every number gets a fixed width, what a row lacks is masked out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from npuscope.base import progress
from npuscope.trace.core import Counts, Trace, note_of
from npuscope.trace.formats import Writer
from npuscope.trace.intervals import Ints, counting, depths, lane_order, largest, sublanes
from npuscope.trace.writers.atomic import whole_file
from npuscope.trace.writers.timeline import (
    annotation_columns,
    edge_ends,
    lane_groups,
    not_drawn,
    own_times,
    rank_clocks,
)

BATCH = 1 << 16  # slices encoded at a time
PACKET, SEQUENCE = 1, 1  # Trace.packet; all packets belong to one sequence
PARENT, COUNTER, CHILD_ORDERING, ORDER_RANK = 5, 8, 11, 12  # of a track descriptor
EXPLICIT = 3  # order children by their rank
TIMESTAMP, SEQUENCE_ID, TRACK_EVENT, INTERNED, FLAGS, DESCRIPTOR = 8, 10, 11, 12, 13, 60
STATE_CLEARED, NEEDS_STATE = 1, 2
EVENT_TYPE, EVENT_NAME, EVENT_TRACK, EVENT_ANNOTATION, EVENT_FLOWS, EVENT_LAST_FLOWS = 9, 10, 11, 4, 47, 48
SNAPSHOT, CLOCK_ID, BOOT_TIME, RANK_CLOCKS = 6, 58, 6, 128  # clocks from 128 on are a trace's own: one per rank
EVENT_VALUE = 44  # of a counter, as a double
SLICE_BEGIN, SLICE_END, COUNTER_SAMPLE = 1, 2, 4
_FIRST_TRACK = 1 << 20  # uuids below are groups of lanes
_FIRST_COUNTER = 1 << 52  # from here on tracks are counters
DEEPEST = 512  # measured: Perfetto v52 closes the wrong slices on a track that nests deeper
NAMES, ANNOTATION_NAMES, STRINGS = 2, 3, 29  # of InternedData
NAME_IID, INT_VALUE, DOUBLE_VALUE, STRING_IID = 1, 4, 5, 17  # of DebugAnnotation


def write(trace: Trace, path: Path) -> Counts:
    """The whole trace. Times before zero are moved up to it, since Perfetto counts from zero."""
    ends = edge_ends(trace)
    flows = _Flows(ends, trace)
    with whole_file(path) as file:
        for piece in _Encoder(trace, flows, path.name).pieces():
            file.write(piece)
    backwards = {"edge whose target begins before its source": flows.backwards} if flows.backwards else {}
    note = {"note of the window": 1} if note_of(trace) else {}
    return {**not_drawn(trace, ends.height), **backwards, **note}


class _Encoder:
    def __init__(self, trace: Trace, flows: _Flows, name: str) -> None:
        self.trace, self.flows, self.name = trace, flows, name
        lane, self.start, self.dur = trace.arrays()
        self.shift = -min(0, trace.first_time)
        self.lane, self.raw = lane, _by_lane(trace, own_times(trace))
        self.start = self.start + self.shift + self.raw[lane]
        order = lane_order(lane, self.start, self.dur)
        self.layer = _layers(lane, self.start, self.dur, order)
        self.most = largest(self.layer) + 1
        self.track = (lane * self.most + self.layer) + 1 + _FIRST_TRACK
        self.order = order if self.most == 1 else lane_order(self.track, self.start, self.dur)
        self.kernels = trace.slices["kernel"].fill_null("").unique(maintain_order=True)
        # every number of a kind gets the same width, no more than the largest needs
        self.time_width = varint_width(largest(self.start + self.dur))
        self.track_width = varint_width(largest(self.track))
        self.kernel_width = varint_width(len(self.kernels))
        self.strings = 0  # interned so far
        self.ahead = rank_clocks(trace)
        ids = {rank: RANK_CLOCKS + number for number, rank in enumerate(self.ahead)}
        self.clock_of = np.full(largest(trace.lanes["lane"].to_numpy()) + 1, BOOT_TIME, dtype=np.int64)
        for one, rank in trace.lanes.select("lane", "rank").iter_rows():
            self.clock_of[one] = ids.get(rank, BOOT_TIME)

    def pieces(self) -> Iterator[bytes | memoryview]:
        yield _packet(_sequence(STATE_CLEARED))
        if self.ahead:  # one moment on all clocks: each rank's times stay as they are, and viewers align them
            moment = -min(0, *self.ahead.values())
            times = {BOOT_TIME: moment} | {RANK_CLOCKS + n: moment + ns for n, ns in enumerate(self.ahead.values())}
            clocks = (tag(1, 0) + varint(clock) + tag(2, 0) + varint(time) for clock, time in times.items())
            snapshot = b"".join(delimited(1, clock) for clock in clocks) + tag(2, 0) + varint(BOOT_TIME)
            yield _packet(_sequence(0) + delimited(SNAPSHOT, snapshot))
        yield from self._descriptors()
        yield from _interned(NAMES, enumerate(self.kernels, 1))
        columns = annotation_columns(self.trace.slices)
        yield from _interned(ANNOTATION_NAMES, ((i, c.name) for i, c in enumerate(columns, 1)))
        numbered = []
        for column in columns:
            values, entries = self._value_numbers(column)
            yield from entries
            numbered.append(values)
        self.kernel_number = _numbers(self.trace.slices["kernel"].fill_null(""), self.kernels)
        yield from self._all_events(numbered)
        yield from self._counters()

    def _counters(self) -> Iterator[bytes | memoryview]:
        """A track per counter, under its lane, or at the top where it is the whole device's; then all samples."""
        samples = self.trace.counters
        if samples.is_empty():
            return
        series = samples.select("lane", "name").unique(maintain_order=True).with_row_index("series")
        groups = lane_groups(self.trace).select("lane", "group", counts_only=pl.col("unit") == "counter")
        for number, lane, name, group, counts_only in series.join(
            groups, on="lane", how="left", maintain_order="left"
        ).iter_rows():
            above = None if lane is None else 1 + group if counts_only else lane * self.most + 1 + _FIRST_TRACK
            parent = b"" if above is None else tag(PARENT, 0) + varint(above)
            yield _descriptor(_FIRST_COUNTER + number, name, parent + delimited(COUNTER, b""))
        met = samples.join(series, on=["lane", "name"], nulls_equal=True, maintain_order="left")
        track, time, value = (met[c].to_numpy() for c in ("series", "time", "value"))
        lanes = met["lane"].cast(pl.Int64).fill_null(-1).to_numpy()
        track, time = track.astype(np.int64) + _FIRST_COUNTER, time + self.shift + np.append(self.raw, 0)[lanes]
        clock = np.where(lanes >= 0, self.clock_of[lanes], BOOT_TIME)
        time_width, track_width = varint_width(largest(time)), varint_width(largest(track))
        for first in range(0, len(track), BATCH):
            rows = slice(first, first + BATCH)
            packet = PacketRows(len(track[rows]))
            packet.begin(PACKET)
            packet.add(tag(TIMESTAMP, 0))
            packet.add(padded_varints(time[rows], time_width))
            if self.ahead:
                packet.add(tag(CLOCK_ID, 0))
                packet.add(padded_varints(clock[rows], 2))
            packet.add(_sequence(NEEDS_STATE))
            packet.begin(TRACK_EVENT)
            packet.add(tag(EVENT_TYPE, 0) + varint(COUNTER_SAMPLE) + tag(EVENT_TRACK, 0))
            packet.add(padded_varints(track[rows], track_width))
            packet.add(tag(EVENT_VALUE, 1))
            packet.add(value[rows].astype("<f8").view(np.uint8).reshape(-1, 8))
            packet.end(2)
            yield packet.bytes().data

    def _all_events(self, columns: list[pl.Series]) -> Iterator[memoryview]:
        """Begins and ends of all slices, track by track, so that on every track they nest."""
        order = self.order
        running = -1  # the slice whose end is still to be written
        for first in range(0, len(order), BATCH):
            progress.report(f"writing {self.name}", first, len(order))
            rows = order[first : first + BATCH]
            start, track = self.start[rows], self.track[rows]
            if np.any((track[1:] == track[:-1]) & (start[1:] < (start + self.dur[rows])[:-1])):
                yield self._ends([running] if running >= 0 else [])
                yield self._nested_events(rows, columns)
                running = -1
            else:
                yield self._flat_events(rows, running, columns)
                running = int(rows[-1])
        yield self._ends([running] if running >= 0 else [])

    def _descriptors(self) -> Iterator[bytes]:
        """Tracks: a group per rank and device, under it a track per lane, and one more per crossing layer."""
        lanes = lane_groups(self.trace)
        for group, name in lanes.select("group", "group_name").unique(maintain_order=True).iter_rows():
            yield _descriptor(1 + group, name, tag(CHILD_ORDERING, 0) + varint(EXPLICIT))
        used = pl.DataFrame({"lane": self.lane, "layer": self.layer}).group_by("lane").agg(pl.col("layer").max())
        layers = dict(used.iter_rows())
        # cores by number: by name AIC_10 would come before AIC_2
        lanes = lanes.sort(pl.col("unit").cast(pl.String), "core", "lane", nulls_last=True)
        lanes = lanes.filter(pl.col("unit").ne_missing("counter"))  # nothing runs there
        for rank, (lane, name, group) in enumerate(lanes.select("lane", "name", "group").iter_rows()):
            place = tag(PARENT, 0) + varint(1 + group) + tag(ORDER_RANK, 0) + varint(rank)
            for layer in range(int(layers.get(lane, 0)) + 1):
                yield _descriptor(lane * self.most + layer + 1 + _FIRST_TRACK, name, place)

    def _value_numbers(self, column: pl.Series) -> tuple[pl.Series, Iterable[bytes]]:
        """Numbers as they are; text as numbers of interned strings, with the packets that intern them."""
        if column.dtype.is_numeric():
            return column.alias("number"), ()
        text = column.cast(pl.String)
        distinct = text.drop_nulls().unique(maintain_order=True)
        first = self.strings + 1
        self.strings += len(distinct)
        numbers = pl.Series(range(first, first + len(distinct)), dtype=pl.UInt64)
        numbered = text.cast(pl.Enum(distinct)).to_physical().cast(pl.UInt64) + first
        return numbered.alias("text"), _interned(STRINGS, zip(numbers, distinct, strict=True))

    def _flat_events(self, rows: Ints, running: int, columns: list[pl.Series]) -> memoryview:
        """Slices one after the other: each row ends the slice before and begins its own."""
        before = np.concatenate([[running], rows[:-1]])
        packet = PacketRows(len(rows))
        self._add_end(packet, before, None if running >= 0 else before >= 0)
        self._add_begin(packet, rows, columns)
        return packet.bytes().data

    def _nested_events(self, rows: Ints, columns: list[pl.Series]) -> memoryview:
        """Slices within slices: a row per begin or end."""
        slot, is_begin = self._sequence_of_events(rows)
        packet = PacketRows(len(slot))
        self._add_end(packet, rows[slot], ~is_begin)
        self._add_begin(packet, rows[slot], columns, is_begin)
        return packet.bytes().data

    def _ends(self, rows: list[int]) -> memoryview:
        packet = PacketRows(len(rows))
        self._add_end(packet, np.array(rows, dtype=np.int64), None)
        return packet.bytes().data

    def _add_end(self, packet: PacketRows, at: Ints, present: np.ndarray | None) -> None:
        self._begin_event(packet, self.start[at] + self.dur[at], SLICE_END, at, present)
        self.flows.add_to(packet, at, present, ends=True)
        packet.end(2)

    def _add_begin(
        self, packet: PacketRows, at: Ints, columns: list[pl.Series], present: np.ndarray | None = None
    ) -> None:
        self._begin_event(packet, self.start[at], SLICE_BEGIN, at, present)
        packet.add(tag(EVENT_NAME, 0), present)
        packet.add(padded_varints(self.kernel_number[at], self.kernel_width), present)
        for number, column in enumerate(columns, 1):
            _add_annotation(packet, number, column.gather(at), present)
        self.flows.add_to(packet, at, present, ends=False)
        packet.end(2)

    def _begin_event(self, packet: PacketRows, time: Ints, kind: int, at: Ints, present: np.ndarray | None) -> None:
        packet.begin(PACKET, present)
        packet.add(tag(TIMESTAMP, 0), present)
        packet.add(padded_varints(time, self.time_width), present)
        if self.ahead:
            packet.add(tag(CLOCK_ID, 0), present)
            packet.add(padded_varints(self.clock_of[self.lane[at]], 2), present)
        packet.add(_sequence(NEEDS_STATE), present)
        packet.begin(TRACK_EVENT, present)
        packet.add(tag(EVENT_TYPE, 0) + varint(kind) + tag(EVENT_TRACK, 0), present)
        packet.add(padded_varints(self.track[at], self.track_width), present)

    def _sequence_of_events(self, rows: Ints) -> tuple[Ints, np.ndarray]:
        """Which slice each event belongs to and whether it begins it, so that on every track ends and begins nest."""
        n = len(rows)
        start, dur, track = self.start[rows], self.dur[rows], self.track[rows]
        slot = np.repeat(np.arange(n), 2)
        is_begin = np.tile([True, False], n)
        time = np.where(is_begin, start[slot], start[slot] + dur[slot])
        lasting = dur[slot] > 0
        # at one moment: ends, inner first; then begins, outer first; then slices of no length, each whole
        turn = np.where(lasting, np.where(is_begin, 1, 0), 2)
        within = np.where(lasting, np.where(is_begin, -dur[slot], -start[slot]), slot)
        tie = np.where(lasting & ~is_begin, -slot, slot)  # equal intervals close in the reverse of their opening
        order = np.lexsort((~is_begin, tie, within, turn, time, track[slot]))
        return slot[order], is_begin[order]


def _by_lane(trace: Trace, of_rank: dict[int, int]) -> Ints:
    """What is known of ranks, by their lanes."""
    found = np.zeros(largest(trace.lanes["lane"].to_numpy()) + 1, dtype=np.int64)
    for lane, rank in trace.lanes.select("lane", "rank").iter_rows():
        found[lane] = of_rank.get(rank, 0)
    return found


class _Flows:
    """Flow ids of slices: one id per edge, on its source and, as the last of its flow, on its target.

    Perfetto drops the end of a flow that it meets before the beginning. Where both slices begin at one
    moment the end goes to the target's own end; a target that begins before its source cannot be drawn.
    """

    def __init__(self, ends: pl.DataFrame, trace: Trace) -> None:
        src, dst = (ends[side].cast(pl.Int64).to_numpy() for side in ("src_row", "dst_row"))
        _, start, dur = trace.arrays()
        together = start[src] == start[dst]
        drawn = (start[src] < start[dst]) | (together & (dur[dst] > 0))
        self.backwards = int((~drawn).sum())
        src, dst, together = src[drawn], dst[drawn], together[drawn]
        ids = np.arange(1, len(src) + 1)
        # an event is known by its slice and whether it ends it
        event = np.concatenate([2 * src, 2 * dst + together])
        order = np.argsort(event, kind="stable")
        self._event, self._ids = event[order], np.concatenate([ids, ids])[order]
        self._last = np.concatenate([np.zeros(len(src), bool), np.ones(len(dst), bool)])[order]

    def add_to(self, packet: PacketRows, at: Ints, present: np.ndarray | None, *, ends: bool) -> None:
        """The flow fields of the events that begin, or end, the slices `at`."""
        if len(self._event) == 0:
            return
        event = 2 * at + ends
        first = np.searchsorted(self._event, event, side="left")
        count = np.searchsorted(self._event, event, side="right") - first
        if present is not None:
            count = count * present
        if not count.any():
            return
        which = np.repeat(first, count) + counting(count)
        fields = np.empty((len(which), 10), dtype=np.uint8)
        begins, lasts = (np.frombuffer(tag(f, 1), dtype=np.uint8) for f in (EVENT_FLOWS, EVENT_LAST_FLOWS))
        fields[:, :2] = np.where(self._last[which, None], lasts, begins)
        fields[:, 2:] = self._ids[which].astype("<u8").view(np.uint8).reshape(-1, 8)
        packet.add_some(np.repeat(np.arange(len(at)), count), fields)


def _layers(lane: Ints, start: Ints, dur: Ints, order: Ints) -> Ints:
    """A layer per slice, such that on each track of (lane, layer) slices nest, and not deeper than Perfetto goes."""
    crossing_layer = sublanes(lane, start, dur, order)
    most = largest(crossing_layer) + 1
    deep = depths(lane * most + crossing_layer, start, dur, order if most == 1 else None) // DEEPEST
    return crossing_layer + most * deep


def _add_annotation(packet: PacketRows, number: int, column: pl.Series, present: np.ndarray | None) -> None:
    """One column's values, on the events that have one: in place where most do, one by one where few do."""
    has = column.is_not_null().to_numpy()
    if present is not None:
        has = has & present
    rows = np.flatnonzero(has)
    if len(rows) == 0:
        return
    dense = 2 * len(rows) > len(has)
    field, encoded = _encoded(column.fill_null(0) if dense else column.gather(rows))
    name = tag(NAME_IID, 0) + varint(number)
    head = tag(EVENT_ANNOTATION, 2) + varint(len(name) + len(field) + encoded.shape[1]) + name + field
    if dense:
        all_have = None if len(rows) == len(has) else has
        packet.add(head, all_have)
        packet.add(encoded, all_have)
    else:
        heads = np.broadcast_to(np.frombuffer(head, dtype=np.uint8), (len(rows), len(head)))
        packet.add_some(rows, np.concatenate([heads, encoded], axis=1))


def _encoded(values: pl.Series) -> tuple[bytes, Bytes]:
    """The field of a DebugAnnotation that holds such values, and the values' bytes."""
    if values.name == "text":
        return tag(STRING_IID, 0), padded_varints(values.to_numpy(), 5)
    if values.dtype.is_float():
        return tag(DOUBLE_VALUE, 1), values.to_numpy().astype("<f8").view(np.uint8).reshape(-1, 8)
    return tag(INT_VALUE, 0), padded_varints(values.cast(pl.Int64).to_numpy(), 10)


def _numbers(column: pl.Series, distinct: pl.Series) -> Ints:
    """The 1-based place of each value in `distinct`."""
    return column.cast(pl.Enum(distinct)).to_physical().to_numpy().astype(np.int64) + 1


def _descriptor(uuid: int, name: str, more: bytes) -> bytes:
    body = tag(1, 0) + varint(uuid) + delimited(2, name.encode()) + more
    return _packet(_sequence(0) + delimited(DESCRIPTOR, body))


def _interned(field: int, entries: Iterable[tuple[int, str]]) -> Iterator[bytes]:
    """Packets that give numbers to strings, some thousands at a time."""
    body = bytearray()
    for number, text in entries:
        body += delimited(field, tag(1, 0) + varint(int(number)) + delimited(2, text.encode()))
        if len(body) > 1 << 18:
            yield _packet(_sequence(NEEDS_STATE) + delimited(INTERNED, bytes(body)))
            body.clear()
    if body:
        yield _packet(_sequence(NEEDS_STATE) + delimited(INTERNED, bytes(body)))


def _sequence(flags: int) -> bytes:
    return tag(SEQUENCE_ID, 0) + varint(SEQUENCE) + (tag(FLAGS, 0) + varint(flags) if flags else b"")


def _packet(body: bytes) -> bytes:
    return delimited(PACKET, body)


Bytes = NDArray[np.uint8]


def tag(field: int, wire: int) -> bytes:
    """A field's tag: wire type 0 varint, 1 eight bytes, 2 length-delimited."""
    return varint(field << 3 | wire)


def varint(number: int) -> bytes:
    """The shortest varint of a non-negative number."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def delimited(field: int, payload: bytes) -> bytes:
    """A length-delimited field."""
    return tag(field, 2) + varint(len(payload)) + payload


def varint_width(largest: int) -> int:
    """How many bytes the varint of a non-negative number takes."""
    return max(1, -(-largest.bit_length() // 7))


def padded_varints(numbers: np.ndarray, width: int) -> Bytes:
    """Each number as a varint of exactly `width` bytes; negative ones, as protobuf has it, need ten."""
    rest = numbers.astype(np.int64).view(np.uint64)
    out = np.empty((len(rest), width), dtype=np.uint8)
    low = _seven_bits_a_byte(rest & np.uint64((1 << 56) - 1)) | np.uint64(0x8080808080808080)
    out[:, : min(8, width)] = low.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :width]
    if width > 8:
        out[:, 8] = (rest >> np.uint64(56)).astype(np.uint8) | 0x80
    if width > 9:
        out[:, 9] = (rest >> np.uint64(63)).astype(np.uint8)
    out[:, width - 1] &= 0x7F
    return out


def _seven_bits_a_byte(x: np.ndarray) -> np.ndarray:
    """The low 56 bits spread over eight bytes, seven in each: first move the halves, then quarters, then eighths."""
    for low, high, shift in (
        (0x000000000FFFFFFF, 0x00FFFFFFF0000000, 4),
        (0x00003FFF00003FFF, 0x0FFFC0000FFFC000, 2),
        (0x007F007F007F007F, 0x3F803F803F803F80, 1),
    ):
        x = (x & np.uint64(low)) | ((x & np.uint64(high)) << np.uint64(shift))
    return x


class PacketRows:
    """Messages under construction, one stretch of bytes per row. Add pieces in their order; `bytes` joins them.

    A piece is the same bytes for all rows, a matrix with a line per row, or lines for some rows. Sub-messages
    open with `begin` and close with `end`; their lengths are filled in last, in three bytes or, if one is large, five.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._pieces: list[Bytes | bytes] = []
        self._sizes: list[np.ndarray | int] = []  # of each piece, per row where rows differ
        self._rows: dict[int, np.ndarray] = {}  # of the pieces that only some rows have: a row per line
        self._open: list[int] = []
        self._lengths: list[tuple[int, int]] = []  # pieces that hold a length, and the piece after what they count

    def add(self, piece: Bytes | bytes, present: NDArray[np.bool_] | None = None) -> None:
        """A piece of every row, or of the rows that `present` marks."""
        width = len(piece) if isinstance(piece, bytes) else piece.shape[1]
        self._pieces.append(piece)
        self._sizes.append(width if present is None else present * np.int64(width))

    def add_some(self, rows: np.ndarray, lines: Bytes) -> None:
        """Lines for some rows; `rows` is sorted and may name a row several times."""
        self._rows[len(self._pieces)] = rows
        self._pieces.append(lines)
        self._sizes.append(np.bincount(rows, minlength=self.count) * lines.shape[1])

    def begin(self, field: int, present: NDArray[np.bool_] | None = None) -> None:
        """Open a sub-message."""
        self.add(tag(field, 2), present)
        self._open.append(len(self._pieces))
        self.add(b"\x00\x00\x00", present)

    def end(self, count: int = 1) -> None:
        """Close the newest open sub-messages."""
        for _ in range(count):
            self._lengths.append((self._open.pop(), len(self._pieces)))

    def bytes(self) -> Bytes:
        """All rows one after another."""
        for holder, after in self._lengths:
            inside = np.atleast_1d(sum(self._sizes[holder + 1 : after], np.int64(0)))
            width = 3 if int(inside.max(initial=0)) < 1 << 21 else 5
            length = padded_varints(inside, width)
            self._pieces[holder] = length.tobytes() if len(length) == 1 else length
            self._sizes[holder] = self._sizes[holder] // 3 * width
        some = sorted(self._rows)
        usual = [n for n in range(len(self._pieces)) if n not in self._rows]
        flat = self._joined(usual)
        if not some:
            return flat
        # the rare pieces go in between: where each of their lines begins follows from the sizes before it
        sizes = [np.broadcast_to(size, (self.count,)) for size in self._sizes]
        ends = np.cumsum(sum(sizes, np.int64(0)))
        out = np.empty(int(ends[-1]) if self.count else 0, dtype=np.uint8)
        is_usual = np.ones(len(out), dtype=bool)
        row_begins = ends - sum(sizes, np.int64(0))
        for n in some:
            rows, lines = self._rows[n], self._pieces[n]
            assert not isinstance(lines, bytes)
            nth = np.arange(len(rows)) - np.searchsorted(rows, rows, side="left")
            begin = (row_begins + sum(sizes[:n], np.int64(0)))[rows] + nth * lines.shape[1]
            places = begin[:, None] + np.arange(lines.shape[1])
            out[places] = lines
            is_usual[places] = False
        out[is_usual] = flat
        return out

    def _joined(self, which: list[int]) -> Bytes:
        """The pieces that stand at fixed places: a matrix, from which what a row lacks is masked out."""
        pieces = [self._pieces[n] for n in which]
        # what is the same in all rows is laid down at once, the rest written over it
        pattern = b"".join(p if isinstance(p, bytes) else bytes(p.shape[1]) for p in pieces)
        starts = np.cumsum([0, *(len(p) if isinstance(p, bytes) else p.shape[1] for p in pieces)])
        matrix = np.empty((self.count, len(pattern)), dtype=np.uint8)
        matrix[:] = np.frombuffer(pattern, dtype=np.uint8)
        mask = np.ones(matrix.shape, dtype=bool) if any(np.ndim(self._sizes[n]) for n in which) else None
        for n, piece, first, last in zip(which, pieces, starts[:-1], starts[1:], strict=True):
            if not isinstance(piece, bytes):
                matrix[:, first:last] = piece
            size = self._sizes[n]
            if mask is not None and isinstance(size, np.ndarray):
                mask[:, first:last] = (size > 0)[:, None]
        return matrix.reshape(-1) if mask is None else matrix[mask]


WRITER = Writer("perfetto", "Perfetto protobuf, for ui.perfetto.dev (.pftrace)", write, (".pftrace", ".perfetto-trace"))
