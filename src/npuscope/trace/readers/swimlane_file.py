"""What a run of the simpler runtime leaves: chip_swimlane_records.json in all layouts, its clocks, deps.json, names.

Until August 2026 the scheduler's stamps were rows of `aicpu_tasks` and its phases lists by thread. Since September they
are `scheduler_tasks` and the streams of `scheduler_records`, with what was counted in `metrics`; later in that month
every row and record got the `run_epoch` it belongs to. No layout says which it is: keys and row widths do. deps.json
usually comes from another run of the program, so only ids are joined, and only when it knows every task.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec
import polars as pl

from npuscope.base.errors import BadInput
from npuscope.base.frozen import dataclass
from npuscope.trace import source
from npuscope.trace.core import Ledger
from npuscope.trace.schema import LARGEST_US
from npuscope.trace.source import decode_object, whole_number

S = TypeVar("S", bound=msgspec.Struct)
Record = dict[str, object]  # a phase or what was counted during one: every build adds fields of its own
FILE_NAMES = ("chip_swimlane_records.json", "l2_swimlane_records.json")
ABSENT = msgspec.Raw(b"{}")
# what older layouts have in the record itself
COUNTED = ("pop_hit", "pop_miss", "shared_at_start", "shared_at_end")


class SwimlaneMetadata(msgspec.Struct):
    clock_freq_hz: int
    core_types: list[str]
    num_cores: int | None = None
    core_to_thread: list[int] | None = None
    runtime: str | None = None
    clock_anchors: Record | None = None
    clock_alignment: Record | None = None
    host_capture: Record | None = None
    orchestrator_source: str | None = None
    orchestrator_clock_domain: str | None = None
    device_clock_domain: str | None = None
    host_clock_domain_id: object = None
    host_timestamp_resolution_ns: object = None
    host_timestamp_quantization_ns: object = None
    host_orchestration_origin_ns: object = None
    timeline_relation: str | None = None


class SchedulerTasks(msgspec.Struct):
    records: list[list[int]] = []
    producer: str | None = None
    schema_version: int | None = None


class SchedulerStream(msgspec.Struct):
    """What one scheduler recorded, an AICPU thread or an AICore; threads that recorded nothing are left out."""

    scheduler_id: int
    records: list[Record] = []
    metrics: list[Record] = []
    producer: str | None = None
    platform: str | None = None
    runtime: str | None = None
    worker_id: int | None = None
    core_type: str | None = None
    physical_core_id: int | None = None
    capture: Record | None = None


class SchedulerRecords(msgspec.Struct):
    streams: list[msgspec.Raw] = []
    schema_version: int | None = None


class Records(msgspec.Struct):
    """The file's own keys, all layouts together."""

    metadata: msgspec.Raw
    aicore_tasks: list[list[int]]
    aicpu_tasks: list[list[int]] = []
    scheduler_tasks: msgspec.Raw = ABSENT
    aicpu_scheduler_phases: list[list[Record]] = []
    scheduler_records: msgspec.Raw = ABSENT
    aicpu_orchestrator_phases: list[list[Record]] = []
    host_orchestrator_phases: list[list[Record]] = []
    host_device_uploads: list[Record] = []
    aicpu_lifecycle_records: list[Record] = []
    chip_swimlane_level: int | None = None
    l2_swimlane_level: int | None = None


def records_in(folder: Path) -> Path | None:
    """The swimlane file of a run's folder."""
    return next((folder / name for name in FILE_NAMES if (folder / name).is_file()), None)


