"""A small capture of our own making: three decode steps of a four-layer model as Ascend's profiler lists them.

It has the traps of real files: collectives told twice, tiling on the AI CPU, two streams, a slow first step.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path

from npuscope.trace.writers.atomic import whole_file

HEADER = [
    "Step Id",
    "Device_id",
    "Task ID",
    "Stream ID",
    "Name",
    "Type",
    "Accelerator Core",
    "Start Time(us)",
    "Duration(us)",
    "Wait Time(us)",
    "Block Num",
    "Input Shapes",
    "Input Data Types",
    "Input Formats",
]
LAYERS, STEPS, BATCH, HIDDEN = 4, 3, 16, 5120
EPOCH_NS = 1_779_440_805_781_809_542


@dataclass(frozen=True)
class Kernel:
    """One kernel of a layer: its type, core, nanoseconds, blocks and input shapes."""

    type: str
    core: str
    ns: int
    blocks: int
    shapes: str


LAYER = (
    Kernel("RmsNorm", "AI_VECTOR_CORE", 6_020, 16, f"{BATCH},{HIDDEN};{HIDDEN}"),
    Kernel("MatMulV2", "AI_CORE", 41_380, 24, f"{BATCH},{HIDDEN};448,320,16,16"),
    Kernel("RotaryMul", "AI_VECTOR_CORE", 5_240, 40, f"{BATCH},40,128;{BATCH},1,128"),
    Kernel("FusedInferAttentionScore", "MIX_AIC", 38_600, 24, f"{BATCH},40,128;161,8,32,128,16"),
    Kernel("MatMulV2", "AI_CORE", 30_120, 24, f"{BATCH},{HIDDEN};320,320,16,16"),
    Kernel("HcomAllReduce", "COMMUNICATION", 19_480, 8, f"{BATCH},{HIDDEN}"),
    Kernel("RmsNorm", "AI_VECTOR_CORE", 6_100, 16, f"{BATCH},{HIDDEN};{HIDDEN}"),
    Kernel("MatMulV2", "AI_CORE", 118_640, 24, f"{BATCH},{HIDDEN};2176,320,16,16"),
    Kernel("SwiGlu", "AI_VECTOR_CORE", 8_900, 48, f"{BATCH},34816"),
    Kernel("MatMulV2", "AI_CORE", 61_460, 24, f"{BATCH},17408;320,1088,16,16"),
    Kernel("HcomAllReduce", "COMMUNICATION", 20_260, 8, f"{BATCH},{HIDDEN}"),
)
GAP_NS, FIRST_WAIT_NS = 1_360, 900_000


def write_decode_steps(path: Path) -> None:
    """Write the capture; every run gives the same bytes."""
    rows: list[tuple[int, list[str]]] = []
    now = EPOCH_NS
    for step in range(3, 3 + STEPS):
        for layer in range(LAYERS):
            for position, kernel in enumerate(LAYER):
                late = FIRST_WAIT_NS if step == 3 and layer == 0 and kernel.core == "COMMUNICATION" else 0
                rows += _rows(step, layer, position, kernel, now, kernel.ns + late)
                now += kernel.ns + late + GAP_NS
        now += 40_000
    rows.sort(key=lambda row: row[0])
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([HEADER, *(cells for _, cells in rows)])
    with whole_file(path) as file:
        file.write(text.getvalue().encode())


def _rows(step: int, layer: int, position: int, kernel: Kernel, start: int, ns: int) -> list[tuple[int, list[str]]]:
    task, name = layer * len(LAYER) + position, f"{kernel.type}_{layer}_{position}"
    shapes = [f'"{kernel.shapes}"', ";".join(["DT_BF16"] * (kernel.shapes.count(";") + 1)), "ND"]
    none = ["N/A"] * 3

    def row(
        start: int, ns: int, task: str, stream: str, name: str, core: str, blocks: int, rest: list[str]
    ) -> tuple[int, list[str]]:
        time = [f"{start // 1000}.{start % 1000:03d}\t", f"{ns // 1000}.{ns % 1000:03d}", "0"]
        return start, [str(step), "0", task, stream, name, kernel.type, core, *time, str(blocks), *rest]

    if kernel.core == "COMMUNICATION":
        logical = row(start, ns, "N/A", "N/A", f"{name}_1", kernel.core, 0, none)
        return [logical, row(start, ns, str(task), "165", "AivKernel", kernel.core, kernel.blocks, none)]
    rows = [row(start, ns, str(task), "166", name, kernel.core, kernel.blocks, shapes)]
    if kernel.type == "FusedInferAttentionScore":
        rows.append(row(start - 90_000, 76_480, str(task), "162", kernel.type, "AI_CPU", 0, none))
    return rows
