"""`npuscope rank` and `npuscope sweep`: the fastest first and why, what cannot run last, and nothing run twice."""

from __future__ import annotations

import json
from pathlib import Path
from resource import RLIMIT_FSIZE, getrlimit, setrlimit
from typing import Any

import pytest
from add_program import ADD
from command import npuscope as entry
from page_data import charts_in
from typer.testing import CliRunner

from npuscope.answer.answer import Answer
from npuscope.answer.rank import answers_of
from npuscope.answer.request import Request
from npuscope.answer.results import results_in
from npuscope.base.errors import CannotWrite
from npuscope.cli import app

MODELS = Path(__file__).resolve().parents[2] / "models"


@pytest.fixture
def add(tmp_path: Path) -> Path:
    (tmp_path / "add.py").write_text(ADD)
    return tmp_path / "add.py"


def told(*arguments: object) -> list[dict[str, Any]]:
    done = CliRunner().invoke(app, [*map(str, arguments), "--json"])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return json.loads(done.stdout)


def test_a_sweep_ranks_what_fits_and_lists_what_does_not(add: Path) -> None:
    # GIVEN tiles of 16, 4 and 512 rows WHEN the grid is swept through the real entry point, in processes
    done = entry("sweep", add, "--set", "ROWS=4,16,512", "--jobs", "2")
    # THEN fewer tasks win, with the reason, and half a mebibyte does not fit
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("ROWS=16 is the fastest: ")
    assert " less than ROWS=4 (" in lines[0]
    assert "% of the time" in lines[1]  # what limits the fastest, as simulate says it
    title = lines.index(f"{add} on ascend910b1: 3 variants, 1 of them cannot run")
    assert "limited by" in lines[title + 1]
    assert lines[title + 2].split()[:2] == ["1", "ROWS=16"]
    assert lines[title + 3].split()[:2] == ["2", "ROWS=4"]
    assert "1.00x" in lines[title + 3]  # the first one named is the baseline
    assert "ROWS=512: " in done.stdout
    assert "add Vec buffer usage 524288 > 188416" in done.stdout
    assert "faster than ROWS=4" in done.stdout[done.stdout.index("\nWhy:\n") :]
    assert "more or fewer blocks one after another" in done.stdout


def test_the_contract(add: Path) -> None:
    found = told("sweep", add, "--set", "ROWS=4,16,512", "--jobs", 1)
    assert [one["variant"] for one in found] == ["ROWS=16", "ROWS=4", "ROWS=512"]
    assert [one.get("tasks") for one in found] == [64, 256, None]  # 1024 / 16 and 1024 / 4
    assert found[0]["wall_ns"] < found[1]["wall_ns"]
    assert found[0]["memory"] == {"function": "add", "space": "Vec", "share": 16 * 256 * 4 / 188416}
    first = found[0]["against_first"]  # four times fewer tasks: the first named is ROWS=4
    assert first["low"] <= first["ratio"] <= first["high"]
    assert first["ratio"] == pytest.approx(found[0]["wall_ns"] / found[1]["wall_ns"])
    assert first["probability_faster"] > 0.9
    assert first["verdict"] == "faster"
    assert found[1]["wall_interval_ns"]["low"] <= found[1]["wall_ns"] <= found[1]["wall_interval_ns"]["high"]
    assert "against_first" not in found[1]
    assert "against_first" not in found[2]
    assert "wall_ns" not in found[2]
    assert found[2]["error"].startswith(f"{add}, line 12: add Vec buffer usage")
    assert all("error" not in one for one in found[:2])


