"""One number to rank findings by: an estimate of the time a cost stands for, by the chip's peak rates.

No more than that: traffic at the memory's full bandwidth, cube work at the bf16 peak, a task at what the orchestrator
and a scheduler thread spend on it, all added as if nothing overlapped. A simulation of the program will say what a
change really buys.
"""

from __future__ import annotations

from npuscope.device.chip import Device
from npuscope.lower.findings import Cost


def seconds(cost: Cost, device: Device) -> float:
    """An estimate for ranking."""
    peak = device.peak("cube", "bf16")
    per_task = sum(device.runtime[name].value for name in ("submit", "task_cost") if name in device.runtime)
    return cost.bytes / device.bandwidth + (cost.flops / peak if peak else 0.0) + cost.tasks * per_task
