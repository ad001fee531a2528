"""Chrome-style events as columns: slices, flow ends, counters and lane names, before any dialect's meaning.

Names, categories and lanes are numbers into small lists, so that a dialect decides per distinct name
and not per event, and a million equal strings are stored once.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray
from polars.exceptions import PolarsError

from npuscope.base.process_memory import give_back
from npuscope.trace.core import BELOW_NANOSECOND, NEGATIVE, NEVER_ENDED, NO_DURATION, NOT_UTF8, Ledger, lane_id
from npuscope.trace.intervals import Ints
from npuscope.trace.json_stream import Event, EventStream
from npuscope.trace.schema import EXACT_FLOAT_US, LARGEST_US, LONGEST_US, needs_rounding, ns_from_us

# phases that are known and leave no slice: objects, samples of a profiler, memory dumps, clocks, contexts, marks
NOT_READ = frozenset("NODPVvcTp()")
ROUNDED = "counter value beyond 53 bits rounded"
NO_NUMBER = "counter series without a number"
NO_SERIES = "counter event without a series"
IDENTIFIERS = ("acc_id",)  # arguments of msprof's that say which accelerator a number is of
NO_TIME = "event without a usable time"
NO_PHASE = "event of phase ''"
FLOWS, BEGIN_END, ASYNC, INSTANTS = frozenset("stf"), frozenset("BE"), frozenset("beSF"), frozenset("iIRn")


TEXTS = ("args", "other")
Columns = dict[str, Any]  # equally long arrays, and Series of those in TEXTS


class Interner(dict[Any, int]):
    """Numbers things in the order they are first seen."""

    def __missing__(self, key: Hashable) -> int:
        number = self[key] = len(self)
        return number


class LaneNumbers(Interner):
    """Numbers lanes by (pid, tid). A whole number in quotes is that number: PyTorch of 2021 writes both."""

    def __init__(self) -> None:
        self.keys_in_order: list[tuple[int | str, int | str]] = []

    def __missing__(self, key: Any) -> int:
        plain = (_plain(key[0]), _plain(key[1]))
        if plain == key:
            number = self[key] = len(self.keys_in_order)
            self.keys_in_order.append(key)
        else:
            number = self[key] = self[plain]
        return number


class KindNumbers(Interner):
    """Numbers (name, category, pid, tid), of which events have few: one look at an event instead of three."""

    def __init__(self) -> None:
        self.names, self.categories, self.lanes = Interner(), Interner(), LaneNumbers()
        self.columns: dict[str, list[int]] = {"lane": [], "name": [], "category": []}  # of each kind

    def __missing__(self, key: Any) -> int:
        name, category, pid, tid = key
        self.columns["lane"].append(self.lanes[pid, tid])
        self.columns["name"].append(self.names[name])
        self.columns["category"].append(self.categories[category])
        return super().__missing__(key)

    def of(self, events: Iterable[Event]) -> NDArray[np.uint32]:
        return np.array([self[e.name, e.cat, e.pid, e.tid] for e in events], dtype=np.uint32)


def _plain(id: Any) -> Any:
    """A whole number in quotes as the number; anything else as it is."""
    return int(id) if isinstance(id, str) and id.isdecimal() and id.isascii() and str(int(id[:18])) == id else id


@dataclass
class EventTable:
    """What a JSON file held. `lane`, `name`, `category` of slices and flows index the lists of those names."""

    path: Path
    ledger: Ledger
    header: dict[str, Any] = field(default_factory=dict)
    lane_keys: list[tuple[int | str, int | str]] = field(default_factory=list)  # (pid, tid)
    names: list[str] = field(default_factory=list)
    categories: list[str] = field(default_factory=list)
    process_names: dict[int | str, str] = field(default_factory=dict)
    thread_names: dict[tuple[int | str, int | str], str] = field(default_factory=dict)
    slices: pl.DataFrame = field(default_factory=pl.DataFrame)  # lane, start, dur, name, category, args[, other]
    flows: pl.DataFrame = field(default_factory=pl.DataFrame)  # lane, time, flow, category, name, begins, ends
    counters: pl.DataFrame = field(default_factory=pl.DataFrame)  # lane, name (as text), time, value

    def lane_names(self) -> list[str]:
        return [self.thread_names.get(key, str(key[1])) for key in self.lane_keys]

    def lane_processes(self) -> list[str]:
        return [self.process_names.get(pid, str(pid)) for pid, _ in self.lane_keys]


def collect(path: Path) -> EventTable:
    """Read all events of a file. Every one becomes a slice, a flow end, samples of counters or a lane's name, or is
    counted."""
    stream = EventStream(path)
    table = EventTable(path, Ledger())
    batches = _Batches(table.ledger)
    for events, text in stream:
        before = batches.state()
        try:
            batches.add(events, table)
        except _NeedsExactTimes:
            batches.go_back(before)
            batches.add(stream.exact(text), table)
    table.header, table.ledger.records = stream.header, stream.records + batches.further_series
    table.ledger.repaired[NOT_UTF8] += stream.mended_characters
    if not stream.closed:
        table.ledger.notes["unclosed_list"] = True
    batches.finish(table)
    give_back()
    return table


class _NeedsExactTimes(Exception):
    """A batch has fractional times beyond what a float64 holds to the nanosecond."""


class _Mark(NamedTuple):
    """A begin or an end of a slice; those of one key pair up."""

    key: Hashable
    lane: int
    time: int
    event: Event


class _Batches:
    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.kinds = KindNumbers()
        self.lanes = self.kinds.lanes
        self.flow_ids, self.counter_names = Interner(), Interner()
        self.counter_ids: Interner = Interner({None: 0})
        self.text_times = 0  # times that the file has in quotes
        self.further_series = 0  # of counter events, beyond the first of each
        # of each batch, put together once: a frame for each would cost as much as filling it
        self.slices: list[Columns] = []
        self.flows: list[Columns] = []
        self.counter_frames: list[pl.DataFrame] = []
        self.marks: list[_Mark] = []

    def state(self) -> tuple[Any, ...]:
        """Enough to forget a batch that has to be read again."""
        ledger = self.ledger
        counts = [Counter(c) for c in (ledger.merged, ledger.dropped, ledger.repaired, ledger.unknown)]
        sizes = [len(part) for part in (self.slices, self.flows, self.counter_frames, self.marks)]
        return counts, sizes, self.text_times, self.further_series

    def go_back(self, state: tuple[Any, ...]) -> None:
        counts, sizes, self.text_times, self.further_series = state
        ledger = self.ledger
        ledger.merged, ledger.dropped, ledger.repaired, ledger.unknown = counts
        slices, flows, counters, marks = sizes
        del self.slices[slices:], self.flows[flows:], self.counter_frames[counters:], self.marks[marks:]

    def add(self, events: list[Event], table: EventTable) -> None:
        complete = [e for e in events if e.ph == "X"]
        self.slices.append(self._slice_columns(complete))
        if len(complete) == len(events):
            return
        flows = [e for e in events if e.ph in FLOWS]
        self.flows.append(self._flow_columns(flows))
        if len(complete) + len(flows) < len(events):
            self._add_rest([e for e in events if e.ph != "X" and e.ph not in FLOWS], table)

    def _slice_columns(self, events: list[Event]) -> Columns:
        start, start_known = self._times([e.ts for e in events])
        dur, dur_known = self._times([e.dur for e in events])
        known = start_known & (dur <= LONGEST_US * 1000)
        self.ledger.repaired[NO_DURATION] += int((known & ~dur_known).sum())
        self.ledger.repaired[NEGATIVE] += int((known & (dur < 0)).sum())
        return self._known(self._columns(events, self.kinds.of(events), start, np.maximum(dur, 0)), known)

    def _columns(self, events: list[Event], kind: NDArray[np.uint32], start: Ints, dur: Ints) -> Columns:
        columns: Columns = {
            "kind": kind,
            "start": start,
            "dur": dur,
            "args": self._text([bytes(e.args) or None for e in events]),
        }
        other = [e.other for e in events]
        if other.count(None) < len(other):
            columns["other"] = self._text(other)
        return columns

    def _text(self, values: list[bytes | None]) -> pl.Series:
        try:
            return pl.Series(values, dtype=pl.Binary).cast(pl.String)
        except PolarsError:
            mended = [None if value is None else value.decode(errors="replace") for value in values]
            replaced = sum(text.count("\ufffd") for text in mended if text)
            self.ledger.repaired[NOT_UTF8] += replaced
            return pl.Series(mended, dtype=pl.String)

    def _known(self, columns: Columns, known: NDArray[np.bool_]) -> Columns:
        """The rows that have a time; the others are counted."""
        if known.all():
            return columns
        self.ledger.dropped[NO_TIME] += int((~known).sum())
        kept = pl.Series(known)
        return {
            name: column.filter(kept) if isinstance(column, pl.Series) else column[known]
            for name, column in columns.items()
        }

    def _flow_columns(self, events: list[Event]) -> Columns:
        time, known = self._times([e.ts for e in events])
        phases = np.frombuffer("".join([e.ph for e in events]).encode(), dtype=np.uint8)
        self.ledger.merged["flow event became an end of an edge"] += int(known.sum())
        columns = {
            "kind": self.kinds.of(events),
            "time": time,
            "flow": self._flow_numbers([e.id for e in events]),
            "begins": phases != ord("f"),
            "ends": phases != ord("s"),
        }
        return self._known(columns, known)

    def _counter_frame(self, events: list[Event]) -> pl.DataFrame:
        """Every number among an event's arguments is a sample of a series of its own, or dropped with a reason."""
        times, usable = self._times([e.ts for e in events])
        self.ledger.dropped[NO_TIME] += int((~usable).sum())
        if not usable.all():
            events = [event for event, known in zip(events, usable.tolist(), strict=True) if known]
            times = times[usable]
        at, names, values = [], [], []  # of each sample: which of the events, the series' number, the value
        records = 0
        for number, (event, series) in enumerate(zip(events, _arguments(events), strict=True)):
            which = "".join(f"[{series.pop(key)}]" for key in IDENTIFIERS if key in series)
            self.ledger.dropped[NO_SERIES] += not series
            records += max(len(series), 1)
            for key, raw in series.items():
                value = _number(raw)
                if value is None:
                    self.ledger.dropped[NO_NUMBER] += 1
                    continue
                self.ledger.repaired[ROUNDED] += isinstance(raw, int) and int(value) != raw
                at.append(number)
                names.append(self.counter_names[_series_name(event.name + which, key)])
                values.append(value)
        self.further_series += records - len(events)
        lanes = np.array([self.lanes[e.pid, e.tid] for e in events], dtype=np.uint32)
        ids = np.array([self.counter_ids[e.id] for e in events], dtype=np.uint32)
        place = np.array(at, dtype=np.int64)
        return pl.DataFrame(
            {
                "lane": lanes[place],
                "name": np.array(names, dtype=np.uint32),
                "id": ids[place],
                "time": times[place],
                "value": np.array(values, dtype=np.float64),
            }
        )

    def _counters(self, table: EventTable) -> pl.DataFrame:
        """Names as text. Of one name with several ids each id is a counter, unless the id only names the lane."""
        counters = pl.concat(self.counter_frames, rechunk=True)
        names, ids, lanes = list(self.counter_names), list(self.counter_ids), table.lane_names()
        series = counters.select("lane", "name", "id").unique(maintain_order=True)
        words = [
            names[name] if id == 0 or ids[id] == lane_id(lanes[lane]) else f"{names[name]}[{ids[id]}]"
            for lane, name, id in series.iter_rows()
        ]
        series = series.with_columns(pl.Series("word", words, dtype=pl.String))
        counters = counters.join(series, on=["lane", "name", "id"], maintain_order="left")
        return counters.select("lane", pl.col("word").alias("name"), "time", "value")

    def _flow_numbers(self, ids: list[Any]) -> Ints:
        """Ids as int64: small whole numbers as they are, all else numbered downwards from -1."""
        limit = 1 << 62
        if set(map(type, ids)) == {int} and min(ids) >= 0 and max(ids) < limit:
            return np.array(ids, dtype=np.int64)
        return np.array(
            [i if i.__class__ is int and 0 <= i < limit else -1 - self.flow_ids[i] for i in map(_plain, ids)],
            dtype=np.int64,
        )

    def _add_rest(self, events: list[Event], table: EventTable) -> None:
        paired = [e for e in events if e.ph in BEGIN_END or e.ph in ASYNC]
        times, known = self._times([e.ts for e in paired])
        self.ledger.dropped[NO_TIME] += int((~known).sum())
        for event, time, usable in zip(paired, times.tolist(), known.tolist(), strict=True):
            if usable and event.ph in BEGIN_END:
                lane = self.lanes[event.pid, event.tid]
                self.marks.append(_Mark(lane, lane, time, event))
            elif usable:
                lane = self.lanes[event.pid, f"async {event.cat}".rstrip()]
                self.marks.append(_Mark((lane, event.id), lane, time, event))
        if counters := [e for e in events if e.ph == "C"]:
            self.counter_frames.append(self._counter_frame(counters))
        for event in events:
            if event.ph == "M":
                self._add_metadata(event, table)
            elif event.ph in INSTANTS:
                self.ledger.dropped["instant event"] += 1
            elif event.ph not in BEGIN_END and event.ph not in ASYNC and event.ph != "C":
                self.ledger.dropped[f"event of phase {event.ph[:8]!r}"] += 1
                self.ledger.unknown[f"event phase {event.ph[:8]!r}"] += event.ph not in NOT_READ

    def _add_metadata(self, event: Event, table: EventTable) -> None:
        self.ledger.merged["metadata event names a lane"] += 1
        if event.name not in ("process_name", "thread_name"):
            return
        try:
            value = msgspec.json.decode(event.args)["name"]
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError, TypeError):
            return
        if event.name == "process_name":
            table.process_names[_plain(event.pid)] = str(value)
        else:
            table.thread_names[_plain(event.pid), _plain(event.tid)] = str(value)

    def _times(self, values: list[Any]) -> tuple[Ints, NDArray[np.bool_]]:
        """Nanoseconds, and where there was a number that fits. Raises _NeedsExactTimes rather than lose digits."""
        kinds = set(map(type, values))
        if not kinds <= {int, float}:
            return self._times_of_text(values)
        try:
            if kinds == {int}:
                whole_us = np.array(values, dtype=np.int64)
                known = (whole_us <= LARGEST_US) & (whole_us >= -LARGEST_US)
                return np.where(known, whole_us, 0) * 1000, known
            micros = np.array(values, dtype=np.float64)
        except OverflowError:  # a whole number that no float64 can hold
            return self._times_of_text(values)
        with np.errstate(invalid="ignore"):
            known = np.abs(micros) <= LARGEST_US
            whole = np.where(known, np.floor(micros), 0.0)
            fraction = np.where(known, micros - whole, 0.0)
            # digits beyond the float64 are gone already, so no such number is trusted, whatever its fraction
            if float in kinds and np.any(known & (np.abs(micros) > EXACT_FLOAT_US)):
                raise _NeedsExactTimes
        below = fraction * 1000.0
        nanos = np.rint(below)
        # three decimals read as a float64 are off by parts of its last place, which grows with the number
        off = np.abs(below - nanos) > np.maximum(1e-6, np.abs(whole) * 3e-13)
        self.ledger.repaired[BELOW_NANOSECOND] += int(off.sum())
        return whole.astype(np.int64) * 1000 + nanos.astype(np.int64), known

    def _times_of_text(self, values: list[Any]) -> tuple[Ints, NDArray[np.bool_]]:
        self.text_times += sum(value.__class__ is str for value in values)
        texts = [None if v is None else v if isinstance(v, str) else repr(v) for v in values]
        frame = pl.DataFrame({"t": texts}, schema={"t": pl.String}).select(
            ns=ns_from_us(pl.col("t")), off=needs_rounding(pl.col("t"))
        )
        self.ledger.repaired[BELOW_NANOSECOND] += int(frame["off"].sum())
        return frame["ns"].fill_null(0).to_numpy(), frame["ns"].is_not_null().to_numpy()

    def finish(self, table: EventTable) -> None:
        if self.marks:
            self.slices.append(self._pairs())
        of_kind = {name: np.array(numbers, dtype=np.uint32) for name, numbers in self.kinds.columns.items()}
        table.slices = _joined(self.slices or [self._slice_columns([])], of_kind)
        table.flows = _joined(self.flows or [self._flow_columns([])], of_kind)
        table.names, table.categories = list(self.kinds.names), list(self.kinds.categories)
        table.lane_keys = self.lanes.keys_in_order
        if self.counter_frames:
            table.counters = self._counters(table)
            self.counter_frames = []
        if self.text_times:
            table.ledger.notes["times_as_text"] = self.text_times

    def _pairs(self) -> Columns:
        """A slice per begin; an end closes the newest open begin of its key, and adds its arguments to it."""
        slices: list[tuple[_Mark, int]] = []  # begin, end
        open_begins: dict[Hashable, list[_Mark]] = {}
        self.marks.sort(key=lambda mark: mark.time)  # stable: one moment keeps the file's order
        for mark in self.marks:
            stack = open_begins.setdefault(mark.key, [])
            if mark.event.ph in "BbS":
                stack.append(mark)
            elif stack:
                begin = stack.pop()
                begin.event.args = _both(begin.event.args, mark.event.args)
                slices.append((begin, mark.time))
                self.ledger.merged["end event closed a slice"] += 1
            else:
                self.ledger.dropped["end event without a begin"] += 1
        last = self.marks[-1].time
        for columns in self.slices:
            last = int((columns["start"] + columns["dur"]).max(initial=last))
        unclosed = [begin for stack in open_begins.values() for begin in stack]
        self.ledger.repaired[NEVER_ENDED] += len(unclosed)
        slices += [(begin, last) for begin in unclosed]
        usable = [(begin, end) for begin, end in slices if end - begin.time <= LONGEST_US * 1000]
        self.ledger.dropped[NO_TIME] += len(slices) - len(usable)
        slices = usable
        start = np.array([begin.time for begin, _ in slices], dtype=np.int64)
        stop = np.array([end for _, end in slices], dtype=np.int64)
        lanes = self.lanes.keys_in_order
        kind = [self.kinds[begin.event.name, begin.event.cat, *lanes[begin.lane]] for begin, _ in slices]
        events = [begin.event for begin, _ in slices]
        return self._columns(events, np.array(kind, dtype=np.uint32), start, stop - start)


