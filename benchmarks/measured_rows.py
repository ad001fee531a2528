"""The public measurements that constants may be fitted to, as kernel calls with a mean time.

The table is measured_kernels_by_shape.csv of the real captures (tests/real_data.py); a few more means of the same
captures are listed here with their place.
"""

from __future__ import annotations

import csv
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from real_data import DATA

from npuscope.forward.calls import Call, CallTensor

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
