"""What a fit is held to: published changes, mean run times of blocks, and public measurements, each as a logarithm."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from pathlib import Path
from statistics import fmean

from published_changes.measures import Measured, NoScope, quantity
from published_changes.rows import Row, Side

SIDES: tuple[str, str] = ("before", "after")
OTHER_PROGRAM = ("attn_swpipe", "fa_fused", "pa_tiling")  # of the 14B table: attention is another kernel there
US = 1e3


@dataclass(frozen=True)
class Evidence:
    """One number. `group` is what is left out together; `measured` is its natural logarithm."""

    name: str
    kind: str  # change, side, block or public
    group: str
    weight: float
    measured: float


@dataclass(frozen=True)
class Table:
    """Mean run times of a program's blocks by kernel, in µs."""

    name: str
    side: Side
    means: Mapping[tuple[str, str], float]  # kernel, unit


QWEN3_14B = Side(
    "634e77bde7c312b4778578df5c80e7fdc062a578", "models/qwen3_14b/decode_fwd.py", "-p a2a3", "decode_fwd_layers", "a2a3"
)
QWEN3_32B = Side(
    "4376ac474ca240e04e696734cfd6ef28f82386f9",
    "models/qwen3/32b/qwen3_32b_decode.py",
    "-p a2a3",
    "qwen3_decode",
    "a2a3",
)


def tables(folder: Path) -> list[Table]:
    """Of the two layers. Of the first two runs are published; a kernel's mean is that of both."""
    small = {(cells["kernel"], cells["unit"]): [float(cells["mean_us"])] for cells in _cells(folder, "mainline")}
    for cells in _cells(folder, "leaves"):
        if "batch16" in cells["leaf"] and (cells["kernel"], cells["unit"]) in small:
            small[cells["kernel"], cells["unit"]].append(float(cells["mean_us"]))
    large = {(cells["kernel"], cells["unit"]): float(cells["avg_exec_us"]) for cells in _cells(folder, "32b_decode")}
    means = {key: exp(fmean(map(log, (runs[0], fmean(runs[1:] or runs))))) for key, runs in small.items()}
    kept = {key: mean for key, mean in means.items() if key[0] not in OTHER_PROGRAM}
    return [Table("Qwen3-14B", QWEN3_14B, kept), Table("Qwen3-32B", QWEN3_32B, large)]


def _cells(folder: Path, name: str) -> list[dict[str, str]]:
    with (folder / f"qwen3_{name}_blocks.csv").open(newline="") as source:
        return list(csv.DictReader(line for line in source if not line.startswith("#")))


def block_means(run: Measured) -> dict[tuple[str, str], float]:
    """Mean run in µs of the blocks of each kernel on one unit; kernels that differ in a number are one."""
    busy: Counter[tuple[str, str]] = Counter()
    slices: Counter[tuple[str, str]] = Counter()
    for scope in run.scopes:
        key = re.sub(r"(_\d+)+$", "", scope.kernel), scope.unit
        busy[key] += scope.busy
        slices[key] += scope.slices
    return {key: busy[key] / slices[key] / US for key in busy}


def of_changes(rows: Sequence[Row], runs: Mapping[Side, Measured]) -> list[tuple[Evidence, float]]:
    """Every row's ratio and, of less weight, its two times; with what is predicted."""
    found = []
    rows_of = Counter(row.commit for row in rows)
    for row in rows:
        if any(row.sides[which] not in runs for which in ("before", "after")):
            continue
        try:
            before, after = (
                quantity(row, "before", runs[row.sides["before"]]),
                quantity(row, "after", runs[row.sides["after"]]),
            )
        except NoScope:
            continue
        weight = rows_of[row.commit] ** -0.5
        found.append((Evidence(row.id, "change", row.commit, 2 * weight, row.change), log(after / before)))
        if row.nanoseconds is None:
            continue
        share = weight * (0.25 if row.quantity in ("wall", "corespan") else 0.5)
        for which, measured, predicted in (("before", row.before, before), ("after", row.after, after)):
            one = Evidence(f"{row.id} {which}", "side", row.commit, share, log(measured * row.nanoseconds))
            found.append((one, log(predicted)))
    return found


def of_tables(known: Sequence[Table], runs: Mapping[Side, Measured]) -> list[tuple[Evidence, float]]:
    found = []
    for table in known:
        if table.side not in runs:
            continue
        predicted = block_means(runs[table.side])
        weight = 1.4 if table.name == "Qwen3-14B" else 0.8
        for key, mean in table.means.items():
            if key in predicted:
                one = Evidence(f"{table.name} {key[0]}", "block", table.name, weight, log(mean))
                found.append((one, log(predicted[key])))
    return found
