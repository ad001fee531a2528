"""The roofline of a simulated program: what its kernels compute and draw from HBM, against what the chip can do.

A row is a kernel, all its blocks together, and its time is while at least one core ran it. Bytes are those that the
simulation draws from HBM, after L2; FLOPs are of its instructions, each type at its own rate.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

import numpy as np
import polars as pl

from npuscope.chip.devices import Device
from npuscope.explain.busy_idle import Busy
from npuscope.forward.estimate import Bound
from npuscope.forward.roofline import CALLS, Roofline
from npuscope.lower.model import Instruction, Items, Lowered
from npuscope.lower.program import planned_key
from npuscope.ops.dtypes import BY_NAME
from npuscope.time.run import Simulated

Flops = Counter[tuple[Bound, str]]  # by unit and type
FAMILIES = {"AIC": "cube", "AIV": "vector", "MIX": "cube and vector", "none": "no work"}
BY_WIDTH = {1: "int8", 2: "fp16", 4: "fp32"}  # the rate of types that the device's file does not name


def program_roofline(simulated: Simulated, busy: Busy) -> Roofline:
    """Every kernel of a simulated run; `busy` has their times."""
    program = simulated.prepared.program
    took = dict(busy.kernels.select("kernel", "on_core_ns").iter_rows())
    flops, moved = _flops(simulated), _from_hbm(simulated)
    cores = {task.kernel: task.core for task in program.recording.tasks}
    rows = [
        (
            kernel,
            None,
            None,
            FAMILIES[cores[kernel]],
            *_limit(flops[kernel], moved[kernel], program.device),
            False,
            None,
        )
        for kernel in took
        if kernel in cores
    ]
    table = pl.DataFrame(rows, schema=CALLS, orient="row").with_columns(
        pl.lit(1, pl.Int64).alias("count"),
        pl.col("kernel").replace_strict(took, return_dtype=pl.Int64).alias("measured_ns"),
    )
    table = table.with_columns(
        pl.col("measured_ns").cast(pl.Float64).alias("mean_ns"),
        pl.when(pl.col("measured_ns") > 0).then(pl.col("limit_ns") / pl.col("measured_ns")).alias("efficiency"),
        (pl.col("measured_ns") - pl.col("limit_ns")).alias("lost_ns"),
    ).sort("lost_ns", "kernel", descending=[True, False])
    return Roofline(table, program.device, "the simulation", None, 0, {}, simulated=True)


def _limit(flops: Flops, moved: int, device: Device) -> tuple[float, int, float, Bound, float | None]:
    """FLOPs, bytes, the least time, which unit it is of, and the rate of the type that most FLOPs are of."""
    least: dict[Bound, float] = {"memory": moved / device.bandwidth * 1e9}
    for (unit, dtype), count in flops.items():
        if rate := _rate(unit, dtype, device):
            least[unit] = least.get(unit, 0.0) + count / rate * 1e9
    bound = max(least, key=least.__getitem__)
    most = flops.most_common(1)
    return float(flops.total()), moved, least[bound], bound, _rate(*most[0][0], device) if most else None


def _rate(unit: Bound, dtype: str, device: Device) -> float | None:
    assert unit in ("cube", "vector")
    return device.peak(unit, dtype.lower()) or device.peak(unit, BY_WIDTH.get(BY_NAME[dtype].bytes, "fp32"))


def _from_hbm(simulated: Simulated) -> Mapping[str, int]:
    """Bytes by kernel."""
    job, tasks = simulated.prepared.job, simulated.prepared.program.recording.tasks
    found: dict[str, float] = defaultdict(float)
    of_block = (job.draws[:, 0] * job.run[:, 0])[job.block_class] * (simulated.times.core >= 0)
    of_task = np.bincount(job.task_of, of_block, len(tasks))
    for task, size in zip(tasks, of_task.tolist(), strict=True):
        found[task.kernel] += size
    return defaultdict(int, {kernel: round(size) for kernel, size in found.items()})


def _flops(simulated: Simulated) -> Mapping[str, Flops]:
    program = simulated.prepared.program
    bodies: dict[object, Flops] = {}
    found: dict[str, Flops] = defaultdict(Counter)
    for task in program.recording.tasks:
        for group in task.groups:
            key = planned_key(task, group.body)
            if key not in bodies:
                lowered = program.planned[key].lowered
                bodies[key] = Counter()
                for one, times in _instructions(lowered.items):
                    if one.flops:
                        bodies[key][_unit_and_type(one, lowered)] += one.flops * times
            for kind, count in bodies[key].items():
                found[task.kernel][kind] += count * len(group.blocks)
    return found


def _unit_and_type(one: Instruction, lowered: Lowered) -> tuple[Bound, str]:
    value = next(number for number in (*one.reads[-1:], one.result) if number is not None)
    return "cube" if one.pipe == "M" else "vector", lowered.values[value].dtype


def _instructions(items: Items, times: int = 1) -> Iterator[tuple[Instruction, int]]:
    """Every instruction, and how often a block runs it."""
    for item in items:
        if isinstance(item, Instruction):
            yield item, times
        else:
            yield from _instructions(item.items, times * item.count)
