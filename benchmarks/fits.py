"""Fits of kernel families to measured means, by relative error, and their cross-validation."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from real_data import DATA

from npuscope.chip.devices import Device
from npuscope.forward.calls import Call, CallTensor
from npuscope.forward.estimate import GemmCosts, Tilings, gemm_seconds, limit_ns, tilings, token_rows
from npuscope.forward.work import work_of

Floats = NDArray[np.float64]
START = (4e-6, 7e-6, 80e9, 130e9, 1.2)  # GemmCosts to begin from; the fit does not depend on them
LAUNCH = 1.2116e-6  # seconds of the smallest kernel in the table, a Cast of 16 numbers
SOFT = 0.03  # relative errors below this count as squares, above it by their size: outliers do not lead


@dataclass(frozen=True)
class Errors:
    """Predicted over measured minus one, row by row."""

    values: Floats

    @property
    def mean(self) -> float:
        return float(np.mean(np.abs(self.values)))

    @property
    def bias(self) -> float:
        return float(np.mean(self.values))

    @property
    def worst(self) -> float:
        return float(np.max(np.abs(self.values)))


# ---- matrix products


class GemmFit:
    """Products stacked, so that one evaluation is a few array operations."""

    def __init__(self, rows: Sequence[Row], device: Device) -> None:
        self.rows, self.device = list(rows), device
        cores = int(device.cores.cube.value)
        self.int8 = np.array([[row.call.type.startswith("Quant")] for row in rows])
        self.v3 = np.array([[row.call.type == "MatMulV3"] for row in rows])
        each = [tilings(*row.mkn, bool(q), cores) for row, q in zip(rows, self.int8[:, 0], strict=True) if row.mkn]
        fields = ("waves", "tile_bytes", "share_bytes", "weight_bytes", "tile_macs")
        self.tilings = Tilings(*(np.array([getattr(t, name) for t in each]) for name in fields))
        peaks = {q: (device.peak("cube", "int8" if q else "bf16") or 0) / 2 / cores for q in (True, False)}
        self.macs = np.where(self.int8, peaks[True], peaks[False])
        self.seconds = np.array([row.us for row in rows]) * 1e-6

    def predict(self, costs: GemmCosts, at: Any = slice(None)) -> Floats:
        t = Tilings(*(getattr(self.tilings, name)[at] for name in self.tilings.__dataclass_fields__))
        found = gemm_seconds(
            t, costs, int8=self.int8[at], v3=self.v3[at], bandwidth=self.device.bandwidth, macs_per_second=self.macs[at]
        )
        return np.atleast_1d(found)

    def errors(self, costs: GemmCosts, at: Any = slice(None)) -> Floats:
        return self.predict(costs, at) / self.seconds[at] - 1

    def fit(self, at: Any = slice(None), start: Sequence[float] = START) -> GemmCosts:
        def loss(logs: Floats) -> float:
            e = self.errors(GemmCosts(*np.exp(logs)), at)
            return float(np.mean(np.sqrt(e * e + SOFT * SOFT)))

        best = np.log(np.array(start))
        for step in (0.3, 0.1):
            best = simplex(loss, best, step)
        return GemmCosts(*(float(v) for v in np.exp(best)))

    def cross_validated(self, key: Callable[[Row], Hashable]) -> Errors:
        """Every row predicted by a fit that saw no row of its group."""
        keys = [key(row) for row in self.rows]
        errors = np.zeros(len(keys))
        for group in dict.fromkeys(keys):
            inside = np.array([k == group for k in keys])
            errors[inside] = self.errors(self.fit(~inside), inside)
        return Errors(errors)


def simplex(loss: Callable[[Floats], float], start: Floats, step: float, most: int = 600) -> Floats:
    """Nelder and Mead's search for a minimum."""
    points = [start, *(start + step * axis for axis in np.eye(len(start)))]
    values = [loss(p) for p in points]
    for _ in range(most):
        order = np.argsort(values, kind="stable")
        points, values = [points[i] for i in order], [values[i] for i in order]
        if values[-1] - values[0] < 1e-10:
            break
        centre = np.mean(points[:-1], axis=0)

        def along(t: float, centre: Floats = centre, worst: Floats = points[-1]) -> tuple[float, Floats]:
            point = centre + t * (centre - worst)
            return loss(point), point

        value, point = along(1.0)
        if value < values[0]:
            value, point = min((value, point), along(2.0), key=lambda pair: pair[0])
        elif value >= values[-2]:
            value, point = along(-0.5)
            if value >= values[-1]:
                points = [points[0], *(points[0] + 0.5 * (p - points[0]) for p in points[1:])]
                values = [values[0], *(loss(p) for p in points[1:])]
                continue
        points[-1], values[-1] = point, value
    return points[int(np.argmin(values))]


