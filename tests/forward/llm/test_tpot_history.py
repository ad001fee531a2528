"""The history of times per token: it grows by lines, knows the commit and is drawn; what is no history is refused."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from npuscope.base.errors import NpuscopeError
from npuscope.explain.many.files import append_line, commit_of
from npuscope.forward.llm.decode_step import Step
from npuscope.forward.llm.tpot import Decoding, Tpot
from npuscope.forward.llm.tpot_history import check_place, entry_of, read_history
from npuscope.lab.payload.overview import parts
from npuscope.report.predicted import history, since

STEP = Step(2, 8.0, 9, 9, 9, 1, 2, 0.5, 0.1, 0.1, "bandwidth", "HBM is at its limit.")
RESULT = Tpot("m", ("--dual",), "chip", Decoding(16, 1, 1), (STEP,), 4, {"MLP": 3})


def test_a_history_grows_by_lines_and_reads_back(tmp_path: Path) -> None:
    file = tmp_path / "h.jsonl"
    assert read_history(file) == []
    for _ in range(2):
        append_line(file, entry_of(RESULT, str(tmp_path / "m.py")))
    first, second = read_history(file)
    assert first["ms_per_token"] == second["ms_per_token"] == 8.0
    assert (first["model"], first["arguments"], first["batch"], first["layers"]) == ("m", ["--dual"], 16, 4)
    assert first["commit"] is None  # no git here
    assert "token_ms" not in first


def test_the_commit_is_that_of_the_program_s_project(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", tmp_path, *words], check=True)

    (tmp_path / "m.py").write_text("1")
    git("init", "-q")
    git("add", "m.py")
    git("commit", "-qm", "first")
    commit, changed = commit_of(tmp_path)
    assert commit is not None
    assert len(commit) == 10
    assert changed is False
    (tmp_path / "m.py").write_text("2")
    assert commit_of(tmp_path) == (commit, True)


def test_a_last_line_without_an_end_stays_a_line_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "h.jsonl"
    file.write_text('{"ms_per_token": 1.0}')
    append_line(file, entry_of(RESULT, str(tmp_path / "m.py")))
    assert [entry["ms_per_token"] for entry in read_history(file)] == [1.0, 8.0]


def test_a_line_that_was_cut_off_makes_room_and_what_is_not_ours_stays(tmp_path: Path) -> None:
    file = tmp_path / "h.jsonl"
    file.write_text('{"ms_per_token": 1.0}\n{"ms_per_to')
    assert [entry["ms_per_token"] for entry in read_history(file)] == [1.0]
    append_line(file, entry_of(RESULT, str(tmp_path / "m.py")))
    assert [entry["ms_per_token"] for entry in read_history(file)] == [1.0, 8.0]
    file.write_text("a thesis")
    with pytest.raises(NpuscopeError, match=r"h.jsonl, line 1: not a history of times per token"):
        read_history(file)
    append_line(file, {})
    assert file.read_text() == "a thesis\n{}\n"


def test_a_run_is_told_beside_those_before_it() -> None:
    before = [entry("aaa", 10.0), entry("bbb", 5.0, batch=32)]
    told = since(before, entry("ccc", 8.0))
    assert told.startswith("Since aaa: 10 → 8 ms/token (-20.0%), faster with a probability of ")
    assert told.endswith("; runs so far █▇")
    assert since(before, entry("ccc", 8.0, batch=64)) == "The history has no earlier run with these settings."


@pytest.mark.parametrize(
    "text", ['{"ms_per_token": 1, "arguments": 5}', "{", "[]", "3", '{"ms_per_token": "fast"}', '{"ms_per_token": NaN}']
)
def test_what_is_no_history_is_refused_with_its_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / "h.jsonl"
    file.write_text('{"ms_per_token": 1.0}\n' + text + "\n")
    with pytest.raises(NpuscopeError, match=r"h.jsonl, line 2: not a history of times per token"):
        read_history(file)


def test_a_place_that_cannot_be_written_is_refused_before_the_work(tmp_path: Path) -> None:
    with pytest.raises(NpuscopeError, match="not a file that can be written"):
        check_place(tmp_path)
    with pytest.raises(NpuscopeError, match="not a file that can be written"):
        check_place("/dev/full")  # reading it would never end


def tpot_parts(name: str, entries: list[dict[str, Any]]) -> tuple[str, Any]:
    """All words of the page, and what its chart is made of."""
    found: Any = parts(history(name, entries))["parts"]
    chart = next(part["spec"] for part in found if part["part"] == "chart")
    return " ".join(part["text"] for part in found if "text" in part), chart


def entry(commit: str, ms: float, **more: Any) -> dict[str, Any]:
    return {"model": "m", "batch": 16, "device": "chip", "commit": commit, "ms_per_token": ms, **more}


def test_the_page_draws_a_line_per_settings() -> None:
    entries = [entry("aaa", 10.0), entry("bbb", 8.0, changed=True), entry("ccc", 5.0, batch=32, model="<b>x")]
    told, chart = tpot_parts("h.jsonl", entries)
    assert [[point["y"] for point in line["points"]] for line in chart["series"]] == [[10.0, 8.0], [5.0]]
    assert chart["x"]["labels"] == ["aaa", "bbb+", "ccc"]
    assert "8 ms/token, -20.0% since 10 (m, batch 16, chip)." in told


def test_an_empty_history_and_entries_of_other_versions_are_drawn() -> None:
    assert "Nothing measured yet." in tpot_parts("h", [])[0]
    assert tpot_parts("h", [])[1]["series"] == []
    assert "1 ms/token" in tpot_parts("h", [json.loads('{"ms_per_token": 1, "commit": 7, "overhead": "much"}')])[0]
