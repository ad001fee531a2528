"""benchmarks/changes.py holds predicted changes against measured ones by a rule that a few made-up rows show."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sessions import ROOT

sys.path.append(str(ROOT / "benchmarks"))

from published_changes.learn import coverage_lines, learn
from published_changes.rows import BadRows, Measured, NoScope, Row, Scope, quantity, read_rows
from published_changes.score import (
    Prediction,
    guessed,
    row_lines,
    score,
    scores,
    spearman,
    to_look_at,
    weighted_median,
    weights_of,
)

from npuscope.base.errors import NpuscopeError
from npuscope.time.bound import KIND_OF

HEAD = "id,commit,parent,file,entry,arguments,quantity,scopes_before,scopes_after,before,after,platform\n"


def rows_in(folder: Path, *lines: str) -> list[Row]:
    table = folder / "rows.csv"
    table.write_text(HEAD + "".join(f"{line}\n" for line in lines))
    return read_rows(table)


@pytest.fixture
def rows(tmp_path: Path) -> list[Row]:
    """Two rows of one commit and one of another: much faster, neutral, slower."""
    return rows_in(
        tmp_path,
        "fast,c1,p1,a.py,f,,wall,*,*,100,50,a2a3",
        "same,c1,p1,a.py,f,,busy,*,*,100,101,a2a3",
        "slow,c2,p2,a.py,f,,wall,*,*,100,120,a5",
    )


def predicted(rows: list[Row], *ratios: float | None) -> list[Prediction]:
    return [Prediction(r) if p is None else Prediction(r, 1.0, p) for r, p in zip(rows, ratios, strict=True)]


@pytest.mark.parametrize(
    ("ratio", "said", "right"),
    [
        (0.50, 0.98, True),  # far off, but the right way
        (0.50, 0.995, False),  # too little to notice
        (0.50, 1.20, False),
        (0.98, 0.96, True),  # neutral, and said so
        (0.98, 0.94, False),
        (1.02, 0.96, True),
        (1.20, 1.02, True),
        (1.20, 0.90, False),
    ],
)
def test_a_direction_is_right_where_the_sign_agrees_or_nothing_is_said_of_nothing(
    ratio: float, said: float, right: bool, tmp_path: Path
) -> None:
    [row] = rows_in(tmp_path, f"r,c,p,a.py,f,,wall,*,*,1,{ratio},a2a3")
    assert Prediction(row, 1.0, said).right is right


def test_rows_of_one_commit_weigh_as_much_as_one(rows: list[Row]) -> None:
    weights = weights_of(rows)
    assert weights == {"fast": 0.5, "same": 0.5, "slow": 1.0}
    assert score(predicted(rows, 0.5, 1.5, 1.2), weights).direction == 0.75
    assert score(predicted(rows, 0.5, 1.0, 0.5), weights).direction == 0.5


def test_a_row_that_does_not_run_is_wrong_and_has_no_error(rows: list[Row]) -> None:
    found = score(predicted(rows, 0.5, 1.01, None), weights_of(rows))
    assert (found.rows, found.ran) == (3, 2)
    assert (found.direction, found.direction_of_ran) == (0.5, 1.0)
    assert found.within_15 == 0.5
    assert found.median_error == pytest.approx(0, abs=1e-9)


def test_errors_are_ratios_of_ratios(rows: list[Row]) -> None:
    [fast, *_] = predicted(rows, 0.6, 1.01, 1.2)
    assert math.expm1(fast.error) == pytest.approx(0.2)  # 0.6 for 0.5, and 0.5 for 0.6 would be the same
    found = score(predicted(rows, 0.6, 1.01, 1.2 * 1.15), weights_of(rows))
    assert found.within_15 == 0.75
    assert found.median_error == pytest.approx(0.15)


def test_the_guesses_are_scored_on_the_same_rows(rows: list[Row]) -> None:
    found = scores(predicted(rows, 0.5, 1.0, 1.2))
    assert found["always -10 %"] == score(guessed(rows, 0.9), weights_of(rows))
    assert found["always -10 %"].direction == 0.25
    assert found["no change"].direction == 0.25
    assert math.isnan(found["no change"].rho)


def test_splits_name_the_rows_they_have(rows: list[Row]) -> None:
    found = scores(predicted(rows, 0.5, 1.0, 1.2))
    assert {name: found[name].rows for name in ("wall", "busy", "a2a3", "a5")} == {
        "wall": 2,
        "busy": 1,
        "a2a3": 2,
        "a5": 1,
    }
    assert found["neutral or slower"].rows == 2
    assert found["faster by over 15 %"].rows == 1
    assert "task" not in found


def test_every_row_has_a_line_that_says_what_is_wrong(rows: list[Row]) -> None:
    text = "\n".join(row_lines([*predicted(rows[:2], 0.5, 1.5), Prediction(rows[2], reason="no such op")]))
    assert "wrong" in next(line for line in text.splitlines() if line.startswith("same"))
    assert "wrong" not in next(line for line in text.splitlines() if line.startswith("fast"))
    assert "does not run: no such op" in text


@given(st.lists(st.tuples(st.floats(-5, 5), st.integers(1, 4)), min_size=1, max_size=20))
def test_a_weighted_median_is_the_median_of_rows_repeated(pairs: list[tuple[float, int]]) -> None:
    flat = sorted(v for v, w in pairs for _ in range(w))
    half = len(flat) // 2
    middle = flat[half] if len(flat) % 2 else (flat[half - 1] + flat[half]) / 2
    assert weighted_median([v for v, _ in pairs], [w for _, w in pairs]) == pytest.approx(middle)


def test_rho_is_of_ranks() -> None:
    assert spearman([1, 2, 3, 4], [1, 10, 100, 1000], [1] * 4) == pytest.approx(1)
    assert spearman([1, 2, 3, 4], [4, 3, 2, 1], [1] * 4) == pytest.approx(-1)
    assert spearman([1, 1, 2], [3, 3, 7], [1] * 3) == pytest.approx(1)


RUN = Measured(
    "f",
    tasks=3,
    blocks=4,
    wall=1_000,
    scopes=(
        Scope("mix", "AIC", 2, 200, 100, 300),
        Scope("mix", "AIV", 4, 100, 100, 260),
        Scope("rope", "AIV", 1, 50, 400, 450),
    ),
)


@pytest.mark.parametrize(
    ("what", "scopes", "expected"),
    [
        ("wall", "*", 1_000),
        ("corespan", "*", 350),
        ("span", "mix", 200),
        ("span", "mix+rope", 350),
        ("busy", "*", 350),
        ("busy", "mix;rope", 350),
        ("busy", "ro*", 50),
        ("task", "mix", 50),
        ("task:AIC", "mix", 100),
        ("task:AIV", "mix", 25),
    ],
)
def test_a_quantity_is_read_from_the_scopes_named(what: str, scopes: str, expected: float, tmp_path: Path) -> None:
    [row] = rows_in(tmp_path, f"r,c,p,a.py,f,,{what},{scopes},*,1,1,a2a3")
    assert quantity(row, "before", RUN) == expected


def test_a_scope_that_the_program_lacks_is_named_with_those_it_has(tmp_path: Path) -> None:
    [row] = rows_in(tmp_path, "r,c,p,a.py,f,,busy,rope,rope_cs,1,1,a2a3")
    assert quantity(row, "before", RUN) == 50
    with pytest.raises(NoScope, match="no scope rope_cs; there are mix, rope"):
        quantity(row, "after", RUN)
    [row] = rows_in(tmp_path, "r,c,p,a.py,f,,busy:AIC,rope,rope,1,1,a2a3")
    with pytest.raises(NoScope, match="nothing on AIC"):
        quantity(row, "after", RUN)


def test_sides_may_differ_in_file_and_arguments(tmp_path: Path) -> None:
    [row] = rows_in(tmp_path, "r,c,p,old.py|new.py,f,-p a2a3|-p a2a3 --fast,wall,*,*,1,1,a2a3")
    before, after = row.sides["before"], row.sides["after"]
    assert (before.commit, before.file, before.arguments) == ("p", "old.py", "-p a2a3")
    assert (after.commit, after.file, after.arguments) == ("c", "new.py", "-p a2a3 --fast")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("r,c,p,a.py,f,,walls,*,*,1,1,a2a3", "line 2: the quantity is 'walls'"),
        ("r,c,p,a.py,f,,wall,*,*,0,1,a2a3", "line 2: before is '0', not a time"),
        ("r,c,p,a.py,f,,wall,*,*,1,soon,a2a3", "line 2: after is 'soon', not a time"),
    ],
)
def test_a_bad_row_is_named_with_its_line(line: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(BadRows, match=said):
        rows_in(tmp_path, line)


def test_misses_are_learnt_from_the_rows_that_ran(tmp_path: Path) -> None:
    # GIVEN twelve commits, simulated at 100 and 80 µs; one of their rows is a kernel's, one in no unit of time
    head = HEAD.replace("platform", "unit,platform")
    lines = [f"r{n},c{n},p{n},a.py,f,,wall,*,*,{110 + n},90,us,a2a3\n" for n in range(12)]
    lines += ["k,c0,p0,a.py,f,,task,mix,mix,0.05,0.05,sim unit,a2a3\n", "lost,c1,p1,b.py,f,,wall,*,*,1,1,ms,a2a3\n"]
    (tmp_path / "rows.csv").write_text(head + "".join(lines))
    rows = read_rows(tmp_path / "rows.csv")
    sides = {side: RUN for row in rows for side in row.sides.values()}
    outcomes = {side: replace(RUN, bound="core" if side.commit[0] == "p" else "bandwidth") for side in sides}
    said = [Prediction(row, 100e3, 80e3) for row in rows[:13]] + [Prediction(rows[13], reason="no such file")]
    # WHEN they are learnt from
    found = learn(said, outcomes, "made up", tmp_path / "misses.csv")
    # THEN a miss is the log of measured over predicted, of the ratio and of both times where their unit is known
    assert len(found.rows) == 13
    first, kernel = found.rows[0], found.rows[12]
    assert (first.commit, first.quantity, first.bound_before, first.bound_after) == ("c0", "wall", "core", "bandwidth")
    assert first.change == pytest.approx(math.log(0.8), abs=1e-4)
    assert first.ratio == pytest.approx(math.log(90 / 110 / 0.8), abs=1e-4)
    assert first.before == pytest.approx(math.log(1.1), abs=1e-4)
    assert first.after == pytest.approx(math.log(90 / 80), abs=1e-4)
    assert (kernel.quantity, kernel.before, kernel.after) == ("cube", None, None)
    assert (tmp_path / "misses.csv").read_text().startswith("# made up\n")
    text = "\n".join(coverage_lines(found))
    assert "Learnt from 13 rows: cube shifted 1, wall shifted 12" in text
    assert re.search(r"ratio +all +13 of +12 commits +\d+%", text)


def test_too_few_commits_teach_nothing_and_leave_the_file_as_it_is(rows: list[Row], tmp_path: Path) -> None:
    outcomes = {side: replace(RUN, bound="core") for row in rows for side in row.sides.values()}
    with pytest.raises(NpuscopeError, match="fewer than 10 commits"):
        learn(predicted(rows, 0.5, 1.0, 1.2), outcomes, "too few", tmp_path / "misses.csv")
    assert not (tmp_path / "misses.csv").exists()


PROGRAM = """
import npuscope.tile as pl

