"""One answer for each candidate: good programs are good, planted faults are named, nobody is taken down by another."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest
from command import npuscope as command
from hypothesis import given
from hypothesis import strategies as st

import npuscope
from npuscope.answer.answer import LEAST_BUDGET, Answer, Versus, Wrong, within
from npuscope.answer.judge import How, judge_all, judge_many
from npuscope.answer.request import Request
from npuscope.base.errors import BadInput, NpuscopeError
from npuscope.base.jobs import Limits
from npuscope.check.rule import Finding, Price

ROOT = Path(__file__).resolve().parents[2]
SOFTMAX = ROOT / "models" / "basics" / "softmax.py"


def test_a_good_program_has_everything_that_is_known_of_it() -> None:
    answer = npuscope.judge(SOFTMAX)
    assert (answer.verdict, answer.right) == ("good", True)
    assert (answer.tasks, answer.blocks) == (16, 16)
    assert answer.time is not None
    assert answer.time.low < answer.time.value < answer.time.high
    assert answer.time.coverage == 0.8
    assert answer.bound == "dispatch"
    assert answer.bound_message
    assert answer.findings[0].id == "many-tasks"
    assert 0 < (answer.findings[0].saves_ns or 0) < answer.time.value
    assert [kernel.kernel for kernel in answer.kernels] == ["softmax"]
    assert 0 < answer.kernels[0].memory["Vec"] < 1


def test_wrong_numbers_are_told_with_the_tensor_and_the_line() -> None:
    text = SOFTMAX.read_text().replace("pl.row_expand_div(weights, pl.row_sum(weights))", "weights")
    answer = npuscope.judge(text)
    assert (answer.verdict, answer.right) == ("wrong", False)
    assert answer.wrong is not None
    assert answer.wrong.tensor == "y"
    assert answer.line is not None
    assert "] = weights" in text.splitlines()[answer.line - 1]
    assert answer.time is not None, "its time is known all the same"


def test_every_planted_fault_is_named_and_costs_its_own_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small part of benchmarks/judge.py: one batch, all kinds of faults."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    planted = importlib.import_module("judging.mutants")
    made = list(planted.mutants(44, {"endless loop": 1, "memory hog": 2}))
    assert {one.kind for one in made} == set(planted.KINDS)
    assert len({one.model for one in made}) == len(planted.MODELS)
    variants = [one.written(tmp_path) for one in made]
    limits = Limits(60, 400 * 2**20)
    quick = [n for n, one in enumerate(made) if one.kind != "endless loop"]
    answers = dict(zip(quick, judge_all([variants[n] for n in quick], how=How(limits=limits)), strict=True))
    loops = [n for n in range(len(made)) if n not in answers]
    endless = judge_all([variants[n] for n in loops], how=How(limits=Limits(3, 400 * 2**20)))
    answers |= dict(zip(loops, endless, strict=True))
    for n, one in enumerate(made):
        answer = answers[n]
        assert answer.candidate == one.name
        assert answer.verdict in one.verdicts, (one.name, answer)
        assert not one.ids or {*one.ids} & {reason.id for reason in (*answer.errors, *answer.races)}, (
            one.name,
            answer,
        )
        if one.ids:
            told = (*answer.errors, *answer.races)
            assert all(reason.line and reason.remedy for reason in told)


def test_one_that_ends_the_server_takes_nobody_along(tmp_path: Path) -> None:
    """Its neighbour is lost with the server, and judged again alone, not beside the same killer."""
    killer = tmp_path / "killer.py"
    killer.write_text(
        "import os, signal, time\n"
        "time.sleep(0.2)  # its neighbour is under way by then\n"
        "os.kill(os.getppid(), signal.SIGKILL)\n"
        "time.sleep(600)\n"
    )
    first, second, third = judge_many([killer, SOFTMAX, killer], how=How(jobs=3))
    assert [first.verdict, second.verdict, third.verdict] == ["crashed", "good", "crashed"]


def test_against_a_baseline_it_says_faster_or_slower_and_why(tmp_path: Path) -> None:
    slow = tmp_path / "slow.py"
    slow.write_text(SOFTMAX.read_text().replace("ROW_TILE = 32", "ROW_TILE = 8"))
    first, second = judge_many([slow, SOFTMAX], baseline=SOFTMAX, how=How(golden=False))
    assert first.versus is not None
    assert first.versus.verdict == "slower"
    assert first.versus.probability_faster < 0.1
    assert "softmax 16 → 64 tasks" in first.versus.why[0]
    assert second.versus is not None
    assert (second.versus.verdict, second.versus.ratio, second.versus.why) == ("undecided", 1.0, ())


def test_a_batch_goes_on_where_it_was_until_what_programs_read_changes(tmp_path: Path) -> None:
    results, rows = tmp_path / "judged.jsonl", tmp_path / "rows.txt"
    file = tmp_path / "program.py"
    text = SOFTMAX.read_text().replace("ROW_TILE = 32", f"ROW_TILE = int(open({str(rows)!r}).read()) // FACTOR")
    file.write_text(text.replace("import numpy as np", "import numpy as np\nFACTOR = 1"))
    rows.write_text("32")
    kept = How(golden=False, results=results)
    requests = [Request(str(file), settings=(("FACTOR", name),), name=name) for name in ("1", "2", "4")]
    first = judge_all(requests[:2], how=kept)
    assert [one.tasks for one in first] == [16, 32]
    # the first is made again, the second is taken as it is, the third is new
    again = judge_all(requests, how=kept)
    assert [one.time for one in again[:2]] == [one.time for one in first]
    assert again[1].cpu_seconds == first[1].cpu_seconds
    assert again[2].tasks == 64
    assert len(results.read_text().splitlines()) == 3
    rows.write_text("16")
    with pytest.raises(NpuscopeError, match="comes out otherwise than it stands in"):
        judge_all(requests, how=kept)


def saving(file: str, line: int, saves_ns: int) -> Finding:
    price = Price("as blocks of one launch", 100, saves_ns)
    return Finding("many-tasks", "hint", file, line, "many " * 30, "Fewer.", price=price)


def test_a_budget_cuts_the_least_important_first_and_says_so() -> None:
    reasons = tuple(
        Finding("buffer-overflow", "error", "layer.py", n, "far too large " * 9, "Take a smaller one.")
        for n in range(9)
    )
    findings = tuple(saving("layer.py", n, 30 - 10 * n) for n in range(3))
    answer = Answer("layer.py", "unfit", "far too large", None, None, reasons, findings=findings, device="ascend910b1",
                    versus=Versus("old.py", "faster", 0.9, 0.8, 1.0, 0.93, ("gate_proj 85 → 51 tasks",)))  # fmt: skip
    whole = answer.to_dict()
    assert "cut" not in whole
    before = None
    for budget in (10_000, 3_000, 1_500, 800, LEAST_BUDGET):
        told = answer.to_dict(budget)
        assert len(json.dumps(told, ensure_ascii=False).encode()) <= budget
        assert (told["candidate"], told["verdict"]) == ("layer.py", "unfit")
        cut = told.get("cut", {})
        assert isinstance(cut, dict)
        assert before is None or [*cut][: len(before)] == [*before], "what goes first goes always first"
        before = cut
    assert before
    assert answer.to_dict(10_000) == whole


@given(
    st.text(max_size=3000), st.text(max_size=2000), st.lists(st.text(max_size=400), max_size=12), st.integers(0, 6000)
)
def test_whatever_is_to_be_told_keeps_within_the_budget(name: str, told: str, lines: list[str], more: int) -> None:
    reasons = tuple(Finding("race", "error", name, n, line, line) for n, line in enumerate(lines))
    answer = Answer(name, "race", told, False, None, reasons, reasons, bound_message=told, device="ascend910b1", line=7)
    budget = LEAST_BUDGET + more
    short = answer.to_dict(budget)
    printed = json.dumps(short, ensure_ascii=False).encode(errors="replace")
    assert len(printed) <= budget
    assert json.loads(printed)["verdict"] == "race"
    assert ("cut" in short) == (short != answer.to_dict())


@given(st.lists(st.text(max_size=40), max_size=300), st.integers(LEAST_BUDGET, 9000))
def test_long_lists_of_a_tool_become_shorter_and_that_is_said(items: list[str], budget: int) -> None:
    whole = {"verdict": "x", "rows": [{"name": item} for item in items]}
    small = within(whole, budget)
    if small == whole:
        assert "cut" not in small
    else:
        assert len(json.dumps(small, ensure_ascii=False).encode()) <= budget
        assert small["cut"]["rows"] == f"{len(small['rows'])} of {len(items)}"


def test_reviews_read_what_was_found(tmp_path: Path) -> None:
    """What SARIF 2.1.0 requires of a log, of a run and of a result, and that every result has its rule and its line."""
    from npuscope.report.judge import judge_sarif

    file = tmp_path / "layer.py"
    file.write_text("x\n")
    wrong = Wrong("y", "3 of 8 differ", str(file), 1)
    answers = [
        Answer(
            "a", "unfit", "too large", errors=(Finding("buffer-overflow", "error", str(file), 1, "too large", "Less."),)
        ),
        Answer("b", "wrong", "its numbers are wrong", False, wrong),
        Answer("c", "crashed", "it was ended by SIGSEGV"),
        Answer("d", "good", findings=(saving(str(file), 1, 10),)),
    ]
    log = json.loads(judge_sarif(answers, [str(file)] * 4))
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    driver = run["tool"]["driver"]
    assert driver["name"] == "npuscope"
    ids = [rule["id"] for rule in driver["rules"]]
    assert len(ids) == len(set(ids))
    assert [result["ruleId"] for result in run["results"]] == [
        "buffer-overflow", "wrong-numbers", "does-not-run", "many-tasks",
    ]  # fmt: skip
    assert [result["level"] for result in run["results"]] == ["error", "error", "error", "note"]
    for result in run["results"]:
        assert ids[result["ruleIndex"]] == result["ruleId"]
        assert result["message"]["text"]
        (place,) = result["locations"]
        assert place["physicalLocation"]["region"]["startLine"] == 1
        assert place["physicalLocation"]["artifactLocation"]["uri"].endswith("layer.py")


def test_no_such_file_is_no_candidate(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such file"):
        npuscope.judge(tmp_path / "none.py")


def test_the_command_answers_scripts_people_and_reviews(tmp_path: Path) -> None:
    wrong, md, sarif = tmp_path / "wrong.py", tmp_path / "comment.md", tmp_path / "found.sarif"
    wrong.write_text(SOFTMAX.read_text().replace("ROW_TILE = 32", "ROW_TILE = 256"))
    home = {"XDG_CACHE_HOME": str(tmp_path / "home")}
    done = command("judge", SOFTMAX, "--json", "--budget", "600", **home)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["good"], told["of"]) == (1, 1)
    assert told["answers"][0]["right"] is True
    assert told["answers"][0]["cut"]
    done = command("judge", SOFTMAX, wrong, "--baseline", SOFTMAX, "--md", md, "--sarif", sarif, **home)
    assert done.returncode == 1, done.stderr
    lines = done.stdout.splitlines()
    assert "good" in lines[0]
    assert "golden passed" in lines[0]
    assert "unfit" in lines[1]
    assert "buffer-overflow" in lines[1]
    assert "1 of 2 good, 1 unfit" in done.stdout
    assert "**unfit**" in md.read_text()
    (run,) = json.loads(sarif.read_text())["runs"]
    assert {"buffer-overflow", "many-tasks"} <= {result["ruleId"] for result in run["results"]}
    missing = command("judge", tmp_path / "none.py", **home)
    assert (missing.returncode, missing.stdout) == (2, "")
    assert "no such file" in missing.stderr


def test_whoever_asks_loads_neither_tables_nor_simulator() -> None:
    import subprocess

    code = "import sys, npuscope; npuscope.judge; print([m for m in ('polars', 'numba', 'numpy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
