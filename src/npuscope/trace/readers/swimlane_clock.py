"""The clocks of a swimlane file: the device's counter, and the host's where the host built the graph."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from npuscope.base.errors import BadInput
from npuscope.trace.decimal_time import LARGEST_US
from npuscope.trace.meta import Ledger
from npuscope.trace.readers.swimlane_file import Metadata, Record

FASTEST = 4_000_000_000  # hertz; more would overflow the exact conversion, and no counter runs so fast


class Clock:
    """Cycles of the device's counter as nanoseconds."""

    def __init__(self, metadata: Metadata, path: Path) -> None:
        if not 0 < metadata.clock_freq_hz <= FASTEST:
            raise BadInput(f"clock_freq_hz must be positive and at most {FASTEST}", path=path)
        self.hertz, self._metadata = metadata.clock_freq_hz, metadata
        self.latest = LARGEST_US * 1000 * self.hertz // 1_000_000_000  # beyond this stamp nanoseconds would not fit

    def ns(self, cycles: pl.Expr) -> pl.Expr:
        """Exact: seconds and the remainder apart, so that no product overflows."""
        return (cycles // self.hertz) * 1_000_000_000 + (cycles % self.hertz) * 1_000_000_000 // self.hertz

    def host_offset(self, ledger: Ledger) -> int:
        """Device ns - host ns, by the alignment the file tells, or by the anchor with the shortest round trip."""
        told = self._aligned() or self._anchored()
        if told is None:
            ledger.notes["host_clock"] = "no clock anchor: host lanes keep the host's own clock"
            return 0
        device_cycles, host_ns, within_ns = told
        ledger.notes["host_clock"] = f"aligned by a clock anchor, within {within_ns} ns"
        return device_cycles * 1_000_000_000 // self.hertz - host_ns

    def _aligned(self) -> tuple[int, int, int] | None:
        """One pair of moments, with the earliest and latest that the host's may have been."""
        told = self._metadata.clock_alignment or {}
        device, host = self._cycles(told, "device_anchor_cycles"), _ns(told, "host_anchor_ns")
        if not device or not host:
            return None
        least, most = _ns(told, "host_anchor_min_ns"), _ns(told, "host_anchor_max_ns")
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

    def _cycles(self, told: Record, key: str) -> int | None:
        value = told.get(key)
        return value if isinstance(value, int) and 0 <= value <= self.latest else None


def _ns(told: Record, key: str) -> int | None:
    value = told.get(key)
    return value if isinstance(value, int) and 0 <= value <= LARGEST_US * 1000 else None
