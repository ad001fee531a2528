"""Small swimlane captures of our own making, the same run in every layout that the runtime has written."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

Layout = dict[str, Any]
METADATA = {
    "clock_freq_hz": 50_000_000,
    "num_cores": 3,
    "core_types": ["aic", "aiv", "aiv"],
    "core_to_thread": [0, 0, 1],
}
# core, task, register, start, end, cycles from receiving to starting
RAN = [[0, 2 << 32, 1, 1000, 1500, 20], [1, (2 << 32) + 1, 1, 1600, 1700, 0], [0, (2 << 32) + 2, 2, 1800, 1900, 5]]
# core, register, dispatch, finish; not in the order of registers
SEEN = [[0, 2, 1750, 1950], [0, 1, 960, 1560], [1, 1, 1580, 1760]]
PHASES = {
    0: [("dispatch", 930, 965, 1), ("complete", 1550, 1575, 1), ("dispatch", 1575, 1590, 1)],
    2: [("complete", 1940, 1960, 2)],
}
METRICS: dict[int, list[dict[str, Any]]] = {
    0: [
        {"record_index": 0, "pop_hit": 1, "pop_miss": 4, "shared_at_start": [2, 0, 0], "shared_at_end": [1, 0, 0]},
        {"record_index": 1, "shared_at_start": [1, 0, 0]},
        {"record_index": 2, "pop_hit": 1, "pop_miss": 0, "shared_at_start": [1, 1, 0], "shared_at_end": [1, 0, 0]},
    ],
    2: [],
}
SUBMITS = [
    {"submit_idx": n, "task_id": (2 << 32) + n, "start_cycles": 800 + 10 * n, "end_cycles": 808 + 10 * n}
    for n in range(3)
]
SAMPLES = sum(len(v) if isinstance(v, list) else 1 for m in METRICS[0] for k, v in m.items() if k != "record_index")


def _record(kind: str, start: int, end: int, tasks: int) -> Layout:
    return {"kind": kind, "start_cycles": start, "end_cycles": end, "loop_iter": 1, "tasks_processed": tasks}


def august() -> Layout:
    """Rows of four, phases by thread with what was counted inside; an idle thread is an empty list."""
    threads = []
    for thread in range(4):
        phases = [_record(*phase) for phase in PHASES.get(thread, [])]
        for metric in METRICS.get(thread, []):
            phases[metric["record_index"]] |= {k: v for k, v in metric.items() if k != "record_index"}
        threads.append(phases)
    return {
        "chip_swimlane_level": 4,
        "metadata": copy.deepcopy(METADATA),
        "aicore_tasks": copy.deepcopy(RAN),
        "aicpu_tasks": copy.deepcopy(SEEN),
        "aicpu_scheduler_phases": threads,
        "aicpu_orchestrator_phases": [copy.deepcopy(SUBMITS)],
    }


def early_september() -> Layout:
    """The scheduler's rows and streams under keys of their own; threads that recorded nothing are left out."""
    capture = {"dropped": 0, "truncated": False}
    streams = [
        {
            "platform": "a2a3",
            "runtime": "tensormap_and_ringbuffer",
            "producer": "aicpu",
            "scheduler_id": thread,
            "worker_id": thread,
            "core_type": "aicpu",
            "physical_core_id": None,
            "capture": {"committed": len(phases), **capture},
            "records": [{**_record(*phase), "task_id": None} for phase in phases],
            "metrics": copy.deepcopy(METRICS[thread]),
        }
        for thread, phases in PHASES.items()
    ]
    new = august()
    for key in ("aicpu_tasks", "aicpu_scheduler_phases"):
        del new[key]
    new["scheduler_tasks"] = {"schema_version": 1, "producer": "aicpu", "records": copy.deepcopy(SEEN)}
    new["scheduler_records"] = {"schema_version": 1, "streams": streams}
    return new


def late_september(epoch: int = 5) -> Layout:
    """As before, with the run that every row and record belongs to."""
    new = early_september()
    new["metadata"]["runtime"] = "tensormap_and_ringbuffer"
    for table in (new["scheduler_tasks"], new["scheduler_records"]):
        del table["schema_version"]
    for row in [*new["aicore_tasks"], *new["scheduler_tasks"]["records"]]:
        row.append(epoch)
    for stream in new["scheduler_records"]["streams"]:
        del stream["runtime"]
        for record in stream["records"]:
            record["run_epoch"] = epoch
    for submit in new["aicpu_orchestrator_phases"][0]:
        submit["run_epoch"] = epoch
    return new


def scheduled_by_cores() -> Layout:
    """The dialect of A5: AICores schedule, task by task; AICPU threads only begin and end the run."""
    kinds = ["bootstrap", "complete", "resolve", "state_probe", "refill", "worksteal", "idle", "dispatch"]
    records = [
        {**_record(kind, 900 + 10 * n, 908 + 10 * n, 1), "run_epoch": 5, "task_id": n} for n, kind in enumerate(kinds)
    ]
    new = late_september()
    new["metadata"] |= {"clock_freq_hz": 1_000_000_000, "runtime": "host_build_graph"}
    new["scheduler_tasks"]["producer"] = "aicore"
    new["scheduler_records"]["streams"] = [
        {
            "platform": "a5",
            "producer": "aicore",
            "scheduler_id": 1,
            "worker_id": 2,
            "core_type": "aiv",
            "physical_core_id": 2,
            "capture": {"committed": 9, "dropped": 1, "truncated": True},
            "records": records,
            "metrics": [],
        }
    ]
    parts = ("handshake_start", "handshake_complete", "config_start", "topology_complete")
    stamps = {f"{part}_cycles": 100 + 10 * n for n, part in enumerate(parts)}
    new["aicpu_lifecycle_records"] = [{"aicpu_thread_id": 3, **stamps, "exit_wait_start_cycles": 2000}]
    return new


def built_by_the_host() -> Layout:
    """The host orchestrates, on a clock of its own that one pair of moments aligns."""
    new = late_september()
    del new["aicpu_orchestrator_phases"]
    new["metadata"] |= {
        "runtime": "host_build_graph",
        "orchestrator_source": "host",
        "orchestrator_clock_domain": "host_monotonic_ns",
        "device_clock_domain": "device_syscnt_cycles",
        "host_timestamp_resolution_ns": 1,
        "host_timestamp_quantization_ns": 0,
        "host_orchestration_origin_ns": 500_000,
        "timeline_relation": "host_orchestration_precedes_device",
        "host_clock_domain_id": "boot",
        "host_capture": {"status": "complete", "expected_records": 3, "recorded_records": 2, "dropped_records": 1},
        # 1000 cycles are 20,000 ns
        "clock_alignment": {
            "status": "aligned", "device_anchor_cycles": 1000, "host_anchor_ns": 600_000,
            "host_anchor_min_ns": 599_990, "host_anchor_max_ns": 600_010,
        },
    }  # fmt: skip
    new["host_orchestrator_phases"] = [
        [
            {"submit_idx": n, "task_id": n, "start_host_ns": 581_000 + 100 * n, "end_host_ns": 581_050 + 100 * n}
            for n in range(2)
        ]
    ]
    return new


LAYOUTS = {
    "august": august,
    "early_september": early_september,
    "late_september": late_september,
    "scheduled_by_cores": scheduled_by_cores,
    "built_by_the_host": built_by_the_host,
}


def write(folder: Path, layout: Layout) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "chip_swimlane_records.json"
    path.write_text(json.dumps(layout))
    return path