def test_a_sweep_is_resumed(add: Path, tmp_path: Path) -> None:
    # GIVEN a sweep that was interrupted in the middle of a line
    results = tmp_path / "results.jsonl"
    sweep = ("sweep", add, "--jobs", 1, "--results", results, "--set")
    first = told(*sweep, "ROWS=16,512")
    kept = results.read_text()
    results.write_text(kept + '{"candidate":"ROWS=4","ve')
    # WHEN it goes on with one more value
    again = told(*sweep, "ROWS=16,4,512")
    # THEN only the missing one is added
    assert results.read_text().startswith(kept)
    assert [json.loads(line)["candidate"] for line in results.read_text().splitlines()] == [
        "ROWS=16",
        "ROWS=512",
        "ROWS=4",
    ]
    ranks = {one["variant"]: one.pop("rank") for one in (*first, *again)}
    assert ranks["ROWS=512"] == 3  # behind the new one, too
    assert [one for one in again if one["variant"] != "ROWS=4"] == first
    # and a changed program is run again, while a file whose numbers are no longer the program's is refused
    add.write_text(ADD.replace("1.0)", "2.0)"))
    assert told(*sweep, "ROWS=16")[0]["wall_ns"] == first[0]["wall_ns"]
    results.write_text(results.read_text().replace(f'"value":{first[0]["wall_ns"]}', '"value":1'))
    done = CliRunner().invoke(app, [*map(str, sweep), "ROWS=16"])
    assert "comes out otherwise than it stands in" in str(done.exception)


def test_a_variant_is_run_again_with_other_rings(add: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN results, and a folder beside the program that only looks like a module
    (tmp_path / "folder.py").mkdir()
    results = tmp_path / "results.jsonl"
    (free,) = answers_of([Request(str(add), name="a")], results, jobs=1)
    # WHEN the user's environment asks for rings of two tasks (one slot of a ring stays empty)
    monkeypatch.setenv("PTO2_RING_TASK_WINDOW", "3")
    (held,) = answers_of([Request(str(add), name="a")], results, jobs=1)
    # THEN the time is that of such rings, not the one that was kept
    assert held.wall_ns is not None
    assert free.wall_ns is not None
    assert held.wall_ns > 2 * free.wall_ns


def test_programs_are_ranked_with_the_same_arguments() -> None:
    done = entry("rank", MODELS / "basics/softmax.py", MODELS / "basics/rms_norm.py", "--no-why", "--jobs", "2")
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith("     ")]
    assert {row[1] for row in rows if row[0] in ("1", "2")} == {"softmax.py", "rms_norm.py"}
    layers = [MODELS / "qwen3_14b/decode_layer.py", MODELS / "qwen3_14b/decode_layer_a8w8.py"]
    small = CliRunner().invoke(app, ["rank", *map(str, layers), "--jobs", "1", "--json", "--", "--small"])
    found = {one["variant"]: one for one in json.loads(small.stdout)}
    assert found.keys() == {"decode_layer.py", "decode_layer_a8w8.py"}
    assert all(one["wall_ns"] > 0 for one in found.values())


def test_each_setting_is_told_at_its_best_and_drawn(add: Path, tmp_path: Path) -> None:
    # GIVEN a second setting that changes nothing
    add.write_text(ADD.replace("ROWS = 16", "ROWS = 16\nNOTHING_AT_ALL_BUT_A_NAME_OF_SOME_LENGTH = '<b>'"))
    page = tmp_path / "ranked.html"
    names = ("--set", "ROWS=4,16,512", "--set", "NOTHING_AT_ALL_BUT_A_NAME_OF_SOME_LENGTH=<b>,1")
    done = CliRunner().invoke(app, ["sweep", str(add), *names, "--jobs", "1", "--no-why", "--html", str(page)])
    assert done.exception is None, done.exception
    # THEN the table fits a line, with the names of settings above it, and equal errors are told once
    table, _, failed = done.stdout.partition("\ncannot run\n")
    assert "variants are values of ROWS, NOTHING_AT_ALL_BUT_A_NAME_OF_SOME_LENGTH" in table
    assert max(len(line) for line in table.splitlines() if line.startswith("  ")) <= 100
    best = [line.split() for line in table.splitlines()[-2:]]
    assert best[0][:2] == ["ROWS", "16:"]
    assert best[0][-3:] == ["512:", "cannot", "run"]
    assert best[1][2] == best[1][5], "both take as long"
    assert failed.count("buffer usage") == 1
    # and the page has a bar for each, with nothing that a name could smuggle in
    knobs, bars = charts_in(page, "rank")
    assert len(bars["rows"]) == 4
    assert [len(knob["points"]) for knob in knobs["knobs"]] == [4, 4]
    assert "<b>" not in page.read_text()


