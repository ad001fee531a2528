"""How long work takes at least, by the chip's rates alone: for telling short from long, never for a promise.

A block gets its even share of the memory's bandwidth and its core's cube rate; whichever takes longer is the estimate.
Latency, vector work and what neighbours leave of the bandwidth are not in it.
"""

from __future__ import annotations

from npuscope.device.chip import Device
from npuscope.lower.findings import Cost, Severity
from npuscope.lower.program import Launch, Program
from npuscope.tile.record.model import Core

LARGE = 0.05  # of what the whole program moves: a waste to warn of
MOST = 0.25  # of its tasks


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


def least_seconds(program: Program) -> float:
    """The whole program at the memory's full bandwidth or at the cube's peak, whichever takes longer."""
    bytes_moved = flops = 0
    for launch, moved in zip(program.launches, program.traffic.moved, strict=True):
        bytes_moved += moved.bytes * len(launch.tasks)
        flops += moved.flops * len(launch.tasks)
    rate = program.device.peak("cube", "bf16")
    return max(bytes_moved / program.device.bandwidth, flops / rate if rate else 0.0)


def severity(program: Program, cost: Cost) -> Severity:
    """A warning where the bytes are a large part of what the program moves, or the tasks of those it has."""
    moved = zip(program.launches, program.traffic.moved, strict=True)
    whole = sum(move.bytes * len(launch.tasks) for launch, move in moved)
    large = cost.bytes >= LARGE * whole or cost.tasks >= MOST * len(program.recording.tasks)
    return "warning" if large else "hint"