# ---- lines: fixed + spread · share of cores + bytes / rate


@dataclass(frozen=True)
class Line:
    """Seconds, and bytes per second; None where the measurements are too few to tell."""

    fixed: float | None
    spread: float | None
    rate: float | None


def line_fit(rows: Sequence[Row], device: Device) -> Line:
    """As many constants as there are distinct shapes for: one point gives one, from four on there are three."""
    size, used, seconds = _facts(rows, device)
    distinct = len({row.shape for row in rows})
    if distinct == 1:
        if size[0] > 1e6:  # the bytes decide, beyond what the smallest kernel takes
            return Line(LAUNCH, None, float(size[0] / (np.mean(seconds) - LAUNCH)))
        limit = limit_ns(work_of(rows[0].call), device).ns or 0.0
        return Line(max(0.0, float(np.mean(seconds)) - limit / 1e9), None, None)
    columns = [np.ones_like(size), size / device.bandwidth] + ([used] if distinct >= 4 else [])
    # never faster than the memory and the smallest kernel: the fit is of what comes on top
    floor = LAUNCH + size / device.bandwidth
    parts = positive(np.array(columns).T / seconds[:, None], 1 - floor / seconds)
    rate = device.bandwidth / (1 + parts[1])
    return Line(LAUNCH + float(parts[0]), float(parts[2]) if distinct >= 4 else None, float(rate))


def line_seconds(rows: Sequence[Row], line: Line, device: Device) -> Floats:
    size, used, _ = _facts(rows, device)
    limits = np.array([(limit_ns(work_of(row.call), device).ns or 0.0) / 1e9 for row in rows])
    moved = size / line.rate if line.rate else limits
    return (line.fixed or 0.0) + (line.spread or 0.0) * used + moved


def line_cross_validated(rows: Sequence[Row], device: Device) -> Errors | None:
    """Each shape predicted by the others; None where fewer than three shapes leave nothing to fit."""
    shapes = list(dict.fromkeys(row.shape for row in rows))
    if len(shapes) < 3:
        return None
    errors = []
    for shape in shapes:
        held = [row for row in rows if row.shape == shape]
        line = line_fit([row for row in rows if row.shape != shape], device)
        errors += list(line_seconds(held, line, device) / np.array([row.us * 1e-6 for row in held]) - 1)
    return Errors(np.array(errors))


def _facts(rows: Sequence[Row], device: Device) -> tuple[Floats, Floats, Floats]:
    works = [work_of(row.call) for row in rows]
    size = np.array([float(work.bytes or 0) for work in works])
    used = np.array([min(1.0, token_rows(row.call) / device.cores.vector.value) for row in rows])
    return size, used, np.array([row.us * 1e-6 for row in rows])


def positive(a: Floats, b: Floats) -> Floats:
    """Least squares with no negative part, by trying every set of parts that may be positive."""
    n = a.shape[1]
    best, least = np.zeros(n), float(b @ b)
    for count in range(1, n + 1):
        for kept in combinations(range(n), count):
            x = np.zeros(n)
            x[list(kept)] = np.linalg.lstsq(a[:, list(kept)], b, rcond=None)[0]
            if np.all(x >= 0) and (rest := float(np.sum((a @ x - b) ** 2))) < least - 1e-15:
                best, least = x, rest
    return best


TABLE = DATA / "measured_kernels_by_shape.csv"
SECTION_4 = "measured.md §4"
# outputs that the table does not have: one of q, k, v; half of a head; the rope part of a query
ASSUMED_OUTPUTS = {
    ("Slice", (16, 768)): (16, 256),
    ("Slice", (256, 16, 256)): (256, 16, 128),
    ("Slice", (3072, 6, 128)): (3072, 4, 128),
    ("AsStrided", (15360,)): (5, 16, 1, 64),
}
FLOATS = ("Sort", "SoftmaxV2", "GreaterEqual", "Mul", "Neg")  # sampling works on FLOAT logits


@dataclass(frozen=True)
class Row:
    """One mean over `count` calls, in microseconds."""

    source: str
    call: Call
    us: float
    std_us: float | None
    count: int
    text: str  # the shapes as written
    mkn: tuple[int, int, int] | None = None  # of a matrix product, where the table tells

    @property
    def int8(self) -> bool:
        return self.call.type == "QuantBatchMatmulV3"

    @property
    def shape(self) -> tuple[object, ...]:
        """What makes a row another measurement of the same call: type and product, or type and first shape."""
        first = self.call.inputs[0].shape if self.call.inputs and self.call.inputs[0] else self.text
        return (self.call.type, self.mkn or first)


