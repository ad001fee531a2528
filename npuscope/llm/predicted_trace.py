"""A prediction as a Trace: one stream, kernels back to back from zero, with the columns of a kernel table."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict

import polars as pl

from npuscope.forward.calls import Call, Tensor
from npuscope.forward.work.families import rule_of
from npuscope.llm.prediction import Prediction
from npuscope.trace.core import Trace
from npuscope.trace.meta import Meta

COLLECTIVE = "collective"
CUBE = ("gemm", "quant_matmul", "grouped_matmul")
MIXED = ("attention", "mla_prolog", "moe_exchange")  # cube and vector cores together


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
            "kind": ["comm" if _family(kernel.call) == COLLECTIVE else "task" for kernel in prediction.kernels],
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
    cells = {"Accelerator Core": _core(call)}
    for side, tensors in (("Input", call.inputs), ("Output", call.outputs)):
        cells[f"{side} Shapes"] = (
            '"' + _slots(tensors, lambda t: ",".join(map(str, t.shape))) + '"' if tensors else "N/A"
        )
        cells[f"{side} Data Types"] = _slots(tensors, lambda t: t.dtype or "UNDEFINED", "UNDEFINED") or "N/A"
        cells[f"{side} Formats"] = _slots(tensors, lambda t: t.format or "NULL", "NULL") or "N/A"
    return cells


def _core(call: Call) -> str:
    family = _family(call)
    if family == COLLECTIVE:
        return "COMMUNICATION"
    return "AI_CORE" if family in CUBE else "MIX_AIC" if family in MIXED else "AI_VECTOR_CORE"


def _family(call: Call) -> str:
    return rule_of(call.type).name


def _slots(tensors: Iterable[Tensor | None], tell: Callable[[Tensor], str], absent: str = "") -> str:
    return ";".join(absent if tensor is None else tell(tensor) for tensor in tensors)
