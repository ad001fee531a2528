"""Forward passes written by hand: calls end to end on one stream, in microseconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
from made import Task, made

from npuscope import explain as analysis
from npuscope.explain.passes.found import Passes, passes
from npuscope.explain.repetition import Steps
from npuscope.trace import Trace

# type, microseconds, and perhaps shapes
Call = tuple[str, float] | tuple[str, float, str]


def a_pass(calls: Sequence[Call], columns: Mapping[str, Any] | None = None, gap: float = 0.0) -> Trace:
    """A trace of the calls, with a gap after each; `columns` has more facts, one per call."""
    now, tasks = 0.0, []
    for number, (kernel, us, *shapes) in enumerate(calls):
        more = {"Type": kernel, "Input Shapes": shapes[0] if shapes else "N/A"}
        more |= {name: values[number] for name, values in (columns or {}).items()}
        tasks.append(Task(number, f"{kernel}_{number}", "stream_7", now, now + us, more=tuple(more.items())))
        now += us + gap
    return made(tasks)


# two layers of a model, measured in microseconds
MEASURED: list[Call] = [
    ("RmsNorm", 5.0, "16,512;512"),
    ("MatMulV2", 11.0, '"16,512;48,32,16,16"'),
    ("FusedInferAttentionScore", 60.0, "16,4,128"),
    ("MatMulV2", 9.0, "16,512;512,512"),
    ("hcom_allReduce_", 20.0),
    ("AddRmsNormBias", 5.0, "16,512"),
    ("SwiGlu", 5.0, "16,3200"),
    ("hcom_allReduce_", 80.0),
    ("MatMulV2", 11.0, '"16,512;48,32,16,16"'),
    ("FusedInferAttentionScore", 62.0, "16,4,128"),
    ("MatMulV2", 9.0, "16,512;512,512"),
    ("hcom_allReduce_", 22.0),
    ("ArgMaxV2", 18.0, "16,1000"),
]  # fmt: skip
# the same by a model: other names, weights the other way round, no SwiGlu, no sampling, a transpose too many
PREDICTED: list[Call] = [
    ("rms_norm", 2.0, "16,512;512"),
    ("aten.mm.default", 13.0, "16,512;512,768"),
    ("attention", 36.0, "16,4,128"),
    ("aten.mm.default", 10.0, "16,512;512,512"),
    ("all_reduce", 16.0),
    ("add_rms_norm", 3.0, "16,512"),
    ("transpose", 4.0, "16,512"),
    ("all_reduce", 16.0),
    ("aten.mm.default", 13.0, "16,512;768,512"),
    ("attention", 36.0, "16,4,128"),
    ("aten.mm.default", 10.0, "16,512;512,512"),
    ("all_reduce", 16.0),
]  # fmt: skip


def same(trace: Trace) -> tuple[Steps, Passes]:
    """What `report` and `forward` say of a trace, after they were found to agree."""
    steps, found = analysis.explain(trace).steps, passes(trace)
    assert steps.count == found.count
    inside = found.table.filter(pl.col("step").is_not_null() | (steps.source == "passes"))
    if steps.table.height == inside.height:
        spans = (inside["end_ns"] - inside["start_ns"]).to_list()
        assert steps.table["span_ns"].to_list() == spans
        assert [phase or "unknown" for phase in steps.table["phase"]] == inside["phase"].to_list()
    return steps, found
