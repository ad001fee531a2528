"""One program, one answer: whoever asks for it, by a command, in the lab or as an agent, hears the same."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from command import npuscope as command
from lab_server import lab

import npuscope
from npuscope.agents import tools
from npuscope.answer.prediction import Prediction
from npuscope.answer.request import Request
from npuscope.explain.many.files import git
from npuscope.lab.job import perform
from npuscope.lab.messages import VersionJob
from npuscope.time import run as simulator
from npuscope.time.chip.engine import run_with_room
from npuscope.time.chip.job import Job, Machine

PROGRAM = """import numpy as np

import npuscope.tile as pl

M, N, K = 256, 512, 256
TILE = 64


@pl.jit
def naive(a: pl.Tensor[[M, K], pl.FP16], b: pl.Tensor[[K, N], pl.FP16], c: pl.Out[pl.Tensor[[M, N], pl.FP32]]):
    for m in pl.parallel(0, M, TILE):
        for n in pl.parallel(0, N, TILE):
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="gemm"):
                total = pl.matmul(a[m : m + TILE, 0:TILE], b[0:TILE, n : n + TILE])
                for k in pl.range(TILE, K, TILE):
                    total = pl.matmul_acc(total, a[m : m + TILE, k : k + TILE], b[k : k + TILE, n : n + TILE])
                c[m : m + TILE, n : n + TILE] = total
    return c