@pl.jit
def add(x: pl.Tensor[[128, 128], pl.FP32], out: pl.Out[pl.Tensor[[128, 128], pl.FP32]]):
    for i in pl.parallel(0, {tasks}):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="add"):
            t = x[i * {rows} : i * {rows} + {rows}, :]
            out[i * {rows} : i * {rows} + {rows}, :] = pl.add(t, 1.0)
    return out

if __name__ == "__main__":
    import numpy as np
    add(np.zeros((128, 128), np.float32), np.zeros((128, 128), np.float32))
"""


def test_both_sides_of_a_repository_are_run_kept_and_compared(tmp_path: Path) -> None:
    """A change from 32 tasks to one, in a repository of its own, told faster; the second time nothing runs."""
    repo = tmp_path / "repo"
    repo.mkdir()

    def git(*words: str) -> str:
        named = ["-c", "user.name=n", "-c", "user.email=e@x"]
        return subprocess.run(
            ["git", *named, *words], cwd=repo, check=True, capture_output=True, text=True
        ).stdout.strip()

    git("init", "-q")
    sides = []
    for tasks in (32, 1):
        (repo / "add.py").write_text(PROGRAM.format(tasks=tasks, rows=128 // tasks))
        git("add", ".")
        git("commit", "-qm", str(tasks))
        sides.append(git("rev-parse", "HEAD"))
    table = tmp_path / "rows.csv"
    table.write_text(HEAD + f"r,{sides[1]},{sides[0]},add.py,add,,busy,add,add,10,5,a2a3\n")
    command = [sys.executable, str(ROOT / "benchmarks/changes.py"), str(table), "--repo", str(repo)]
    command += ["--cache", str(tmp_path / "cache"), "--jobs", "1", "--json"]
    first = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    [row] = first["rows"]
    assert row["direction_right"]
    assert row["predicted_before_ns"] > row["predicted_after_ns"] > 0
    kept = sorted((tmp_path / "cache" / "results").rglob("*.json"))
    stamps = [file.stat().st_mtime_ns for file in kept]
    assert len(kept) == 2
    assert all(json.loads(file.read_text())["bound"] in KIND_OF.values() for file in kept)
    other = tmp_path / "other.json"
    other.write_text(json.dumps(first))
    command = [*command[:-1], "--compare", str(other), "--rows", "--aside"]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert f"{row['predicted_ratio']:.2f}" in said
    assert [file.stat().st_mtime_ns for file in kept] == stamps


def test_rows_that_are_set_aside_are_listed_only_where_they_are_asked_for(tmp_path: Path) -> None:
    """`--rows` and the worst rows leave them out, so that nobody sees their misses by accident."""
    rows = rows_in(
        tmp_path,
        "open,0000000a,p1,a.py,f,,wall,*,*,100,50,a2a3",
        "aside,0000000e,p2,a.py,f,,wall,*,*,100,50,a2a3",  # 14 % 10 == 4
    )
    assert [one.row.id for one in to_look_at(predicted(rows, 0.9, 0.9))] == ["open"]
