"""One number to rank findings by: an estimate of the time a cost stands for, by the chip's peak rates.

No more than that: traffic at the memory's full bandwidth, cube work at the bf16 peak, a task at what the orchestrator
and a scheduler thread spend on it, a wait at the latter, all added as if nothing overlapped. A simulation of the
program will say what a change really buys.
"""

from __future__ import annotations

from npuscope.device.chip import Device
from npuscope.lower.findings import Cost


def seconds(cost: Cost, device: Device) -> float:
    """An estimate for ranking."""
    peak = device.peak("cube", "bf16")
    submit, task = (device.runtime[n].value if n in device.runtime else 0.0 for n in ("submit", "task_cost"))
    cube = cost.flops / peak if peak else 0.0
    return cost.bytes / device.bandwidth + cube + cost.tasks * (submit + task) + cost.waits * task