naive(np.zeros((M, K), np.float16), np.zeros((K, N), np.float16), np.zeros((M, N), np.float32))
"""
Facts = dict[str, Any]
RUNS_WITHOUT = {"bandwidth": 2, "core": 2, "dispatch": 2, "dependency": 1, "tail": 0}  # to know what a cause costs


def of_diagnosis(said: Facts) -> Facts:
    """A diagnosis as JSON has it: what it says first, and every cause with what it is worth."""
    causes = [(one["kind"], one["sentence"], one["remedy"], one["gain"]) for one in said["causes"]]
    first = {"verdict": said["verdict"], "bound": said["bound"], "worth": said["causes"][0]["gain"]}
    return {**first, "wall": said["wall_ns"], "causes": causes}


def of_findings(rows: list[Facts], price: str) -> list[tuple[object, ...]]:
    return [(one["id"], one["line"], one["message"], one["remedy"], one[price]) for one in rows]


def of_row(row: Facts) -> Facts:
    """One of many programs."""
    return {
        "wall": row["wall_ns"],
        "estimate": row["wall_interval_ns"],
        "bound": row["bound"],
        "verdict": row["verdict"],
        "worth": row["worth"],
    }


def printed(*words: str | Path) -> Any:
    result = command(*words, "--json")
    assert result.returncode in (0, 1), result.stderr
    return json.loads(result.stdout)


def from_simulate(file: Path) -> Facts:
    said = printed("simulate", file)
    return {**of_diagnosis(said), "estimate": said["wall_interval_ns"], "together": said["together"]}


def from_report(file: Path) -> Facts:
    """Of the trace that simulate wrote, in both formats that keep what a simulation knows."""
    said = []
    for ending in ("npu", "json"):
        trace = file.with_suffix(f".{ending}")
        assert command("simulate", file, "-o", trace).returncode == 0
        page, told = file.with_suffix(".html"), printed("report", trace)
        assert told["simulated"] is True
        shown = command("report", trace, "--html", page).stdout
        assert "simulated: " in shown
        assert '"measured":false' in page.read_text(encoding="utf-8").replace(" ", "")
        said.append({**of_diagnosis(told), "estimate": told["wall_interval_ns"], "together": told["together"]})
    assert said[0] == said[1]
    return said[0]


def from_check(file: Path) -> Facts:
    said = printed("check", file)
    (diagnosis,) = said["diagnoses"]
    findings = of_findings(said["findings"], "saves_ns")
    return {**of_diagnosis(diagnosis), "together": diagnosis["together"], "findings": findings}


def from_whatif(file: Path) -> Facts:
    said = printed("whatif", file)
    gains = {one["what"]: one["gain_ns"] for one in said["gains"] if one["kind"] == "finding"}
    estimate = said["wall_interval_ns"]
    return {**of_diagnosis(said), "estimate": estimate, "together": said["together"], "gains": gains}


def from_judge(file: Path) -> Facts:
    (said,) = printed("judge", file)["answers"]
    return _judged(said["time"], said)


def from_judge_in_python(file: Path) -> Facts:
    answer = npuscope.judge(file)
    assert answer.time is not None
    assert answer.time.value == answer.wall_ns
    said: Facts = answer.to_dict()
    assert [one.saves_ns for one in answer.findings[:3]] == [one["gain_ns"] for one in said["findings"]]
    return _judged(said["time"], said)


def _judged(time: Facts, said: Facts) -> Facts:
    return {
        "wall": time["wall_ns"],
        "rounded": (time["low_ns"], time["high_ns"], time["coverage"]),
        "bound": said["bound"],
        "verdict": said["bound_message"],
        "worth": said["worth"],
        "most": of_findings(said["findings"], "gain_ns"),
        "together_ns": said["together_ns"],
    }


def from_rank(file: Path) -> Facts:
    other = file.with_name("other.py")
    other.write_text(PROGRAM)
    first, second = (of_row(row) for row in printed("rank", file, other))
    assert first == second
    return first


def from_sweep(file: Path) -> Facts:
    return of_row(printed("sweep", file, "--set", "TILE=64")[0])


def from_tune(file: Path) -> Facts:
    return of_row(printed("tune", file, "--set", "TILE=64,32", "--trials", "1")["best"])


def from_history(file: Path) -> Facts:
    repo = file.parent / "repo"
    git(file.parent, "init", "-q", str(repo))
    (repo / file.name).write_text(PROGRAM)
    git(repo, "add", "-A")
    git(repo, "-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-qm", "start")
    said = printed("history", file.parent / "history", "--simulate", repo, file.name, "--since", "HEAD")
    return {"wall": said["commits"][0]["wall_ns"]}


def from_lab(file: Path) -> Facts:
    with lab(file) as found, found.listening() as listener:
        version = listener.until("version", id="1")["version"]
        listener.until("panels", id="1")
        run = found.get("run/1.json").json()
        pair = found.get("compare/1/1.json").json()
        gains = found.post("panel/1/whatif", {}).json()
    assert version["wall"] == run["wall"]
    assert version["verdict"] == run["diagnosis"]["verdict"]
    for same in pair["diagnoses"]:
        assert same == run["diagnosis"]
    assert "causes" not in run["panels"]["overview"]["report"], "they would be those from before the findings"
    assert run["diagnosis"]["verdict"] in json.dumps(gains, ensure_ascii=False)
    estimate = dict(run["wall"])
    assert estimate.pop("value") == run["diagnosis"]["wall_ns"]
    findings = of_findings(run["panels"]["source"]["findings"], "worth_ns")
    together = run["diagnosis"]["together"]
    return {**of_diagnosis(run["diagnosis"]), "estimate": estimate, "together": together, "findings": findings}


def from_explain_tool(file: Path) -> Facts:
    return of_diagnosis(tools.explain(tools.Asked(str(file))))


def from_findings_tool(file: Path) -> Facts:
    said = tools.findings(tools.Asked(str(file)))
    findings = of_findings(said["findings"], "saves_ns")
    return {**of_diagnosis(said["diagnoses"][0]), "findings": findings}


def from_what_if_tool(file: Path) -> Facts:
    said = tools.what_if(tools.Asked(str(file)))
    gains = {one["what"]: one["gain_ns"] for one in said["gains"] if one["kind"] == "finding"}
    return {"wall": said["wall_ns"], "gains": gains}


QUICK = (
    from_simulate, from_report, from_check, from_whatif, from_judge_in_python, from_sweep, from_lab, from_explain_tool,
    from_findings_tool, from_what_if_tool,
)  # fmt: skip
LONGER = (from_judge, from_rank, from_tune, from_history)
SURFACES = [*QUICK, *(pytest.param(ask, marks=pytest.mark.full) for ask in LONGER)]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("surfaces") / "naive.py"
    file.write_text(PROGRAM)
    return file


@cache
def expected(file: Path) -> Facts:
    """All that any surface may say, from the prediction itself."""
    one = Prediction(Request(str(file)))
    said: Facts = json.loads(json.dumps(one.diagnosis.as_dict()))
    shown = ("id", "line", "message", "remedy", "saves_ns")
    rows = [{name: getattr(found, name) for name in shown} for found in one.findings]
    findings = of_findings(rows, "saves_ns")
    savers = [row for row in rows if row["saves_ns"] > 0]
    assert len(findings) >= 2
    assert len(said["causes"]) >= 2
    return {
        **of_diagnosis(said),
        "estimate": json.loads(json.dumps(one.estimate.as_dict())),
        "rounded": (round(one.estimate.low), round(one.estimate.high), one.estimate.coverage),
        "together": said["together"],
        "together_ns": said["together"]["gain"]["ns"],
        "findings": findings,
        "most": of_findings(savers[:3], "saves_ns"),
        "gains": {f"{found.id} naive.py:{found.line} gemm": found.saves_ns for found in one.findings},
    }


@pytest.mark.parametrize("ask", SURFACES, ids=lambda ask: ask.__name__.removeprefix("from_"))
def test_every_surface_says_the_same_to_the_last_digit(ask: Callable[[Path], Facts], program: Path) -> None:
    said = ask(program)
    assert said == {name: expected(program)[name] for name in said}


def test_a_save_runs_the_chip_as_often_as_its_answer_needs(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run as it is, one without each cause (two for full cores), one without each finding and one without all."""
    runs: Counter[bytes] = Counter()

    def counted(job: Job, machine: Machine) -> Any:
        runs[simulator._content(job, machine)] += 1
        return run_with_room(job, machine)

    monkeypatch.setattr(simulator, "run_with_room", counted)
    made = perform(VersionJob("1", "naive.py", Request(str(program))))
    assert made.trouble is None
    assert set(runs.values()) == {1}, "nothing runs twice"
    needed = len(runs)
    runs.clear()
    one = Prediction(Request(str(program)))
    _ = one.diagnosis
    assert len(runs) == needed, "and nothing but for the diagnosis and the prices in it"
    tried = (*one.priced.findings, *one.priced.costly)
    priced = [found for found in tried if found.price is not None and found.price.wall_ns is not None]
    limits = sum(RUNS_WITHOUT[cause.kind] for cause in one.diagnosis.causes)
    assert needed == 1 + len(priced) + (one.priced.together_ns is not None) + limits