def test_equals_are_not_compared_and_that_is_said(add: Path, tmp_path: Path) -> None:
    add.write_text(ADD.replace("ROWS = 16", "ROWS = 16\nNOTHING = 0"))
    words = ["sweep", str(add), "--set", "NOTHING=0,1", "--jobs", "1", "--html", str(tmp_path / "both.html")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0
    (_, bars) = charts_in(tmp_path / "both.html", "rank")  # both variants, and no run beside another
    assert len(bars["rows"]) == 2


def test_programs_with_settings(add: Path) -> None:
    (add.parent / "other.py").write_text(ADD.replace("1.0)", "2.0)"))
    found = told("rank", add, add.parent / "other.py", "--set", "ROWS=16,4", "--jobs", 1)
    assert {one["variant"] for one in found} == {f"{f}.py ROWS={n}" for f in ("add", "other") for n in (4, 16)}
    assert found[0]["settings"] == {"ROWS": "16"}


def test_a_file_of_results_has_one_writer(add: Path, tmp_path: Path) -> None:
    results = tmp_path / "r.jsonl"
    with results_in(results, "rank"), pytest.raises(CannotWrite, match="another command is writing to it"):
        answers_of([Request(str(add), name="a")], results)


def test_results_that_do_not_fit_the_disk_are_refused_with_their_file(add: Path, tmp_path: Path) -> None:
    results, (before, most) = tmp_path / "r.jsonl", getrlimit(RLIMIT_FSIZE)
    setrlimit(RLIMIT_FSIZE, (900, most))
    requests = [Request(str(add), settings=(("ROWS", str(n)),)) for n in range(10)]
    try:
        with pytest.raises(CannotWrite, match=r"large") as refused, results_in(results, "rank") as kept:  # noqa: PT012
            for request in requests:
                kept.add(request, Answer("a", "good"))
    finally:
        setrlimit(RLIMIT_FSIZE, (before, most))
    assert refused.value.path == results
    # AND what fitted is kept, of which the first is tried again
    with results_in(results, "rank") as kept:
        assert [one is not None for one in kept.known(requests)][:3] == [False, True, False]


def test_a_program_that_refuses_its_arguments_is_listed_with_its_words(add: Path) -> None:
    add.write_text("import argparse\nargparse.ArgumentParser().parse_args()\n" + ADD)
    done = CliRunner().invoke(app, ["sweep", str(add), "--set", "ROWS=16", "--jobs", "1", "--", "--what"])
    assert done.exit_code == 1
    assert "refuses --what (" in done.output
    assert "unrecognized arguments: --what" in done.output


@pytest.mark.full
def test_processes_and_ray_give_the_same(add: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install -e '.[ray]'")
    here = told("sweep", add, "--set", "ROWS=4,16,512", "--jobs", 1)
    assert told("sweep", add, "--set", "ROWS=4,16,512", "--jobs", 2, "--engine", "ray") == here


def test_noise_is_the_same_for_the_same_seed() -> None:
    # the scheduler sees ends when it polls, so that some seeds come out alike, but not all
    sweep = ("sweep", MODELS / "basics/gemm.py", "--set", "TILE=64", "--jobs", 1)
    runs = [told(*sweep, "--jitter", seed)[0]["wall_ns"] for seed in range(6)]
    assert told(*sweep, "--jitter", 5)[0]["wall_ns"] == runs[5]
    assert len(set(runs)) > 1
    assert max(runs) < 1.3 * min(runs)


def test_nothing_that_fits_is_an_exit_code(add: Path) -> None:
    done = CliRunner().invoke(app, ["sweep", str(add), "--set", "ROWS=512", "--jobs", "1"])
    assert done.exit_code == 1
    assert "1 variant, 1 of them cannot run" in done.output


def test_a_difference_within_the_noise_is_undecided(add: Path, tmp_path: Path) -> None:
    # GIVEN the same program under another name WHEN it is ranked against itself
    other = tmp_path / "same.py"
    other.write_text(ADD + "# the same work\n")
    page = tmp_path / "ranked.html"
    done = entry("rank", add, other, "--jobs", "1", "--html", page)
    # THEN nobody says which is faster, on the page neither
    assert done.returncode == 0, done.stderr
    assert "% undecided" in done.stdout
    assert "undecided, 50% likely faster" in page.read_text()
    [same] = [one for one in told("rank", add, other, "--jobs", "1") if "against_first" in one]
    assert (same["against_first"]["probability_faster"], same["against_first"]["verdict"]) == (0.5, "undecided")
