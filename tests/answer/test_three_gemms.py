"""Three GEMMs as a new user writes them from `npuscope guide`: each has one story, which its own table confirms."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pytest

import npuscope
from npuscope.agents import tools
from npuscope.answer.prediction import Prediction, brief_answer_of
from npuscope.answer.request import Request
from npuscope.explain import explain
from npuscope.explain.diagnosis.cause import FEWER, MORE, Cause
from npuscope.report.captures import report, worth
from npuscope.report.simulate import simulate
from npuscope.report.whatif import gains
from npuscope.table.formats import percent
from npuscope.table.parts import as_text
from npuscope.trace.example import write_decode_run

HEAD = """import numpy as np

import npuscope.tile as pl

M, N, K = 256, 1536, 512
TM, TN, TK = 128, 256, 128


@pl.jit
def gemm(a: pl.Tensor[[M, K], pl.FP16], b: pl.Tensor[[K, N], pl.FP16], c: pl.Out[pl.Tensor[[M, N], pl.FP32]]):
"""
TASKS = """    for m in pl.parallel(0, M, TM):
        for n in pl.parallel(0, N, TN):
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="gemm"):
                total = pl.matmul(a[m : m + TM, 0:TK], b[0:TK, n : n + TN])
                for k in LOOP:
                    total = pl.matmul_acc(total, a[m : m + TM, k : k + TK], b[k : k + TK, n : n + TN])
                c[m : m + TM, n : n + TN] = total
    return c


gemm(np.zeros((M, K), np.float16), np.zeros((K, N), np.float16), np.zeros((M, N), np.float32))
"""
BLOCKS = """    for block in pl.spmd((M // TM) * (N // TN), name_hint="gemm"):
        m = block // (N // TN) * TM
        n = block % (N // TN) * TN
        total = pl.matmul(a[m : m + TM, 0:TK], b[0:TK, n : n + TN])
        for k in pl.pipeline(TK, K, TK, stage=2):
            total = pl.matmul_acc(total, a[m : m + TM, k : k + TK], b[k : k + TK, n : n + TN])
        c[m : m + TM, n : n + TN] = total
    return c


gemm(np.zeros((M, K), np.float16), np.zeros((K, N), np.float16), np.zeros((M, N), np.float32))
"""
GEMMS = {
    "unpipelined": HEAD + TASKS.replace("LOOP", "pl.range(TK, K, TK)"),
    "pipelined": HEAD + TASKS.replace("LOOP", "pl.pipeline(TK, K, TK, stage=2)"),
    "more_blocks": HEAD.replace("TM, TN, TK = 128", "TM, TN, TK = 64") + BLOCKS,
}


@pytest.fixture(scope="module", params=GEMMS)
def one(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Prediction:
    file = tmp_path_factory.mktemp("gemms") / f"{request.param}.py"
    file.write_text(GEMMS[request.param])
    return Prediction(Request(str(file)))


def test_one_story_wherever_it_is_asked_for(one: Prediction, tmp_path: Path) -> None:
    # GIVEN what the prediction says first, what that is worth and the interval of the wall
    first = one.diagnosis.verdict
    assert first.gain is not None
    story = (first.sentence, first.gain, one.estimate.as_dict())
    # WHEN the trace that simulate writes is read again THEN it says the same, and that it was simulated
    for ending in ("npu", "json"):
        one.trace.write(tmp_path / f"run.{ending}")
        read = explain(npuscope.read(tmp_path / f"run.{ending}"))
        assert read.is_simulated
        said_first, wall = read.diagnosis.verdict, read.predicted_wall
        assert wall is not None
        assert (said_first.sentence, said_first.gain, wall.as_dict()) == story
        assert read.diagnosis == one.diagnosis
        assert worth(first)[0] in as_text(report("run", "run", read))
    # AND so do simulate, rank, check, whatif and the tools of agents
    brief = brief_answer_of(one.request)
    assert brief.time is not None
    assert (brief.bound_message, brief.worth, brief.time.as_dict()) == story
    for shown in (simulate(one), gains(one.gains, one.diagnosis)):
        assert first.sentence in as_text(shown)
    asked = tools.Asked(one.request.file)
    for said in (tools.explain(asked), tools.findings(asked)["diagnoses"][0]):
        assert (said["verdict"], said["causes"][0]["gain"]["ns"]) == (first.sentence, first.gain.ns)


def test_the_share_of_a_verdict_is_that_of_rows_of_its_table(one: Prediction) -> None:
    confirm(one.timeline.diagnosis.causes, one.timeline.scheduling.ledger, one.simulated.wall_ns)


def test_so_is_that_of_a_capture(tmp_path: Path) -> None:
    write_decode_run(tmp_path / "run")
    found = explain(npuscope.read(tmp_path / "run"))
    confirm(found.diagnosis.causes, found.scheduling.ledger, found.work.wall)


def confirm(causes: tuple[Cause, ...], ledger: pl.DataFrame, wall: int) -> None:
    on_path = dict(ledger.select("part", "path_ns").iter_rows())
    for rows in {cause.rows for cause in causes}:
        together = sum(cause.share for cause in causes if cause.rows == rows)
        of_table = sum(on_path[row] for row in rows) / wall
        small = 0.03 if rows == ("run",) else 0.0  # causes of less than a hundredth are left out
        assert together == pytest.approx(of_table, abs=small + 1e-6)
    for cause in causes:
        assert f"({percent(cause.share)} of the time" in cause.sentence


def test_the_first_cause_is_worth_most_and_remedies_do_not_contradict(one: Prediction) -> None:
    worths = [cause.gain.ns for cause in one.diagnosis.causes if cause.gain is not None]
    assert worths == sorted(worths, reverse=True)
    for cause in one.diagnosis.causes:
        assert cause.gain is not None
        assert cause.gain.low_ns < cause.gain.ns < cause.gain.high_ns or cause.gain.ns == 0
    remedies = [cause.remedy for cause in one.diagnosis.causes if cause.remedy]
    assert len(remedies) == len(set(remedies))
    for n, cause in enumerate(one.limits.causes):
        opposite = [
            k for k, other in enumerate(one.limits.causes[:n], 1) if {other.wants, cause.wants} == {FEWER, MORE}
        ]
        assert bool(opposite) == bool(re.search(r"cause \d for", cause.remedy))
