"""A small run of XLA's profiler, as XPlane and as the trace viewer's JSON."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

from builders import named, write_events, x


def varint(value: int) -> bytes:
    value &= 2**64 - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def message(*fields: tuple[int, Any]) -> bytes:
    """A protobuf message: whole numbers, text, bytes and floats by field number."""
    parts = []
    for number, value in fields:
        if isinstance(value, int):
            parts.append(varint(number << 3) + varint(value))
        elif isinstance(value, float):
            parts.append(varint(number << 3 | 1) + struct.pack("<d", value))
        else:
            data = value.encode() if isinstance(value, str) else value
            parts.append(varint(number << 3 | 2) + varint(len(data)) + data)
    return b"".join(parts)


STATS = ["", "step_num", "correlation_id", "hlo_op", "occupancy"]


def stat(name: str, value: Any) -> tuple[int, bytes]:
    kind = 4 if isinstance(value, int) else 2 if isinstance(value, float) else 5
    return (4, message((1, STATS.index(name)), (kind, value)))


def event(kind: int, start_ns: float, dur_ns: float, *stats: tuple[int, bytes]) -> tuple[int, bytes]:
    return (4, message((1, kind), (2, round(start_ns * 1000)), (3, round(dur_ns * 1000)), *stats))


def line(number: int, name: str, *events: tuple[int, bytes]) -> tuple[int, bytes]:
    return (3, message((1, number), (2, name), (3, 1_000_000), *events))  # begins 1 ms after the epoch


def plane(name: str, kinds: list[str], *lines: tuple[int, bytes]) -> tuple[int, bytes]:
    events = [(4, message((1, n), (2, message((1, n), (2, kind))))) for n, kind in enumerate(kinds)]
    stats = [(5, message((1, n), (2, message((1, n), (2, one))))) for n, one in enumerate(STATS)]
    return (1, message((1, 7), (2, name), *lines, *events, *stats))


# two steps of the host, each launches one kernel; the second kernel runs after its step has ended
GPU = plane(
    "/device:GPU:0",
    ["gemm", "fused_add"],
    line(13, "Stream #13(Compute)", event(0, 500, 400, stat("correlation_id", 1), stat("hlo_op", "dot.1")),
         event(1, 2600, 100.4, stat("correlation_id", 2), stat("occupancy", 0.5))),
    line(99, "XLA Modules", event(0, 500, 2200)),
)  # fmt: skip
HOST = plane(
    "/host:CPU",
    ["train", "cuLaunchKernel"],
    line(1, "python", event(0, 0, 1000, stat("step_num", 7)), event(0, 1500, 1000, stat("step_num", 8)),
         event(1, 100, 50, stat("correlation_id", 1)), event(1, 1600, 50, stat("correlation_id", 2))),
)  # fmt: skip


def xplane(folder: Path) -> Path:
    path = folder / "host.xplane.pb"
    path.write_bytes(message(GPU, HOST))
    return path


def viewer(folder: Path) -> Path:
    events = [
        *named("/device:GPU:0", "Stream #13(Compute)", pid=1, tid=13),
        *named(None, "XLA Modules", pid=1, tid=99),
        *named("/host:CPU", "python", pid=701, tid=1),
        x("gemm", 1000.5, 0.4, pid=1, tid=13, args={"correlation_id": "1", "hlo_op": "dot.1"}),
        x("fused_add", 1002.6, 0.1, pid=1, tid=13, args={"correlation_id": "2"}),
        x("jit_step", 1000.5, 2.2, pid=1, tid=99),
        x("train", 1000, 1, pid=701, tid=1, args={"step_num": "7"}),
        x("train", 1001.5, 1, pid=701, tid=1, args={"step_num": "8"}),
        x("cuLaunchKernel", 1000.1, 0.05, pid=701, tid=1, args={"correlation_id": "1"}),
        x("cuLaunchKernel", 1001.6, 0.05, pid=701, tid=1, args={"correlation_id": "2"}),
    ]
    return write_events(folder / "host.trace.json", events)
