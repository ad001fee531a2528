"""Three GEMMs as a new user writes them from `npuscope guide`: each has one story, which its own table confirms."""

from __future__ import annotations

import json
import pickle
import re
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from command import npuscope as command

import npuscope
from npuscope.agents import tools
from npuscope.answer.judge import versus
from npuscope.answer.prediction import Prediction, brief_answer_of
from npuscope.answer.rank import ranked, variant_rows
from npuscope.answer.request import Request
from npuscope.base.interval import Against
from npuscope.check.columns import saving_text
from npuscope.check.rule import TRIED, Price, TrialPrice
from npuscope.check.run import rules_of
from npuscope.explain import explain
from npuscope.explain.changes import whatif_each
from npuscope.explain.comparison import compare
from npuscope.explain.diagnosis.cause import FEWER, MORE, Cause
from npuscope.explain.many.files import git
from npuscope.lab.job import perform
from npuscope.lab.messages import SaveBefore, VersionJob
from npuscope.report.captures import report, worth
from npuscope.report.check import check as check_report
from npuscope.report.comparison import compare as compare_report
from npuscope.report.comparison import compare_data
from npuscope.report.judge import change as judged_change
from npuscope.report.judge import judge as judged
from npuscope.report.simulate import simulate
from npuscope.report.whatif import gains
from npuscope.table.formats import percent
from npuscope.table.parts import as_text
from npuscope.time.priced import EVERY, Owners, removal_of
from npuscope.time.uncertainty import against
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
    for shown in (simulate(one), gains(one.gains, one.diagnosis), gains(whatif_each(one.trace)[1], read.diagnosis)):
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


def test_mending_is_worth_no_more_than_the_time_it_is_about(one: Prediction) -> None:
    for cause in one.diagnosis.causes:
        if cause.kind == "dispatch" and cause.gain is not None:
            assert cause.gain.ns <= cause.share * one.simulated.wall_ns * 1.001 + 1
    # what a loop could hide is behind its busiest pipe, which works as long as before
    owner = Owners(one.simulated.prepared)
    for finding in [one for one in one.findings if one.without == "hidden"]:
        removal = removal_of(finding, owner)
        assert removal is not None
        ((time, moved),) = removal.less
        for number in owner.classes[finding.kernel].tolist():
            assert owner.busiest(number, EVERY) <= time[number] + 1e-9 < 1 + 1e-9
        assert moved == 1


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


def test_a_finding_is_worth_what_its_fix_gave_once_that_was_tried(one: Prediction, tmp_path: Path) -> None:
    # GIVEN a finding that nobody tried a fix of: wherever it is told, that is said
    if not one.findings:
        return
    first = one.findings[0]
    assert not first.was_tried
    told = as_text(check_report(one.request.file, [one.report(rules_of())]))
    assert saving_text(first) in told
    assert saving_text(first).endswith("; no fix was tried")
    # WHEN its fix gave something else THEN findings, causes, judge and check say that
    gave = Price("tried: a fix", one.simulated.wall_ns - 2_000, 2_000, TRIED)
    trials = [TrialPrice(each.id, each.file, each.line, gave if each is first else None) for each in one.findings]
    known = Prediction(replace(one.request, tried=tuple(trials)))
    (left,) = known.findings  # the others would cost time: they are none
    assert (left.id, left.saves_ns, left.was_tried) == (first.id, 2_000, True)
    assert "its fix was tried: the simulated time is 2 µs shorter" in as_text(
        check_report(one.request.file, [known.report(rules_of())])
    )
    assert ": 2 µs, tried" in as_text(judged([known.answer()]))
    remedies = " ".join(cause.remedy for cause in known.diagnosis.causes)
    assert "not tried" not in remedies
    assert known.diagnosis.verdict.sentence == one.diagnosis.verdict.sentence


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> list[Prediction]:
    folder = tmp_path_factory.mktemp("three")
    for name, text in GEMMS.items():
        (folder / f"{name}.py").write_text(text)
    return [Prediction(Request(str(folder / f"{name}.py"), name=name)) for name in GEMMS]


def test_the_lab_tells_the_story_of_each_save(three: list[Prediction]) -> None:
    before = None
    for number, one in enumerate(three, 1):
        made = perform(VersionJob(str(number), one.request.name, one.request, before=before))
        first = pickle.loads(made.diagnosis).verdict
        assert (first.sentence, first.gain) == (one.diagnosis.verdict.sentence, one.diagnosis.verdict.gain)
        if before is not None:  # AND the ratio to the save before is that of every other command
            told = json.loads(json.dumps(made.versus))
            there = three[number - 2]
            assert told["probability_faster"] == change(there, one).faster
            assert told["verdict"] == change(there, one).verdict
        wall = one.simulated
        before = SaveBefore(str(number), one.request.name, wall.wall_ns, wall.bound.regime, {})


def change(a: Prediction, b: Prediction) -> Against:
    """B against A by the one definition."""
    old, new = a.simulated, b.simulated
    return against(old.wall_ns, new.wall_ns, old.bound.regime, new.bound.regime)


def test_a_change_has_one_probability_and_one_word(three: list[Prediction], tmp_path: Path) -> None:
    for a, b in ((three[0], three[1]), (three[1], three[2]), (three[2], three[0])):
        # GIVEN a change by the one definition: an undecided one, a faster and a slower one
        expected = change(a, b)
        # THEN rank, judge, compare and the tools of agents have that number and say that word
        briefs = [
            replace(brief_answer_of(one.request), candidate=one.request.name, key=one.request.name) for one in (a, b)
        ]
        rows = {
            row["variant"]: row
            for row in variant_rows(ranked(briefs), briefs[0], {one.candidate: {} for one in briefs})
        }
        assert rows[b.request.name]["against_first"]["probability_faster"] == expected.faster  # type: ignore[index]
        found = versus(briefs[0], briefs[1])
        assert found is not None
        assert (found.probability_faster, found.verdict) == (expected.faster, expected.verdict)
        assert str(expected) in judged_change(replace(briefs[1], versus=found))
        for one in (a, b):
            one.trace.write(tmp_path / f"{one.request.name}.npu")
        old, new = (npuscope.read(tmp_path / f"{one.request.name}.npu") for one in (a, b))
        result = compare(old, new)
        assert compare_data(result)["versus"] == expected.as_dict()
        assert str(expected) in as_text(compare_report(("A", "B"), result))
        asked = tools.compare(tools.Asked(a.request.file), tools.Asked(b.request.file))
        assert asked["versus"] == expected.as_dict()
    assert len({change(three[n], three[(n + 1) % 3]).faster for n in range(3)}) == 3, "three changes that differ"


@pytest.mark.full
def test_history_tells_it_commit_by_commit(three: list[Prediction], tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    git(tmp_path, "init", "-q", str(repo))
    for name, text in GEMMS.items():
        (repo / "gemm.py").write_text(text)
        git(repo, "add", "-A")
        git(repo, "-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-qm", name)
    done = command("history", tmp_path / "history", "--simulate", repo, "gemm.py", "--since", "HEAD~2")
    assert done.returncode == 0, done.stderr
    assert str(change(three[1], three[2])) in done.stdout
