"""The file chip_swimlane_records.json in all its layouts, brought into one form.

Until August 2026 the scheduler's stamps were rows of `aicpu_tasks` and its phases lists by thread. Since September they
are `scheduler_tasks` and the streams of `scheduler_records`, with what was counted apart in `metrics`; later in that
month every row and record got the `run_epoch` it belongs to. No layout says which it is: keys and row widths tell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from npuscope.trace import source
from npuscope.trace.json_file import decode_object

S = TypeVar("S", bound=msgspec.Struct)
Record = dict[str, object]  # a phase or what was counted during one: every build adds fields of its own
ABSENT = msgspec.Raw(b"{}")
# what older layouts have in the record itself
COUNTED = ("pop_hit", "pop_miss", "shared_at_start", "shared_at_end")


class Metadata(msgspec.Struct):
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


class Stream(msgspec.Struct):
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


class SwimlaneFile:
    """What every layout tells, in one form."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.unknown: Counter[str] = Counter()  # keys that no layout known here has
        self.records = self._object(source.read_all(path), Records)
        self.metadata = self._object(self.records.metadata, Metadata, "key of metadata")
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

    def _threads(self) -> Iterator[Stream]:
        """Phases listed by thread, with what was counted moved out of them."""
        for thread, phases in enumerate(self.records.aicpu_scheduler_phases):
            metrics = []
            for number, phase in enumerate(phases):
                counted = {key: phase.pop(key) for key in COUNTED if key in phase}
                if counted:
                    metrics.append({"record_index": number, **counted})
            yield Stream(thread, phases, metrics)

    def _streams(self) -> Iterator[Stream]:
        told = self._object(self.records.scheduler_records, SchedulerRecords, "key of scheduler_records")
        for raw in told.streams:
            yield self._object(raw, Stream, "key of a scheduler's stream")

    def _object(self, raw: bytes | msgspec.Raw, type: type[S], where: str = "top-level key") -> S:
        return decode_object(raw, type, "readable as swimlane records", self.path, self.unknown, where)
