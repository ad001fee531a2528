"""What readers say that their captures tell is so, and the page that is made of it has all of it."""

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

import npuscope
from docs.reference_pages import producers_page
from npuscope.explain.waits import dependencies
from npuscope.trace import Trace
from npuscope.trace.formats import QUESTIONS, Format, readers
from npuscope.trace.names import LAUNCHES, source_column

BUILT_IN = {reader.name: reader for reader in readers(Format)}
NO_PRODUCER = {"chrome", "parquet", "profiler-root"}  # anybody's, npuscope's own, folders of others
RUN = "cann_pypto/output_20261117_212512"
# captures that meet every condition their readers state
RICH = {
    "kernel_details": "ascend/longcat_910c/kernel_details.csv",
    "ascend-db": "ascend/msinsight_cnn_db/level2/ascend_pytorch_profiler_0.db",
    "trace_view": "ascend/msinsight_cnn/level2/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT/trace_view.json",
    "kineto": "gpu/tracelens_h100_qwen1.5_0.5b.json.gz",
    "swimlane": "simpler/swimlane/bgemm_Case1_L4",
    "merged-swimlane": "pypto/merged_swimlane_block_table.json",
    "tracr": "simpler/tracr/l3_group_tracr",
    "swimlane+tracr": "simpler/tracr/pa_varseq4_both",
    "cann-pypto": RUN,
    "cann-swimlane": f"{RUN}/CostModelSimulationOutput/merged_swimlane.json",
    "cann-simulator": f"{RUN}/CostModelSimulationOutput/_simulate.pefetto.trace.json",
}


def _shapes(trace: Trace) -> bool:
    """Shapes beside the kernel, beside the operator that launched it, or the work of its leaf."""
    if source_column(trace.slices, "input_shapes") is not None or "leaves" in trace.meta.notes:
        return True
    return trace.meta.format == "kineto" and bool(trace.slices["args"].str.contains("Input Dims").any())


SHOWS: dict[str, Callable[[Trace], bool]] = {
    "kernels": lambda t: t.slices.filter(pl.col("kind") == "task")["kernel"].n_unique() > 1,
    "cores": lambda t: t.lanes["unit"].is_in(["AIC", "AIV"]).any(),
    "streams": lambda t: (t.lanes["unit"] == "stream").any(),
    "dependencies": lambda t: dependencies(t).height > 0,
    "scheduling": lambda t: bool(t.lanes["unit"].is_in(["AIC"]).any()) and (t.slices["kind"] == "schedule").any(),
    "launches": lambda t: "name" in t.edges.columns and t.edges["name"].is_in(list(LAUNCHES)).any(),
    "steps": lambda t: t.slices["step"].null_count() < t.slices.height,
    "shapes": _shapes,
    "counters": lambda t: t.counters.height > 0,
    "lines": lambda t: any(leaf["place"] for leaf in t.meta.notes.get("leaves", {}).values()),
}


def test_every_reader_states_what_its_captures_tell() -> None:
    assert {name for name, reader in BUILT_IN.items() if not reader.tells} == NO_PRODUCER
    stated = {question for reader in BUILT_IN.values() for question in reader.answers()}
    assert stated == QUESTIONS.keys()


def test_the_page_has_every_question_and_producer() -> None:
    rows = [line.strip("|").split("|") for line in producers_page().splitlines() if line.startswith("|")]
    head, _, *body = [[cell.strip() for cell in row] for row in rows]
    assert [row[0] for row in body] == list(QUESTIONS.values())
    for column, name in enumerate(head[1:], 1):
        answers = BUILT_IN[name.strip("`")].answers()
        cells = {question: row[column] for question, row in zip(QUESTIONS, body, strict=True)}
        assert cells == {q: (answers[q] or "yes") if q in answers else "–" for q in QUESTIONS}


@pytest.mark.parametrize("name", RICH)
def test_a_capture_tells_what_its_reader_states_and_no_more(shared: Path, name: str) -> None:
    trace = npuscope.read(shared / RICH[name])
    assert {question for question, shows in SHOWS.items() if shows(trace)} == BUILT_IN[
        name
    ].answers().keys() & SHOWS.keys()
