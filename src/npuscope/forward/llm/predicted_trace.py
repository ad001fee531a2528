"""A prediction as a Trace: one stream, kernels back to back from zero, with the columns of a kernel table."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict

import polars as pl

from npuscope.chip.kernels import kind_of, rule_of
from npuscope.forward.calls import Call, Tensor
from npuscope.forward.llm.prediction import Prediction
from npuscope.trace.core import Meta, Trace

# the cores a kernel runs on, by how its work is found; the others run on vector cores
CORES = {
    "matmul": "AI_CORE", "grouped": "AI_CORE", "collective": "COMMUNICATION",
    **dict.fromkeys(("attention", "sparse_attention", "indexer", "prolog", "routed", "unpriced"), "MIX_AIC"),
}  # fmt: skip


def predicted_trace(prediction: Prediction) -> Trace:
    """A slice per kernel; one without a price has no length and says UNKNOWN in column `Source`."""
    calls = prediction.calls()
    texts = [_texts(kernel.call) for kernel in prediction.kernels]
    dur = calls["ns"].fill_null(0)
    slices = pl.DataFrame(
        {
            "lane": pl.zeros(calls.height, dtype=pl.UInt32, eager=True),
            "start": dur.cum_sum() - dur,
            "dur": dur,
            "kernel": calls["kernel"] + " " + calls["role"],
            "kind": [kind_of(kernel.call.type) for kernel in prediction.kernels],
            "task": pl.int_range(calls.height, dtype=pl.Int64, eager=True),
            "Name": calls["kernel"] + " " + calls["role"],
            "Type": calls["kernel"],
            "Stream ID": ["0"] * calls.height,
            **{name: [text[name] for text in texts] for name in (texts[0] if texts else {})},
            "part": calls["part"],
            "layer": calls["layer"],
            "position": calls["position"],
            "role": calls["role"],
            "Source": calls["source"],
            "limit_ns": calls["limit_ns"],
        }
    )
    lanes = pl.DataFrame({"lane": [0], "name": ["predicted"], "unit": ["stream"], "device": [0]})
    notes = {
        "model": prediction.model.title,
        "run": asdict(prediction.run),
        "assumptions": prediction.assumptions(),
    }
    meta = Meta("prediction", device=prediction.device.name, records=calls.height, notes=notes)
    return Trace.of(slices, lanes, meta)


def _texts(call: Call) -> dict[str, str]:
    """The cells of a kernel table that tell a call's tensors."""
    cells = {"Accelerator Core": CORES.get(rule_of(call.type).work.by, "AI_VECTOR_CORE")}
    for side, tensors in (("Input", call.inputs), ("Output", call.outputs)):
        cells[f"{side} Shapes"] = (
            '"' + _slots(tensors, lambda t: ",".join(map(str, t.shape))) + '"' if tensors else "N/A"
        )
        cells[f"{side} Data Types"] = _slots(tensors, lambda t: t.dtype or "UNDEFINED", "UNDEFINED") or "N/A"
        cells[f"{side} Formats"] = _slots(tensors, lambda t: t.format or "NULL", "NULL") or "N/A"
    return cells


def _slots(tensors: Iterable[Tensor | None], tell: Callable[[Tensor], str], absent: str = "") -> str:
    return ";".join(absent if tensor is None else tell(tensor) for tensor in tensors)
