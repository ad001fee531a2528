"""How long work takes by the chip's peak rates alone: for telling short from long and ranking, never for a promise.

A block gets its even share of the memory's bandwidth and its core's cube rate; whichever takes longer is the estimate.
Latency, vector work and what neighbours leave of the bandwidth are not in it. A simulation says what a change buys.
"""

from __future__ import annotations

from npuscope.check.findings import Severity, Waste
from npuscope.check.traffic.table import traffic_of
from npuscope.chip.devices import Device
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
    moved = traffic_of(program).moved[program.launches.index(launch)]
    blocks = max(launch.blocks, 1)
    memory = moved.bytes / blocks / (device.bandwidth / cores_of(device, launch.core))
    return max(memory, _cube_seconds(moved.flops / blocks, device) * device.cores.cube.value)


def least_seconds(program: Program) -> float:
    """The whole program at the memory's full bandwidth or at the cube's peak, whichever takes longer."""
    bytes_moved = flops = 0
    for launch, moved in zip(program.launches, traffic_of(program).moved, strict=True):
        bytes_moved += moved.bytes * len(launch.tasks)
        flops += moved.flops * len(launch.tasks)
    return max(bytes_moved / program.device.bandwidth, _cube_seconds(flops, program.device))


def seconds_of(waste: Waste, device: Device) -> float:
    """One number to rank findings by: as if nothing overlapped, with a task at what the orchestrator and a scheduler
    thread spend on it, and a wait at the latter.
    """
    submit, task = (device.runtime[n].value if n in device.runtime else 0.0 for n in ("submit", "task_cost"))
    work = waste.bytes / device.bandwidth + _cube_seconds(waste.flops, device)
    return work + waste.tasks * (submit + task) + waste.waits * task


def _cube_seconds(flops: float, device: Device) -> float:
    rate = device.peak("cube", "bf16")
    return flops / rate if rate else 0.0


def severity(program: Program, waste: Waste) -> Severity:
    """A warning where the bytes are a large part of what the program moves, or the tasks of those it has."""
    moved = zip(program.launches, traffic_of(program).moved, strict=True)
    whole = sum(move.bytes * len(launch.tasks) for launch, move in moved)
    large = waste.bytes >= LARGE * whole or waste.tasks >= MOST * len(program.recording.tasks)
    return "warning" if large else "hint"
