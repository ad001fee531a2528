"""Work on the AI CPU is no device time, in every room of forward/ and whatever the capture calls it."""

from __future__ import annotations

from typing import Any

import pytest
from written_passes import a_pass

from npuscope.explain.passes import passes
from npuscope.forward.align import align
from npuscope.forward.roofline import roofline


@pytest.mark.parametrize("column", ["Accelerator Core", "Task Type", "taskType"])
def test_it_is_left_out_everywhere(column: str) -> None:
    layer = [("MatMulV2", 10.0), ("FusedInferAttentionScore", 20.0), ("SwiGlu", 5.0)]
    calls = [("GatherV2", 3.0), *layer * 4, ("Cumsum", 50.0), ("ArgMaxV2", 4.0)]
    cores = {column: ["AI_CPU" if kernel == "Cumsum" else "AI_VECTOR_CORE" for kernel, _ in calls]}
    trace = a_pass(calls, cores)
    found: Any = passes(trace).as_dict()
    (told,) = found["passes"]
    assert (told["aicpu_ns"], told["sum_ns"]) == (50_000, (3 + 4 * 35 + 4) * 1000)
    reasons = dict(roofline(trace, "a3").calls.select("kernel", "why").iter_rows())
    assert reasons["Cumsum"] == "runs on the AI CPU, whose rate no device file has"
    assert align(trace, trace).measured.left_out == {"AI_CPU": (1, 50_000)}