class SwimlaneFile:
    """What every layout says, in one form."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.unknown: Counter[str] = Counter()  # keys that no layout known here has
        self.records = self._object(source.read_all(path), Records)
        self.metadata = self._object(self.records.metadata, SwimlaneMetadata, "key of metadata")
        self.seen = self._object(self.records.scheduler_tasks, SchedulerTasks, "key of scheduler_tasks")
        self.streams = [*self._threads(), *self._streams()]
        self.level = self.records.chip_swimlane_level or self.records.l2_swimlane_level or 1

    @property
    def scheduled(self) -> list[list[int]]:
        """core, register, dispatch and finish of tasks, with the run they belong to in the newest layout."""
        return [*self.records.aicpu_tasks, *self.seen.records]

    @property
    def scheduled_key(self) -> str:
        return "scheduler_tasks" if self.seen.records else "aicpu_tasks"

    def _threads(self) -> Iterator[SchedulerStream]:
        """Phases listed by thread, with what was counted moved out of them."""
        for thread, phases in enumerate(self.records.aicpu_scheduler_phases):
            metrics = []
            for number, phase in enumerate(phases):
                counted = {key: phase.pop(key) for key in COUNTED if key in phase}
                if counted:
                    metrics.append({"record_index": number, **counted})
            yield SchedulerStream(thread, phases, metrics)

    def _streams(self) -> Iterator[SchedulerStream]:
        records = self._object(self.records.scheduler_records, SchedulerRecords, "key of scheduler_records")
        for raw in records.streams:
            yield self._object(raw, SchedulerStream, "key of a scheduler's stream")

    def _object(self, raw: bytes | msgspec.Raw, type: type[S], where: str = "top-level key") -> S:
        return decode_object(raw, type, "readable as swimlane records", self.path, self.unknown, where)


FASTEST = 4_000_000_000  # hertz; more would overflow the exact conversion, and no counter runs so fast


class CycleClock:
    """Cycles of the device's counter as nanoseconds."""

    def __init__(self, metadata: SwimlaneMetadata, path: Path) -> None:
        if not 0 < metadata.clock_freq_hz <= FASTEST:
            raise BadInput(f"clock_freq_hz must be positive and at most {FASTEST}", path=path)
        self.hertz, self._metadata = metadata.clock_freq_hz, metadata
        self.latest = LARGEST_US * 1000 * self.hertz // 1_000_000_000  # beyond this stamp nanoseconds would not fit

    def ns(self, cycles: pl.Expr) -> pl.Expr:
        """Exact: seconds and the remainder by themselves, so that no product overflows."""
        return (cycles // self.hertz) * 1_000_000_000 + (cycles % self.hertz) * 1_000_000_000 // self.hertz

    def host_offset(self, ledger: Ledger) -> int:
        """Device ns - host ns, by the file's own alignment, or by the anchor with the shortest round trip."""
        aligned = self._aligned() or self._anchored()
        if aligned is None:
            ledger.notes["host_clock"] = "no clock anchor: host lanes keep the host's own clock"
            return 0
        device_cycles, host_ns, within_ns = aligned
        ledger.notes["host_clock"] = f"aligned by a clock anchor, within {within_ns} ns"
        return device_cycles * 1_000_000_000 // self.hertz - host_ns

    def _aligned(self) -> tuple[int, int, int] | None:
        """One pair of moments, with the earliest and latest that the host's may have been."""
        record = self._metadata.clock_alignment or {}
        device, host = self._cycles(record, "device_anchor_cycles"), _ns(record, "host_anchor_ns")
        if not device or not host:
            return None
        least, most = _ns(record, "host_anchor_min_ns"), _ns(record, "host_anchor_max_ns")
        return device, host, most - least if most and least and most >= least else 0

    def _anchored(self) -> tuple[int, int, int] | None:
        samples = (self._metadata.clock_anchors or {}).get("samples")
        usable = []
        for anchor in samples if isinstance(samples, list) else []:
            if not isinstance(anchor, dict) or anchor.get("error"):
                continue
            device = self._cycles(anchor, "device_cycles")
            times = [_ns(anchor, key) for key in ("host_before_ns", "host_after_ns", "rtt_ns")]
            before, after, round_trip = times
            if device is not None and before is not None and after is not None and round_trip is not None:
                usable.append((round_trip, device, (before + after) // 2))
        if not usable:
            return None
        round_trip, device, host = min(usable, key=lambda one: one[0])
        return device, host, round_trip

    def _cycles(self, record: Record, key: str) -> int | None:
        value = record.get(key)
        return value if isinstance(value, int) and 0 <= value <= self.latest else None


def _ns(record: Record, key: str) -> int | None:
    value = record.get(key)
    return value if isinstance(value, int) and 0 <= value <= LARGEST_US * 1000 else None


class DepsTask(msgspec.Struct):
    task_id: str
    kernel_ids: list[int] = []  # function of the cube, of vector 0, of vector 1; -1 for none


class DepsEdge(msgspec.Struct):
    pred: str
    succ: str
    source: str = "explicit"


class DepsFile(msgspec.Struct):
    """The file's own keys; tensors and their places are not read."""

    tasks: list[DepsTask]
    edges: list[DepsEdge]
    tensors: msgspec.Raw = msgspec.Raw()
    runtime: str | None = None


@dataclass(frozen=True)
class Deps:
    tasks: list[DepsTask]
    edges: list[DepsEdge]
    unknown: Counter[str]

    def edge_table(self) -> pl.DataFrame:
        """One row per (src, dst, source); several arguments of one task often repeat an edge."""
        ends = {"src": [e.pred for e in self.edges], "dst": [e.succ for e in self.edges]}
        table = pl.DataFrame(
            {**ends, "source": [e.source for e in self.edges]}, schema_overrides=dict.fromkeys(ends, pl.String)
        )
        return table.with_columns(pl.col("src", "dst").cast(pl.Int64)).unique(maintain_order=True)

    def functions(self) -> pl.DataFrame:
        """task, and its function on a cube, on vector 0 and on vector 1; -1 for none."""
        places = {
            name: [t.kernel_ids[n] if n < len(t.kernel_ids) else -1 for t in self.tasks]
            for n, name in enumerate(("cube", "vector_0", "vector_1"))
        }
        table = pl.DataFrame({"task": [t.task_id for t in self.tasks], **places}, schema_overrides={"task": pl.String})
        return table.with_columns(pl.col("task").cast(pl.Int64)).unique("task", keep="last")


def read_deps(path: Path) -> Deps:
    """The file, checked; ids are whole numbers that fit 64 bits."""
    unknown: Counter[str] = Counter()
    file = decode_object(
        source.read_all(path), DepsFile, "a deps.json of the simpler runtime", path, unknown, "key of deps.json"
    )
    ids = pl.Series(
        [*(t.task_id for t in file.tasks), *(id for e in file.edges for id in (e.pred, e.succ))], dtype=pl.String
    )
    strange = ids.filter(~ids.str.contains(r"^[0-9]{1,19}$") | ids.str.to_integer(strict=False).is_null())
    if len(strange):
        raise BadInput(f"task id '{strange[0]}' is not a number of 63 bits", path=path)
    function = next((n for t in file.tasks for n in t.kernel_ids if not -(2**31) <= n < 2**31), None)
    if function is not None:
        raise BadInput(f"function id {function} is not a number of 32 bits", path=path)
    return Deps(file.tasks, file.edges, unknown)


class NameMap(msgspec.Struct):
    callable_id_to_name: dict[str, str]
    level: int | None = None
    orchestrator_name: str | None = None


def find_name_map(folder: Path, unknown: Counter[str]) -> dict[int, str] | None:
    """The name map in a folder, by function id; None if there is none, or more than one. Unknown keys are counted."""
    found = sorted(folder.glob("name_map*.json"))
    if len(found) != 1:
        return None
    text = source.read_all(found[0])
    names = decode_object(text, NameMap, "a name map", found[0], unknown, "key of a name map").callable_id_to_name
    wrong = next((key for key in names if whole_number(key) is None), None)
    if wrong is not None:
        raise BadInput(f"function id '{wrong}' is not a number", path=found[0])
    return {int(key): name for key, name in names.items()}
