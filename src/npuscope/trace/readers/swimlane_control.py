"""What steered a run, out of a swimlane file: schedulers, orchestrators, the host, and what schedulers counted."""

from __future__ import annotations

import json
from collections.abc import Sequence

import polars as pl

from npuscope.base.errors import BadInput
from npuscope.trace.counters import READY_QUEUES
from npuscope.trace.decimal_time import LARGEST_US
from npuscope.trace.json_file import WHOLE
from npuscope.trace.meta import BACKWARDS, Ledger
from npuscope.trace.phases import phase_of
from npuscope.trace.readers.swimlane_clock import Clock
from npuscope.trace.readers.swimlane_file import Record, Stream, SwimlaneFile

CYCLES, HOST_NS = ("start_cycles", "end_cycles"), ("start_host_ns", "end_host_ns")
COLUMNS = ("loop_iter", "tasks_processed", "submit_idx", "run_epoch")  # numbers of phases that are kept as columns
QUEUES = {"shared_at_start": "start_cycles", "shared_at_end": "end_cycles"}  # depths, and when they were
NAMES = ("kind", "phase")  # where a record says what it is
# what an AICPU thread does around a run that AICores schedule: the stamps where each part begins and ends
LIFECYCLE = {
    "handshake": ("handshake_start", "handshake_complete"),
    "config": ("config_start", "topology_complete"),
    "context_publish": ("context_publish_start", "context_publish_complete"),
    "bootstrap_wait": ("bootstrap_wait_start", "bootstrap_complete"),
    "register_release": ("register_release_start", "register_release_end"),
    "exit_signal": ("exit_signal_start", "exit_signal_end"),
    "exit_wait": ("exit_wait_start", "exit_wait_end"),
}
Lane = dict[str, object]
_SAMPLES = {"lane": pl.UInt32, "name": pl.String, "time": pl.Int64, "value": pl.Float64}


