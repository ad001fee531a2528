"""Perfetto's own protobuf trace (.pftrace): a track per lane, slices with arguments, flows for edges, counter tracks.

Slices that cross on one lane would be cut or dropped by Perfetto without a word, so they go to further
tracks of the same name. Field numbers are those of perfetto/protos/perfetto/trace/*.proto.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import polars as pl

from npuscope.base import progress
from npuscope.trace.core import Trace
from npuscope.trace.intervals import Ints, depths, lane_order, largest, sublanes
from npuscope.trace.meta import Counts
from npuscope.trace.window_note import note_of
from npuscope.trace.writers.annotations import annotation_columns
from npuscope.trace.writers.atomic import whole_file
from npuscope.trace.writers.edge_ends import edge_ends, edges_not_drawn
from npuscope.trace.writers.lane_groups import lane_groups
from npuscope.trace.writers.packets import Bytes, Rows, delimited, padded_varints, tag, varint, varint_width

BATCH = 1 << 16  # slices encoded at a time
PACKET, SEQUENCE = 1, 1  # Trace.packet; all packets belong to one sequence
PARENT, COUNTER, CHILD_ORDERING, ORDER_RANK = 5, 8, 11, 12  # of a track descriptor
EXPLICIT = 3  # order children by their rank
TIMESTAMP, SEQUENCE_ID, TRACK_EVENT, INTERNED, FLAGS, DESCRIPTOR = 8, 10, 11, 12, 13, 60
STATE_CLEARED, NEEDS_STATE = 1, 2
EVENT_TYPE, EVENT_NAME, EVENT_TRACK, EVENT_ANNOTATION, EVENT_FLOWS, EVENT_LAST_FLOWS = 9, 10, 11, 4, 47, 48
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
    return {**edges_not_drawn(trace, ends.height), **backwards, **note}


class _Encoder:
    def __init__(self, trace: Trace, flows: _Flows, name: str) -> None:
        self.trace, self.flows, self.name = trace, flows, name
        lane, self.start, self.dur = trace.arrays()
        self.shift = -min(0, trace.first_time)
        self.start = self.start + self.shift
        self.lane = lane
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

    def pieces(self) -> Iterator[bytes | memoryview]:
        yield _packet(_sequence(STATE_CLEARED))
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
        track, time = track.astype(np.int64) + _FIRST_COUNTER, time + self.shift
        time_width, track_width = varint_width(largest(time)), varint_width(largest(track))
        for first in range(0, len(track), BATCH):
            rows = slice(first, first + BATCH)
            packet = Rows(len(track[rows]))
            packet.begin(PACKET)
            packet.add(tag(TIMESTAMP, 0))
            packet.add(padded_varints(time[rows], time_width))
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
        packet = Rows(len(rows))
        self._add_end(packet, before, None if running >= 0 else before >= 0)
        self._add_begin(packet, rows, columns)
        return packet.bytes().data

    def _nested_events(self, rows: Ints, columns: list[pl.Series]) -> memoryview:
        """Slices within slices: a row per begin or end."""
        slot, is_begin = self._sequence_of_events(rows)
        packet = Rows(len(slot))
        self._add_end(packet, rows[slot], ~is_begin)
        self._add_begin(packet, rows[slot], columns, is_begin)
        return packet.bytes().data

    def _ends(self, rows: list[int]) -> memoryview:
        packet = Rows(len(rows))
        self._add_end(packet, np.array(rows, dtype=np.int64), None)
        return packet.bytes().data

    def _add_end(self, packet: Rows, at: Ints, present: np.ndarray | None) -> None:
        self._begin_event(packet, self.start[at] + self.dur[at], SLICE_END, at, present)
        self.flows.add_to(packet, at, present, ends=True)
        packet.end(2)

    def _add_begin(self, packet: Rows, at: Ints, columns: list[pl.Series], present: np.ndarray | None = None) -> None:
        self._begin_event(packet, self.start[at], SLICE_BEGIN, at, present)
        packet.add(tag(EVENT_NAME, 0), present)
        packet.add(padded_varints(self.kernel_number[at], self.kernel_width), present)
        for number, column in enumerate(columns, 1):
            _add_annotation(packet, number, column.gather(at), present)
        self.flows.add_to(packet, at, present, ends=False)
        packet.end(2)

    def _begin_event(self, packet: Rows, time: Ints, kind: int, at: Ints, present: np.ndarray | None) -> None:
        packet.begin(PACKET, present)
        packet.add(tag(TIMESTAMP, 0), present)
        packet.add(padded_varints(time, self.time_width), present)
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

    def add_to(self, packet: Rows, at: Ints, present: np.ndarray | None, *, ends: bool) -> None:
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
        which = np.repeat(first - np.cumsum(count) + count, count) + np.arange(count.sum())
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


def _add_annotation(packet: Rows, number: int, column: pl.Series, present: np.ndarray | None) -> None:
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
