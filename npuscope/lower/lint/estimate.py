"""How long work takes at least, by the chip's rates alone: for telling short from long, never for a promise.

A block gets its even share of the memory's bandwidth and its core's cube rate; whichever takes longer is the estimate.
Latency, vector work and what neighbours leave of the bandwidth are not in it.
"""

from __future__ import annotations

from npuscope.device.chip import Device
from npuscope.lower.findings import Cost, Severity
from npuscope.lower.program import Launch, Program
from npuscope.tile.record.model import Core

LARGE = 0.05  # of what the whole program moves and dispatches: a waste to warn of


def cores_of(device: Device, core: Core) -> int:
    """Cores of a kind; a mixed task takes a cube core with its two vector cores."""
    return int((device.cores.vector if core == "AIV" else device.cores.cube).value)


def block_seconds(program: Program, launch: Launch) -> float:
    """A block of a launch, on average over its blocks."""
    device = program.device
    moved = program.traffic.moved[program.launches.index(launch)]
    blocks = max(launch.blocks, 1)
    memory = moved.bytes / blocks / (device.bandwidth / cores_of(device, launch.core))
    rate = device.peak("cube", "bf16")
    cube = moved.flops / blocks / (rate / device.cores.cube.value) if rate else 0.0
    return max(memory, cube)


def seconds(device: Device, cost: Cost) -> float:
    """Traffic at full bandwidth, cube work at its peak and what the scheduler spends on tasks, added up."""
    rate = device.peak("cube", "bf16")
    cube = cost.flops / rate if rate else 0.0
    task = device.runtime["task_cost"].value if "task_cost" in device.runtime else 0.0
    return cost.bytes / device.bandwidth + cube + cost.tasks * task


def severity(program: Program, cost: Cost) -> Severity:
    """A warning where the cost is a large part of the program."""
    whole = Cost(
        sum(m.bytes * len(launch.tasks) for launch, m in zip(program.launches, program.traffic.moved, strict=True)),
        sum(m.flops * len(launch.tasks) for launch, m in zip(program.launches, program.traffic.moved, strict=True)),
        len(program.recording.tasks),
    )
    large = LARGE * seconds(program.device, whole)
    return "warning" if seconds(program.device, cost) >= large else "hint"