class Control:
    """Reads the control records of a file onto lanes of their own, behind those of the cores."""

    def __init__(self, file: SwimlaneFile, clock: Clock, lanes: list[Lane], ledger: Ledger) -> None:
        self.file, self.clock, self.lanes, self.ledger = file, clock, lanes, ledger
        self._samples: list[pl.DataFrame] = []

    def slices(self) -> list[pl.DataFrame]:
        """A table per thread. The host's clock is brought onto the device's."""
        records = self.file.records
        parts = [self._stream(stream) for stream in self.file.streams]
        for thread, rows in enumerate(records.aicpu_orchestrator_phases):
            parts.append(self._thread(rows, f"Orch_{thread}", "orchestrator", "submit"))
        for thread, rows in enumerate(records.host_orchestrator_phases):
            parts.append(self._thread(rows, f"Host_{thread}", "orchestrator", "submit", on_host=True))
        if records.host_device_uploads:
            parts.append(self._thread(records.host_device_uploads, "H2D", None, "upload", on_host=True))
        for record in records.aicpu_lifecycle_records:
            parts.append(self._thread(self._lifecycle(record), f"AICPU_{record.get('aicpu_thread_id')}", None, ""))
        return parts

    def counters(self) -> pl.DataFrame:
        """What schedulers counted, by time: depths of the queues that all share, hits and misses of each."""
        if not self._samples:
            return pl.DataFrame(schema=_SAMPLES)
        return pl.concat(self._samples).sort("time", maintain_order=True)

    def _stream(self, stream: Stream) -> pl.DataFrame:
        """A scheduler's phases. It counts as one of the AICPU's threads, also where an AICore does their work."""
        name = f"Sched_{stream.scheduler_id}"
        slices = self._thread(stream.records, name, "scheduler", "phase")
        self.lanes[-1]["producer"] = stream.producer
        if stream.physical_core_id is not None and 0 <= stream.physical_core_id < 2**31:
            self.lanes[-1]["physical_core"] = stream.physical_core_id
        strange = slices.filter(pl.col("phase").is_null())["kernel"]
        for kind, count in strange.value_counts().iter_rows():
            self.ledger.count_unknown("kind of scheduler record", kind, count)
        if stream.capture is not None:
            told = {key: value for key, value in stream.capture.items() if isinstance(value, int) or value is None}
            self.ledger.notes.setdefault("capture", {})[name] = {**told, "records": len(stream.records)}
        self._samples.append(self._counted(stream, len(self.lanes) - 1))
        return slices

    def _counted(self, stream: Stream, lane: int) -> pl.DataFrame:
        """Samples of the queues at the start and end of a record, and of its hits and misses when it ended."""
        rows: list[tuple[int | None, str, object, object]] = []
        for metric in stream.metrics:
            at = metric.get("record_index")
            record: Record = stream.records[at] if isinstance(at, int) and 0 <= at < len(stream.records) else {}
            for key, value in metric.items():
                if key in QUEUES and isinstance(value, list):
                    time = record.get(QUEUES[key])
                    rows += [(None, name, time, depth) for name, depth in zip(_queues(len(value)), value, strict=True)]
                elif key in ("pop_hit", "pop_miss"):
                    rows.append((lane, key, record.get("end_cycles"), value))
                elif key != "record_index":
                    self.ledger.count_unknown("metric", key)
        latest = self.clock.latest
        sound = [
            row
            for row in rows
            if type(row[2]) is int and 0 <= row[2] <= latest and type(row[3]) is int and -WHOLE < row[3] < WHOLE
        ]
        self.ledger.records += len(rows)
        self.ledger.dropped["metric without a number or a record"] += len(rows) - len(sound)
        columns = list(zip(*sound, strict=True)) or [()] * len(_SAMPLES)
        frame = pl.DataFrame(dict(zip(_SAMPLES, columns, strict=True)), schema={**_SAMPLES, "value": pl.Int64})
        return frame.with_columns(self.clock.ns(pl.col("time")).alias("time"), pl.col("value").cast(pl.Float64))

    def _lifecycle(self, record: Record) -> list[Record]:
        """The parts of an AICPU thread's life as records of their own."""
        known = {f"{stamp}_cycles" for stamps in LIFECYCLE.values() for stamp in stamps} | {"aicpu_thread_id"}
        for key in record.keys() - known:
            self.ledger.count_unknown("key of aicpu_lifecycle_records", key)
        parts: list[Record] = []
        for name, (start, end) in LIFECYCLE.items():
            begin, stop = record.get(f"{start}_cycles"), record.get(f"{end}_cycles")
            if begin and stop:  # 0 is a stamp never taken
                parts.append({"kind": name, "start_cycles": begin, "end_cycles": stop})
            elif begin or stop:
                self.ledger.records += 1
                self.ledger.dropped["part of an AICPU thread's life without both stamps"] += 1
        return parts

    def _thread(
        self, rows: Sequence[Record], name: str, role: str | None, label: str, on_host: bool = False
    ) -> pl.DataFrame:
        """Slices of one thread on a lane of its own; rows that do not say what they are are called `label`."""
        number = len(self.lanes)
        self.lanes.append({"name": name, "unit": "host" if on_host else "AICPU", "role": role})
        self.ledger.records += len(rows)
        latest = LARGEST_US * 1000 if on_host else self.clock.latest
        frame = self._phases(rows, HOST_NS if on_host else CYCLES, latest, name)
        offset = self.clock.host_offset(self.ledger) if on_host and rows else 0
        begin, end = (pl.col(c) + offset if on_host else self.clock.ns(pl.col(c)) for c in ("begin", "end"))
        told = pl.when(pl.col("kind") != "").then(pl.col("kind")).otherwise(pl.lit(label))
        return frame.select(
            pl.lit(number, dtype=pl.UInt32).alias("lane"),
            begin.alias("start"),
            (end - begin).alias("dur"),
            told.alias("kernel"),
            pl.lit("host" if on_host else "schedule").alias("kind"),
            phase_of(told).alias("phase"),
            pl.col("task_id").alias("task"),
            *COLUMNS,
            "other",
        )

    def _phases(self, rows: Sequence[Record], stamps: tuple[str, str], latest: int, where: str) -> pl.DataFrame:
        """begin, end, kind, task_id and numbers as columns; whatever else a build writes as JSON in `other`."""
        plain = [self._phase(row, number, stamps, latest, where) for number, row in enumerate(rows)]
        numbers = dict.fromkeys(("begin", "end", "task_id", *COLUMNS), pl.Int64)
        return pl.DataFrame(plain, schema={**numbers, "kind": pl.String, "other": pl.String}, orient="row")

    def _phase(self, row: Record, number: int, stamps: tuple[str, str], latest: int, where: str) -> Lane:
        times = []
        for stamp in stamps:
            value = row.get(stamp)
            if not isinstance(value, int) or not 0 <= value <= latest:
                raise BadInput(f"phase {number} of {where} has no usable {stamp}", path=self.file.path)
            times.append(value)
        begin, end = times
        self.ledger.repaired[BACKWARDS] += end < begin
        name = next((str(row[key]) for key in NAMES if row.get(key)), "")
        told: Lane = {"begin": begin, "end": max(begin, end), "kind": name}
        for key in ("task_id", *COLUMNS):
            value = row.get(key)
            told[key] = value if _fits(value) else None
        rest = {k: v for k, v in row.items() if k not in (*stamps, *NAMES) and v is not None and told.get(k) is None}
        for key in rest.keys() - {"detail", "task_id", *COLUMNS}:
            self.ledger.count_unknown(f"key of records of {where.rstrip('0123456789')}*", key)
        # the standard encoder: a number may have more than 64 bits
        return {**told, "other": json.dumps(rest, separators=(",", ":"), ensure_ascii=False) if rest else None}


def _queues(count: int) -> list[str]:
    """Names of the queues whose depths a list has."""
    return [*READY_QUEUES[:count], *(f"shared_ready_queue {n}" for n in range(len(READY_QUEUES), count))]


def _fits(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < WHOLE
