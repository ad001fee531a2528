"""A program over several ranks, one answer: every surface tells of the same rank, by the same wall, with the same
causes; and who waited for whom is in the trace that `simulate` writes."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from command import npuscope
from lab_server import lab

from npuscope.agents import tools
from npuscope.answer.checks import checks
from npuscope.answer.prediction import Prediction
from npuscope.answer.request import Request
from npuscope.check.run import rules_of
from npuscope.models import FOLDER

PROGRAM = FOLDER / "deepseek_v4/expert_parallel.py"  # six programs on each of two ranks
Facts = dict[str, Any]


@cache
def expected() -> Facts:
    one = Prediction(Request(str(PROGRAM)))
    assert len(one.simulated.programs) == 6
    first = one.diagnosis.verdict
    return {
        "wall": one.simulated.wall_ns,
        "estimate": one.estimate.as_dict(),
        "bound": one.diagnosis.bound,
        "verdict": first.sentence,
        "worth": None if first.gain is None else vars(first.gain),
        "causes": [(one.kind, one.sentence) for one in one.diagnosis.causes],
        "tasks": one.simulated.tasks,
    }


def printed(*words: str | Path) -> Any:
    result = npuscope(*words, "--json")
    assert result.returncode in (0, 1), result.stderr
    return json.loads(result.stdout)


def said_by(found: Facts) -> Facts:
    """A diagnosis as JSON has it."""
    return {"wall": found["wall_ns"], "bound": found["bound"], "verdict": found["verdict"],
            "worth": found["causes"][0]["gain"],
            "causes": [(one["kind"], one["sentence"]) for one in found["causes"]]}  # fmt: skip


def from_simulate(folder: Path) -> Facts:
    said = printed("simulate", PROGRAM)
    return {**said_by(said), "estimate": said["wall_interval_ns"], "tasks": said["tasks"]}


def from_report(folder: Path) -> Facts:
    printed("simulate", PROGRAM, "-o", folder / "run.npu")
    (shown,) = [one for one in printed("report", folder / "run.npu")["ranks"]["each"] if one["rank"] == 1]
    alone = printed("report", folder / "run.npu", "--rank", "1")
    assert said_by(shown) == said_by(alone)
    assert alone["steps"]["count"]["passes"] == 1  # six dispatches of one run are no six forward passes
    return {**said_by(alone), "estimate": alone["wall_interval_ns"]}


def from_whatif(folder: Path) -> Facts:
    said = printed("whatif", PROGRAM)
    return {**said_by(said), "estimate": said["wall_interval_ns"]}


def from_whatif_of_its_trace(folder: Path) -> Facts:
    printed("simulate", PROGRAM, "-o", folder / "run.npu")
    said = printed("whatif", folder / "run.npu")
    (waits,) = [one for one in said["causes"] if one["kind"] == "dispatch"]
    of_scheduler = [one["gain_ns"] for one in said["gains"] if one["kind"] == "dispatch"]
    assert 0 < max(of_scheduler) <= waits["share"] * said["wall_ns"] + 1  # what the host takes no scheduler saves
    return said_by(said)


def from_judge(folder: Path) -> Facts:
    (said,) = printed("judge", PROGRAM)["answers"]
    return {"wall": said["time"]["wall_ns"], "bound": said["bound"], "verdict": said["bound_message"],
            "worth": said["worth"], "tasks": said["tasks"]}  # fmt: skip


def from_rank(folder: Path) -> Facts:
    other = folder / "other.py"
    other.write_text(PROGRAM.read_text())
    for row in (rows := printed("rank", PROGRAM, other)):
        assert row["wall_ns"] == rows[0]["wall_ns"]
    return {"wall": rows[0]["wall_ns"], "estimate": rows[0]["wall_interval_ns"], "bound": rows[0]["bound"],
            "verdict": rows[0]["verdict"], "worth": rows[0]["worth"]}  # fmt: skip


def from_lab(folder: Path) -> Facts:
    with lab(PROGRAM) as found, found.listening() as listener:
        version = listener.until("version", id="1")["version"]
        listener.until("panels", id="1")
        run = found.get("run/1.json").json()
    assert version["wall"] == run["wall"]
    estimate = dict(run["wall"])
    estimate.pop("value")
    return {**said_by(run["diagnosis"]), "estimate": estimate}


def from_compare(folder: Path) -> Facts:
    for name in ("a", "b"):
        printed("simulate", PROGRAM, "-o", folder / f"{name}.npu")
    said = printed("compare", folder / "a.npu", folder / "b.npu")
    assert said["totals"]["wall_ns"][0] == said["totals"]["wall_ns"][1]
    return {"wall": said["totals"]["wall_ns"][0]}


def from_tpot(folder: Path) -> Facts:
    said = printed("tpot", PROGRAM, "--tokens", "1")
    return {"wall": round(said["ms_per_token"] * 1e6), "bound": said["bound"], "verdict": said["verdict"],
            "tasks": said["tasks_per_step"]}  # fmt: skip


def from_lab_of_two_traces(folder: Path) -> Facts:
    """It opens with the same rank of both beside each other; all ranks together are one run more."""
    for name in ("a", "b"):
        printed("simulate", PROGRAM, "-o", folder / f"{name}.npu")
    with lab(folder / "a.npu", folder / "b.npu") as found:
        versions = {one["id"]: one["name"] for one in found.versions()}
        ids = {name: id for id, name in versions.items()}
        one_page = found.get("").text
        together, one = (found.get(f"run/{ids[name]}.json").json() for name in ("b.npu: all 2 ranks", "b.npu: rank 1"))
        compared = found.get(f"compare/{ids['a.npu: rank 1']}/{ids['b.npu: rank 1']}.json").json()
        whole = found.get(f"compare/{ids['a.npu: all 2 ranks']}/{ids['b.npu: all 2 ranks']}.json").json()
    assert f'"run":"{ids["b.npu: rank 1"]}","beside":"{ids["a.npu: rank 1"]}"' in one_page
    assert '"title":"a.npu and b.npu"' in one_page
    assert not together["measured"]
    assert {"HBM GB/s on rank 0", "HBM GB/s on rank 1"} < {one["name"] for one in together["timeline"]["counters"]}
    assert together["wall"] > one["wall"]["value"]  # from the first launch on
    assert whole["totals"] == compared["totals"]
    assert [name.endswith("all 2 ranks (rank 1, launched last of 2)") for name in whole["names"]] == [True, True]
    return {**said_by(one["diagnosis"]), "wall": one["wall"]["value"]}


def from_explain_tool(folder: Path) -> Facts:
    said = tools.explain(tools.Asked(str(PROGRAM)))
    return said_by(said)


SURFACES = (from_simulate, from_report, from_whatif, from_whatif_of_its_trace, from_judge, from_rank, from_lab,
            from_compare, from_tpot, from_lab_of_two_traces, from_explain_tool)  # fmt: skip


@pytest.mark.parametrize("ask", SURFACES, ids=lambda ask: ask.__name__.removeprefix("from_"))
def test_every_surface_says_the_same_of_ranks(ask: Any, tmp_path: Path) -> None:
    said = ask(tmp_path)
    assert said == {name: expected()[name] for name in said}


def test_check_prices_findings_by_the_run_of_all_ranks() -> None:
    # GIVEN a step of six programs on each of two ranks
    whole = Prediction(Request(str(PROGRAM)))
    # WHEN it is checked
    found = checks(Request(str(PROGRAM)), rules_of())
    # THEN what ranks run alike is told of once, each finding by the wall of the rank that is launched last
    names = ("choose", "__builtin_allgather", "__builtin_allgather", "compute", "__builtin_reduce_scatter", "finish")
    assert [one.program for one in found] == [f"{name} on 2 ranks" for name in names]
    assert {(one.ranks, one.diagnosis.wall_ns) for one in found if one.diagnosis} == {(2, whole.simulated.wall_ns)}
    (finding,) = (one for checked in found for one in checked.findings)
    (same,) = whole.findings  # of the program that is told of: `compute` of the last rank
    assert (finding.id, finding.price) == (same.id, same.price)
    assert finding.price is not None
    assert finding.price.saves_ns
    alone = Prediction(Request(str(PROGRAM)), whole.ran, 7)
    assert alone.recording.program == "compute@1"
    assert alone.simulated.wall_ns < whole.simulated.wall_ns / 5
