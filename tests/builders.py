"""Small captures of every format, built record by record, so that a test shows only what it is about."""

from __future__ import annotations

import json
import sqlite3
import struct
from pathlib import Path
from typing import Any

import pytest

import npuscope
from npuscope.trace import Trace


def balanced(trace: Trace) -> bool:
    """Every record is a slice or a sample of a counter, or accounted for."""
    meta = trace.meta
    accounted = sum(meta.merged.values()) + sum(meta.dropped.values())
    return meta.records == trace.slices.height + trace.counters.height + accounted


def refused(path: Path, message: str) -> str:
    """What reading the path says, which matches the message."""
    with pytest.raises(npuscope.NpuscopeError, match=message) as error:
        npuscope.read(path)
    return str(error.value)


KERNEL_HEADER = [
    "Step Id", "Device_id", "Task ID", "Stream ID", "Name", "Type", "Accelerator Core",
    "Start Time(us)", "Duration(us)", "Wait Time(us)", "Block Num", "Input Shapes",
]  # fmt: skip


def kernel_row(**cells: str) -> dict[str, str]:
    """One row of a kernel table; give only what matters."""
    usual = {
        "Step Id": "1", "Device_id": "0", "Task ID": "1", "Stream ID": "2", "Name": "MatMul_1", "Type": "MatMul",
        "Accelerator Core": "AI_CORE", "Start Time(us)": "1000.000\t", "Duration(us)": "5.000", "Wait Time(us)": "0",
        "Block Num": "24", "Input Shapes": '"16,16"',
    }  # fmt: skip
    return {**usual, **{_SHORT[name]: value for name, value in cells.items()}}


_SHORT = {
    "step": "Step Id", "stream": "Stream ID", "name": "Name", "type": "Type", "core": "Accelerator Core",
    "start": "Start Time(us)", "dur": "Duration(us)", "shapes": "Input Shapes", "device": "Device_id",
}  # fmt: skip


def write_kernel_table(
    path: Path, rows: list[dict[str, str]], header: list[str] | None = None, end: str = "\n"
) -> Path:
    """A kernel table as the profiler writes one: quotes only where needed, given line ends."""
    header = KERNEL_HEADER if header is None else header
    lines = [header, *([row.get(name, "N/A") for name in header] for row in rows)]
    text = end.join(",".join(_cell(cell) for cell in line) for line in lines) + end
    path.write_bytes(text.encode())
    return path


def _cell(cell: str) -> str:
    return '"' + cell.replace('"', '""') + '"' if any(c in cell for c in '",\r\n') else cell


def x(name: str, ts: Any, dur: Any, *, pid: Any = 1, tid: Any = 1, **more: Any) -> dict[str, Any]:
    """A complete event; times in microseconds."""
    return {"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, **more}


def flow(
    begin: tuple[Any, ...], end: tuple[Any, ...], name: str = "f", id: int = 1, **more: Any
) -> list[dict[str, Any]]:
    """The two ends of an arrow, each a process, a thread and a time in microseconds."""
    both = {"cat": name, "name": name, "id": id, **more}
    return [
        {**both, "ph": "s", "pid": begin[0], "tid": begin[1], "ts": begin[2]},
        {**both, "ph": "f", "pid": end[0], "tid": end[1], "ts": end[2], "bp": "e"},
    ]


def count(name: str, ts: Any, *, pid: Any = 1, tid: Any = 1, **series: Any) -> dict[str, Any]:
    """A counter event; its time in microseconds."""
    return {"ph": "C", "name": name, "pid": pid, "tid": tid, "ts": ts, "args": series}


def named(process: str | None = None, thread: str | None = None, *, pid: Any = 1, tid: Any = 1) -> list[dict[str, Any]]:
    """Metadata events that name a process and a thread."""
    events = []
    if process is not None:
        events.append({"ph": "M", "name": "process_name", "pid": pid, "args": {"name": process}})
    if thread is not None:
        events.append({"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": thread}})
    return events