def _joined(batches: list[Columns], of_kind: dict[str, NDArray[np.uint32]]) -> pl.DataFrame:
    """All batches as one, column by column; what is done is let go, because a large trace is mostly this."""
    none = pl.Series([None], dtype=pl.String)
    sizes = [len(columns["kind"]) for columns in batches]
    kind = np.concatenate([columns.pop("kind") for columns in batches])
    joined = {name: pl.Series(numbers[kind]) for name, numbers in of_kind.items()}
    del kind
    for name in dict.fromkeys(name for columns in batches for name in columns):
        pieces = [columns.pop(name, None) for columns in batches]
        if name in TEXTS:  # stays in pieces
            texts = zip(pieces, sizes, strict=True)
            joined[name] = pl.concat(
                [none.new_from_index(0, size) if piece is None else piece for piece, size in texts], rechunk=False
            )
        else:
            joined[name] = pl.Series(np.concatenate(pieces))
    return pl.DataFrame(joined)


def _both(begin: msgspec.Raw, end: msgspec.Raw) -> msgspec.Raw:
    """The arguments of a begin and of its end as one object."""
    first, second = bytes(begin).strip(), bytes(end).strip()
    if not (first.endswith(b"}") and second.startswith(b"{")) or second[1:-1].strip() == b"":
        return begin if first else end
    inner = first[:-1].rstrip()
    return msgspec.Raw(inner + (b"" if inner == b"{" else b",") + second[1:])


def _series_name(event: str, series: str) -> str:
    """The event's name and the series', unless the series only repeats it or is called `value`."""
    return event if series == "value" or event.startswith(series) else f"{event} {series}".strip()


def _arguments(events: Sequence[Event]) -> list[dict[str, object]]:
    """The arguments of all events at once, one by one where one of them is no object of numbers and text."""
    texts = [bytes(event.args) or b"{}" for event in events]
    try:
        return msgspec.json.decode(b"[" + b",".join(texts) + b"]", type=list[dict[str, object]])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return [_object(text) for text in texts]


def _object(text: bytes) -> dict[str, object]:
    try:
        return msgspec.json.decode(text.decode(errors="replace"), type=dict[str, object])
    except (msgspec.DecodeError, RecursionError):
        return {}


def _number(raw: object) -> float | None:
    """A number, or text that is one, as some tools write them; None for anything else."""
    if isinstance(raw, bool) or not isinstance(raw, int | float | str):
        return None
    try:
        value = float(raw)
    except (ValueError, OverflowError):
        return None
    return value if math.isfinite(value) else None
