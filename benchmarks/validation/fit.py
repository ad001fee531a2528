"""Fits constants of [timing] to the calibrating rows, each within the range that its sources leave open.

In three stages, because they hardly touch one another: transfers of a core; the orchestrator's cost per task; HBM
together with the scheduler's cost per block and a block's entry. Each stage walks one constant at a time, with ever
smaller steps, while the sum of squared errors falls: logarithms of predicted over measured, of shares the difference.
The stages are gone through a second time with the smallest step, for what they do touch.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from math import log
from pathlib import Path
from time import perf_counter

import msgspec
from validation.predictions import Bench, predict

from npuscope.device.chip import Device, load

SHARES = ("gemm_6144_MTE2", "layer_idle_AIC")  # percent
STEPS = (1.3, 1.1, 1.03)
FILES = Path(__file__).resolve().parents[2] / "npuscope" / "device"
SAME = ("ascend950",)  # files that repeat the fitted constants
BY_BANDWIDTH = ("ascend910b2", "ascend910b3", "ascend910b4", "ascend950")  # whose hbm_rate is in proportion


@dataclass(frozen=True)
class Stage:
    """`free`: constants that move together -> the least and the most their first may be. `targets`: row -> µs or %."""

    name: str
    free: dict[tuple[str, ...], tuple[float, float]]
    targets: dict[str, float]


TRANSFERS = {("dma_fixed",): (0.05e-6, 0.3e-6), ("dma_rate",): (145e9, 265e9)}
ORCHESTRATOR = {("submit_base", "submit_argument"): (0.35e-6, 1.0e-6)}  # 0.7 to 1.9 µs per task of #90 in all
CHIP = {
    ("hbm_rate",): (0.9e12, 1.76e12),
    ("dispatch_block", "complete_block"): (0.15e-6, 5e-6),
    ("block_start",): (0.1e-6, 3e-6),
}


def ranges() -> dict[tuple[str, ...], tuple[float, float]]:
    """What the first of each group may be; the others keep their proportion to it."""
    return TRANSFERS | ORCHESTRATOR | CHIP


def stages(measured: Mapping[str, float]) -> list[Stage]:
    return [
        Stage("transfers", TRANSFERS, _of(measured, "gemm_6144", "gemm_6144_MTE2", "c185_out")),
        Stage("orchestrator", ORCHESTRATOR, {"c90_before": 63044.3, "c90_after": 3284.4}),
        Stage("HBM and scheduler", CHIP, _of(measured, "decode_o", "decode_gate_up", "layer", "layer_idle_AIC")),
    ]


def _of(measured: Mapping[str, float], *keys: str) -> dict[str, float]:
    return {key: measured[key] for key in keys}


def changed(device: Device, values: Mapping[str, float]) -> Device:
    """The device with other values in [timing], of three digits each."""
    timing = {
        name: msgspec.structs.replace(constant, value=float(f"{values[name]:.3g}")) if name in values else constant
        for name, constant in device.timing.items()
    }
    return msgspec.structs.replace(device, timing=timing)


def loss(device: Device, stage: Stage) -> float:
    bench, total = Bench(device), 0.0
    for key, target in stage.targets.items():
        value = predict(key, bench)
        found = value[1] / value[0] if isinstance(value, tuple) else value
        total += ((found - target) / 100) ** 2 if key in SHARES else log(found / target) ** 2
    return total


@dataclass
class Progress:
    """A line on stderr that says how far the fit is."""

    begun: float
    tried: int = 0

    def told(self, stage: Stage, best: float) -> None:
        self.tried += 1
        line = f"{stage.name}: {self.tried} tried in {perf_counter() - self.begun:.0f} s, best {best:.5f}"
        if sys.stderr.isatty():
            print(f"\r{line:70}", end="", file=sys.stderr, flush=True)
        elif self.tried % 10 == 0:
            print(line, file=sys.stderr, flush=True)


def fit(device: Device, measured: Mapping[str, float]) -> Device:
    progress = Progress(perf_counter())
    for steps in (STEPS, STEPS[-1:]):
        for stage in stages(measured):
            device = _walked(device, stage, steps, progress)
    print(file=sys.stderr)
    return device


def _walked(device: Device, stage: Stage, steps: tuple[float, ...], progress: Progress) -> Device:
    best = loss(device, stage)
    progress.told(stage, best)
    known = {_values(device, stage)}
    for step in steps:
        better = True
        while better:
            better = False
            for names, (least, most) in stage.free.items():
                for factor in (step, 1 / step):
                    tried = changed(device, {name: device.timing[name].value * factor for name in names})
                    if not least <= tried.timing[names[0]].value <= most or _values(tried, stage) in known:
                        continue
                    known.add(_values(tried, stage))
                    now = loss(tried, stage)
                    if now < best:
                        device, best, better = tried, now, True
                    progress.told(stage, best)
    return device


def _values(device: Device, stage: Stage) -> tuple[float, ...]:
    return tuple(device.timing[name].value for names in stage.free for name in names)


def put(fitted: Device) -> None:
    """Writes the constants into the device's file and into those that take them over."""
    before = load(fitted.name)
    values = {name: one.value for name, one in fitted.timing.items() if one != before.timing[name]}
    for name in (fitted.name, *SAME):
        _replaced(name, values)
    for name in BY_BANDWIDTH:
        _replaced(name, {"hbm_rate": fitted.timing["hbm_rate"].value * load(name).bandwidth / fitted.bandwidth})


def _replaced(name: str, values: Mapping[str, float]) -> None:
    file = FILES / f"{name}.toml"
    text = file.read_text()
    for constant, value in values.items():
        line = rf"(?m)^({constant} = {{ value = )[^,]+,"
        text, found = re.subn(line, rf"\g<1>{float(f'{value:.3g}')!r},", text)
        if found != 1:
            raise SystemExit(f"{file}: {constant} has {found} lines to write to, nothing was written to this file")
    file.write_text(text)