def write_events(path: Path, events: list[Any], **header: Any) -> Path:
    """A trace in object form, minified."""
    path.write_text(json.dumps({**header, "traceEvents": events}, separators=(",", ":")))
    return path


RESET, FLOW_START, FLOW_END, NONE = 65535, 65534, 65533, 0xFFFFFFFF


def as_older(folder: Path, *missing: str) -> Path:
    """The npuscope folder as a version wrote it whose meta.json had no hashes, nor these keys."""
    meta = json.loads((folder / "meta.json").read_text())
    (folder / "meta.json").write_text(json.dumps({k: v for k, v in meta.items() if k not in ("content", *missing)}))
    return folder


def point(channel: int, event: int, time: int, extra: int = NONE) -> bytes:
    """One TraCR trace point."""
    return struct.pack("<HHIQ", channel, event, extra, time)


def write_bundle(root: Path, threads: dict[int, bytes], pid: int = 1000, **metadata: Any) -> Path:
    """A TraCR bundle with one process; `threads` maps a thread id to its trace points."""
    process = root / f"proc.{pid}"
    for tid, points in threads.items():
        (process / f"thread.{tid}").mkdir(parents=True)
        (process / f"thread.{tid}" / "traces.bts").write_bytes(points)
    process.mkdir(parents=True, exist_ok=True)
    (process / "metadata.json").write_text(json.dumps(metadata))
    return root


def write_swimlane(folder: Path, tasks: list[list[int]], aicpu: list[list[int]] | None = None, **more: Any) -> Path:
    """A swimlane of two cube and four vector cores at 50 MHz."""
    folder.mkdir(parents=True, exist_ok=True)
    records = {
        "chip_swimlane_level": 2 if aicpu else 1,
        "metadata": {"clock_freq_hz": 50_000_000, "num_cores": 6, "core_types": ["aic"] * 2 + ["aiv"] * 4},
        "aicore_tasks": tasks,
        "aicpu_tasks": aicpu or [],
        **more,
    }
    path = folder / "chip_swimlane_records.json"
    path.write_text(json.dumps(records))
    return path


def write_nsys(path: Path, strings: dict[int, str], **tables: list[dict[str, Any]]) -> Path:
    """Nsight Systems' export: tables as lists of rows; ids of text lead into `strings`."""
    with sqlite3.connect(path) as db:
        db.execute("create table StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL)")
        db.executemany("insert into StringIds values (?, ?)", strings.items())
        for name, rows in tables.items():
            columns = list(dict.fromkeys(column for row in rows for column in row))
            quoted = ", ".join(f'"{column}"' for column in columns)
            db.execute(f'create table "{name}" ({quoted})')
            places = ", ".join("?" * len(columns))
            db.executemany(f'insert into "{name}" values ({places})', [[r.get(c) for c in columns] for r in rows])
    db.close()
    return path


def write_database(path: Path, tasks: list[tuple[int, int, int, int]], names: dict[int, str]) -> Path:
    """A profiler database: tasks as (start, end, stream, id of the name)."""
    with sqlite3.connect(path) as db:
        db.execute("create table STRING_IDS (id INTEGER, value TEXT)")
        db.executemany("insert into STRING_IDS values (?, ?)", names.items())
        db.execute(
            "create table TASK (startNs, endNs, deviceId, connectionId, globalTaskId, taskType, streamId, taskId)"
        )
        rows = [(start, end, 0, n, n, 0, stream, n) for n, (start, end, stream, _) in enumerate(tasks)]
        db.executemany("insert into TASK values (?, ?, ?, ?, ?, ?, ?, ?)", rows)
        db.execute("create table COMPUTE_TASK_INFO (name INTEGER, globalTaskId INTEGER)")
        db.executemany("insert into COMPUTE_TASK_INFO values (?, ?)", [(task[3], n) for n, task in enumerate(tasks)])
    db.close()
    return path