def table_rows() -> list[Row]:
    """Every row of the table."""
    with TABLE.open() as file:
        return [_row(cells) for cells in csv.DictReader(file)]


def section_4() -> list[Row]:
    """Means that the table does not have."""
    logits, mask = CallTensor((16, 151936), "FLOAT"), CallTensor((16, 151936), "BOOL")
    order, limits = CallTensor((16, 151936), "INT32"), (CallTensor((16,), "FLOAT"), CallTensor((16,), "INT32"))
    rows = [_product(m, k, n, us) for m, k, n, us in GEMMS]
    small = [
        (
            Call("split_qkv_rmsnorm_rope_kernel", (_bf16(16, 768), _bf16(81920, 128), CallTensor((16,), "INT64"))),
            13.80,
            63,
        ),
        (Call("ReshapeAndCacheNdKernel", (*[_bf16(16, 1, 128)] * 2, *[_bf16(12308, 128, 1, 128)] * 2)), 4.17, 64),
        (Call("SwiGlu", (_bf16(16, 3200),)), 5.19, 64),
        (Call("DSARandomUniform", (), (logits,)), 233.7, 1),
        (Call("ArgMaxV2", (logits,), _outputs("ArgMaxV2", logits)), 139.6, 1),
        (Call("MaskedFill", (logits, mask), (logits,)), 34.9, 1),
        (Call("ApplyTopKTopPCustom", (logits, order, *limits), (logits,)), 29.7, 1),
        (Call("RealDiv", (logits,), (logits,)), 19.6, 1),
    ]
    for call, us, count in small:
        shapes = ";".join(",".join(map(str, t.shape)) for t in (call.inputs or call.outputs) if t)
        rows.append(Row(SECTION_4, call, us, None, count, shapes))
    return rows


GEMMS = [
    (16, 5120, 768, 11.04), (16, 512, 5120, 8.63), (16, 5120, 3200, 32.12), (16, 1600, 5120, 18.76),
    (16, 5120, 9496, 86.60),
]  # fmt: skip


def _product(m: int, k: int, n: int, us: float) -> Row:
    call = Call("MatMulV2", (_bf16(m, k), _bf16(n, k)), (_bf16(m, n),))
    return Row(SECTION_4, call, us, None, 1 if n == 9496 else 64, f"{m},{k};{n},{k}", (m, k, n))


def _bf16(*shape: int) -> CallTensor:
    return CallTensor(shape)


def _row(cells: dict[str, str]) -> Row:
    kind = cells["kernel_type"]
    shapes = cells["input_shapes"].split(" (")[0].split(";")
    told = [word.removeprefix("DT_") for word in cells["input_dtypes"].split(";")]
    usual = "FLOAT" if kind in FLOATS else "BF16"
    tensors: list[CallTensor | None] = []
    for slot, shape in enumerate(shapes):
        dtype = told[slot] if slot < len(told) and told[slot] in KNOWN else usual
        if kind == "QuantBatchMatmulV3" and not cells["input_dtypes"]:
            dtype = "INT8" if slot < 2 else "FLOAT"
        numbers = tuple(int(n) for n in shape.split(",") if n)
        tensors.append(CallTensor(numbers, dtype, None) if numbers else None)
    mkn = tuple(int(cells[d]) for d in ("M", "K", "N")) if cells["M"] else None
    call = Call(kind, tuple(tensors), _outputs(kind, tensors[0]))
    std = float(cells["std_us"]) if cells["std_us"] else None
    return Row(cells["source"], call, float(cells["mean_us"]), std, int(cells["count"]), cells["input_shapes"], mkn)  # type: ignore[arg-type]


def _outputs(kind: str, first: CallTensor | None) -> tuple[CallTensor, ...]:
    """What the table does not tell, as npuscope predicts the same kernel; nothing where the input tells enough."""
    if first is None:
        return ()
    if (kind, first.shape) in ASSUMED_OUTPUTS:
        return (CallTensor(ASSUMED_OUTPUTS[kind, first.shape]),)
    return {
        "Sort": (first, CallTensor(first.shape, "INT32")),
        "SoftmaxV2": (first,),
        "ApplyTopKTopPCustom": (first,),
        "GreaterEqual": (CallTensor(first.shape, "BOOL"),),
        "MaskedFill": (first,),
        "ArgMaxV2": (CallTensor(first.shape[:1], "INT64"),),
    }.get(kind, ())


KNOWN = ("BF16", "FLOAT", "INT8", "INT32", "INT64", "BOOL")
