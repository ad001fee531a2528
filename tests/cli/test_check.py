"""`npuscope check` on a program with a fault of each kind: text, JSON, SARIF, Markdown, exit codes, refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from npuscope.answer.checks import checks
from npuscope.answer.prediction import Prediction
from npuscope.answer.request import Request
from npuscope.base.errors import NpuscopeError
from npuscope.check.rules import all_rules
from npuscope.check.run import rules_of
from npuscope.cli import app
from npuscope.report.check import first_answer

LAYER = '''"""Tiles."""  # npuscope: ignore[bufer-overflow]
import numpy as np

import npuscope.tile as pl

ROWS = 16


@pl.jit
def layer(x: pl.Tensor[[512, 512], pl.FP32], out: pl.Out[pl.Tensor[[512, 512], pl.FP32]]):
    tmp = pl.create_tensor([16, 64], dtype=pl.FP32)
    # Scope 1: a tile too large
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="wide"):
        out = pl.assemble(out, pl.add(pl.slice(x, [128, 512], [0, 0]), 1.0), [0, 0])
    # Scope 2: a reader that nobody waits for
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="first"):
        tmp = pl.assemble(tmp, pl.slice(x, [16, 64], [0, 0]), [0, 0])
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="reader"):
        out = pl.assemble(out, pl.slice(tmp, [16, 64], [0, 0]), [128, 0])
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="second"):
        tmp = pl.assemble(tmp, pl.slice(x, [16, 64], [16, 0]), [0, 0])
    return out


layer(np.arange(512 * 512, dtype=np.float32).reshape(512, 512), np.zeros((512, 512), np.float32))
'''
WIDE, READER, SECOND = 14, 19, 21  # lines
OVERFLOW = "wide Vec buffer usage 262144 > 188416"  # 128 · 512 · 4 bytes; 184 KiB


@pytest.fixture(autouse=True)
def layer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "layer.py").write_text(LAYER)
    monkeypatch.chdir(tmp_path)


def check(*options: str) -> Result:
    return CliRunner().invoke(app, ["check", *options])


def contract(*options: str) -> dict[str, Any]:
    return json.loads(check("layer.py", "--json", *options).stdout)


def test_counts_come_first_then_errors_then_races_then_findings_by_scope() -> None:
    done = check("layer.py")
    assert done.exit_code == 1
    out = done.output
    assert out.startswith("Will not work as it is: 2 errors, ")
    parts = [f"layer.py:{WIDE}: error: {OVERFLOW}", "[race]", "Module level", "this comment silences nothing"]
    places = [out.index(part) for part in parts]
    assert places == sorted(places)
    assert f"written by second (layer.py:{SECOND}) may come before tmp[0:16, 0:64] read by reader" in out
    assert "give second deps=[reader_tid]" in out


def test_the_contract_for_programs() -> None:
    told = contract()
    unknown = next(finding for finding in told["findings"] if finding["id"] == "unknown-ignore")
    assert {name: unknown[name] for name in ("severity", "file", "line", "scope", "count", "kernel")} == {
        "severity": "hint", "file": "layer.py", "line": 1, "scope": "Module level", "count": 1, "kernel": "",
    }  # fmt: skip
    assert set(unknown["cost"]) == {"bytes", "flops", "tasks", "waits"}
    assert {"message", "remedy", "change"} <= set(unknown)
    assert {"program": 0, "kernel": "wide", "space": "Vec", "used": 262144, "limit": 188416} in told["memory"]
    (race,) = told["races"]
    assert race["lines"] == [["layer.py", READER], ["layer.py", SECOND]]
    assert race["regions"] == ["tmp[0:16, 0:64]"] * 2
    assert "deps=[reader_tid]" in race["remedy"]
    (error,) = told["errors"]
    assert (error["id"], error["line"]) == ("buffer-overflow", WIDE)
    assert told["programs"] == ["layer"]


def test_a_replay_shows_what_the_race_changes() -> None:
    (race,) = contract("--replay", "--seed", "3")["races"]
    # the reader's 16 × 64 elements, read 16 rows of 512 further on: 16 · 512 larger
    assert race["changes"] == [{"output": "out", "elements": 1024, "of": 262144, "largest": 8192.0, "first": [128, 0]}]
    assert "replayed the other way: out differs by up to 8,192" in check("layer.py", "--replay").output


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ([], 1),
        (["--level", "error"], 1),
        (["--select", "unknown-ignore"], 0),  # a hint is below --level warning
        (["--select", "unknown-ignore", "--level", "hint"], 1),
        (["--select", "race"], 1),
        (["--select", "race", "--no-races"], 0),
        (["--select", "buffer-overflow"], 1),
        (["--ignore", "race,buffer-overflow", "--level", "error"], 0),
        (["--no-races", "--ignore", "buffer-*", "--level", "error"], 0),
    ],
    ids=range(9),
)
def test_the_exit_code_is_1_for_a_finding_at_the_level_or_worse(options: list[str], code: int) -> None:
    assert check("layer.py", *options).exit_code == code


def test_comments_silence_errors_and_races_as_they_do_rules(tmp_path: Path) -> None:
    lines = LAYER.splitlines()
    lines[WIDE - 1] += "  # npuscope: ignore[buffer-overflow]"
    lines[SECOND - 1] += "  # npuscope: ignore[race]"
    (tmp_path / "layer.py").write_text("\n".join(lines) + "\n")
    told = contract("--select", "buffer-overflow,race,unknown-ignore")
    assert (told["errors"], told["races"], told["ignored"]) == ([], [], 2)
    assert "1 hint, 2 ignored by comments" in check("layer.py", "--select", "race,buffer-*,unknown-*").output


def test_sarif_has_what_code_review_needs() -> None:
    done = check("layer.py", "--sarif", "out.sarif")
    assert "wrote out.sarif" in done.output
    told = json.loads(Path("out.sarif").read_text())
    assert told["version"] == "2.1.0"
    (run,) = told["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert run["tool"]["driver"]["name"] == "npuscope"
    assert all(rule["id"] and rule["shortDescription"]["text"] and rule["help"]["text"] for rule in rules)
    levels = {}
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["message"]["text"]
        (place,) = result["locations"]
        place = place["physicalLocation"]
        assert place["artifactLocation"] == {"uri": "layer.py", "uriBaseId": "SRCROOT"}
        assert place["region"]["startLine"] >= 1
        assert result["partialFingerprints"]
        levels[result["ruleId"]] = result["level"]
    assert {"buffer-overflow": "error", "race": "error", "unknown-ignore": "note"}.items() <= levels.items()
    assert run["originalUriBaseIds"]["SRCROOT"]["uri"] == Path.cwd().as_uri() + "/"


def test_a_fingerprint_stays_when_lines_above_move(tmp_path: Path) -> None:
    def prints() -> set[str]:
        check("layer.py", "--sarif", "out.sarif", "--select", "race,buffer-overflow")
        results = json.loads(Path("out.sarif").read_text())["runs"][0]["results"]
        return {result["partialFingerprints"]["npuscopeFinding/v1"] for result in results}

    before = prints()
    (tmp_path / "layer.py").write_text(LAYER.replace("ROWS = 16\n", "ROWS = 16\n\nMORE = 1\n"))
    assert prints() == before
    assert len(before) == 2


def test_a_review_in_markdown() -> None:
    check("layer.py", "--md", "review.md")
    review = Path("review.md").read_text()
    for part in ("## Errors", OVERFLOW, "## Races", "## Module level (layer.py, lines 1–",
                 "**Code quality**", "**unknown-ignore** (hint, layer.py line 1)", "## How to reproduce"):  # fmt: skip
        assert part in review


def test_two_programs_of_a_file_are_told_apart_and_equal_runs_once(tmp_path: Path) -> None:
    again = LAYER.splitlines()[-1]
    other = again.replace("layer(", "other(")
    text = (
        LAYER + again + "\n" + LAYER[LAYER.index("@pl.jit") :].replace("def layer", "def other").replace(again, other)
    )
    (tmp_path / "layer.py").write_text(text)
    assert contract()["programs"] == ["layer", "other"]
    told = contract("--program", "2")
    assert told["programs"] == ["other"]
    out = check("layer.py").output
    assert "layer.py: program 0, layer on ascend910b1" in out
    assert "layer.py: program 1, other on ascend910b1" in out


def test_the_rules_are_listed_without_a_program() -> None:
    done = check("--list-rules")
    assert done.exit_code == 0
    assert [line.split()[0] for line in done.output.splitlines()] == [rule.id for rule in all_rules()]


def test_a_fault_in_the_script_is_told_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "layer.py").write_text(LAYER.replace("ROWS = 16", "ROWS = 1 / 0"))
    done = check("layer.py")
    assert isinstance(done.exception, NpuscopeError)
    assert "layer.py, line 6: ZeroDivisionError" in str(done.exception)


def test_whether_it_fits_is_said_before_races_and_times_are_looked_for() -> None:
    # GIVEN somebody who waits for a program that does not fit
    heard: list[str] = []

    def planned(one: Prediction) -> None:
        heard.append(first_answer("layer", one.unfit))
        assert not {"checked", "races", "plain"} & vars(one).keys()  # nothing else was looked for yet

    # WHEN it is checked, THEN that comes first, and once
    (checked,) = checks(Request("layer.py"), rules_of(), planned=planned)
    assert len(heard) == 1
    assert OVERFLOW in heard[0]
    assert checked.races
