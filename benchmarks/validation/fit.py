"""Fits constants of [timing] to the calibrating rows, each within the range that its sources leave open.

In three stages, because they hardly touch one another: transfers of a core; the orchestrator's cost per task; HBM
together with the scheduler's cost per block and a block's entry. Each stage walks one constant at a time, with ever
smaller steps, while the sum of squared errors falls: logarithms of predicted over measured, of shares the difference.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import log

import msgspec
from validation.predictions import Bench, predict

from npuscope.device.chip import Device

SHARES = ("gemm_6144_MTE2", "layer_idle_AIC")  # percent
SUBMIT = ("submit_base", "submit_argument")


@dataclass(frozen=True)
class Stage:
    """`free`: constants that move together -> the least and the most their first may be. `targets`: row -> µs or %."""

    name: str
    free: dict[tuple[str, ...], tuple[float, float]]
    targets: dict[str, float]


def stages(measured: Mapping[str, float]) -> list[Stage]:
    transfers = {("dma_fixed",): (0.05e-6, 0.3e-6), ("dma_rate",): (145e9, 265e9)}
    chip = {
        ("hbm_rate",): (0.9e12, 1.76e12),
        ("dispatch_block", "complete_block"): (0.15e-6, 5e-6),
        ("block_start",): (0.1e-6, 3e-6),
    }
    orchestrator = {SUBMIT: (0.35e-6, 1.0e-6)}  # 0.7 to 1.9 µs per task of #90 in all
    return [
        Stage("transfers", transfers, _of(measured, "gemm_6144", "gemm_6144_MTE2", "c185_out")),
        Stage("orchestrator", orchestrator, {"c90_before": 63044.3, "c90_after": 3284.4}),
        Stage("HBM and scheduler", chip, _of(measured, "decode_o", "decode_gate_up", "layer", "layer_idle_AIC")),
    ]


def _of(measured: Mapping[str, float], *keys: str) -> dict[str, float]:
    return {key: measured[key] for key in keys}


def changed(device: Device, values: Mapping[str, float]) -> Device:
    """The device with other values in [timing]."""
    timing = {
        name: msgspec.structs.replace(constant, value=values.get(name, constant.value))
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


def fit(device: Device, measured: Mapping[str, float]) -> Device:
    for stage in stages(measured):
        best = loss(device, stage)
        print(f"{stage.name}: {best:.5f} at first")
        for step in (1.3, 1.1, 1.04):
            better = True
            while better:
                better = False
                for names, (least, most) in stage.free.items():
                    for factor in (step, 1 / step):
                        if not least <= device.timing[names[0]].value * factor <= most:
                            continue
                        tried = changed(device, {name: device.timing[name].value * factor for name in names})
                        now = loss(tried, stage)
                        if now < best:
                            device, best, better = tried, now, True
                            told = ", ".join(f"{name} {device.timing[name].value:.4g}" for name in names)
                            print(f"  {best:.5f}  {told}", flush=True)
    return device
