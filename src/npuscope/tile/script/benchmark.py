"""`pypto.runtime.benchmark`: the program runs once, for there is no device whose time many rounds would measure.

Its times are 0, as on PyPTO's own simulators; scripts ask `all_zero_device` and say so.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from npuscope.tile.fault import fault
from npuscope.tile.values.checks import shown

_SUMMARIES = ("min", "max", "median", "mean", "stdev")


@dataclass(frozen=True)
class BenchmarkStats:
    """What a benchmark found: a device's time is 0 in every round, what only a trace has is empty."""

    rounds: int = 0
    warmup: int = 0
    rounds_dispatches: tuple[object, ...] = ()
    invocations: tuple[object, ...] = ()
    fallback_flattened: bool = False
    unstable_dispatch_slots: bool = False

    @property
    def device_wall_us(self) -> list[float]:
        return [0.0] * self.rounds

    host_wall_us = samples = device_wall_us

    @property
    def all_zero_device(self) -> bool:
        return self.rounds > 0

    def __getattr__(self, name: str) -> float:
        unit, _, summary = name.rpartition("_")
        if unit not in ("device_us", "device_wall_us") or summary not in _SUMMARIES:
            raise AttributeError(name)
        return 0.0

    def per_round(self, metric: str = "device") -> list[float]:
        """Of a device or a host 0 for each round; of what spans of a trace say nothing."""
        if metric not in ("device", "host", "effective", "union"):
            raise ValueError(f"per_round(): unknown metric {metric!r}")
        return self.device_wall_us if metric in ("device", "host") else []

    def _nothing(self, *_: object, **__: object) -> dict[object, object]:
        return {}

    per_rank = per_dispatch = dispatch_tasks = _nothing  # of spans

    def format_tree(self, *_: object, **__: object) -> str:
        return "no spans: nothing ran on a device"

    def print_tree(self, *_: object, file: Any = None, **__: object) -> None:
        print(self.format_tree(), file=file)


def benchmark(
    compiled: Any,
    args: Sequence[object],
    *,
    rounds: int = 100,
    warmup: int = 3,
    config: object = None,
    **_: object,
) -> BenchmarkStats:
    """Runs the program once; `rounds` times of 0. Other options are of the device."""
    if not callable(compiled):
        raise fault(f"benchmark runs a compiled program, not {shown(compiled)}", "Give it what compile() returns.")
    if not (isinstance(rounds, int) and rounds > 0 and isinstance(warmup, int) and warmup >= 0):
        raise ValueError(f"benchmark(): rounds={rounds!r}, warmup={warmup!r}")
    print("note: benchmark ran the program once, its times are 0; npuscope simulate predicts them", file=sys.stderr)
    compiled(*args, config=config)
    return BenchmarkStats(rounds, warmup)
