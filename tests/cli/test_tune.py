"""`npuscope tune`: the fastest settings of a program, what was dropped, what was checked; killed and resumed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from command import npuscope
from patience import becomes
from sessions import ROOT

from npuscope.base.interval import chance_text

GEMM = "model:basics/gemm"


def test_it_finds_the_best_that_fits_and_checks_its_numbers() -> None:
    # GIVEN tiles of which 256 does not fit on chip
    done = npuscope("tune", GEMM, "--set", "TILE=32,64,128,256", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    # THEN what fits was simulated, the rest dropped, and the best is what a sweep finds
    assert (told["simulated"], told["dropped"], told["size"]) == (3, 1, 4)
    swept = json.loads(npuscope("sweep", GEMM, "--set", "TILE=32,64,128,256", "--json").stdout)
    assert told["best"]["settings"] == swept[0]["settings"]
    assert told["best"]["wall_ns"] == swept[0]["wall_ns"]
    # AND its numbers were compared with the golden
    assert [one["passed"] for one in told["golden"]] == [True]


def test_it_says_what_it_did_and_why_the_best_wins() -> None:
    done = npuscope("tune", GEMM, "--set", "TILE=64,128,256", "--no-golden")
    assert "2 simulated, 1 dropped because they cannot run" in done.stdout
    assert "buffer usage" in done.stdout  # one of those dropped, with its reason
    first = done.stdout.splitlines()[0]
    assert "TILE=128" in first or "as it is" in first


def test_what_changes_nothing_stays_and_a_space_nearly_done_is_finished(tmp_path: Path) -> None:
    # GIVEN a setting without effect beside one that cuts, ten points of which eight are asked for
    file = tmp_path / "gemm.py"
    file.write_text((ROOT / "models/basics/gemm.py").read_text().replace("TILE = ", "NOTHING = 3\nTILE = ", 1))
    space = ("--set", "TILE=64,128", "--set", "NOTHING=1,2,3,4,5")
    told = json.loads(npuscope("tune", file, *space, "--trials", "8", "--no-golden", "--json").stdout)
    # THEN all ten were tried, and of five that take as long the one that the program has is the best
    assert (told["size"], told["simulated"]) == (10, 10)
    best = {row["settings"]["NOTHING"] for row in told["variants"] if row["wall_ns"] == told["best"]["wall_ns"]}
    assert best == {"1", "2", "3", "4", "5"}
    assert told["best"]["settings"]["NOTHING"] == "3"
    # AND THEN headline and table give the change one probability
    text = npuscope("tune", file, "--set", "TILE=64,128", "--no-golden").stdout
    rows = json.loads(npuscope("tune", file, "--set", "TILE=64,128", "--no-golden", "--json").stdout)["variants"]
    changed = [row["against_first"] for row in rows if "against_first" in row]
    if "nothing faster" not in text.splitlines()[0]:
        assert chance_text(changed[0]["probability_faster"], changed[0]["verdict"]) in text.splitlines()[0]


def test_knobs_are_found_where_none_are_named() -> None:
    told = json.loads(npuscope("tune", GEMM, "--trials", "2", "--no-golden", "--json").stdout)
    assert "128" in told["space"]["TILE"]
    assert told["variants"][0]["wall_ns"] > 0


def test_a_front_holds_time_against_tasks() -> None:
    told = json.loads(
        npuscope("tune", GEMM, "--set", "TILE=32,64,128", "--front", "tasks", "--no-golden", "--json").stdout
    )
    assert {row["variant"] for row in told["front"]} <= {row["variant"] for row in told["variants"]}
    assert told["front"][0]["variant"] == told["best"]["variant"]


def test_a_program_whose_best_is_wrong_takes_the_next(tmp_path: Path) -> None:
    # GIVEN a program that is fast and wrong with the largest tile
    from npuscope.models import file_of

    text = Path(file_of(GEMM)).read_text()
    wrong = text.replace('tensors["c"][:] = ', 'tensors["c"][:] = (2 if TILE == 128 else 1) * ')
    assert wrong != text
    (tmp_path / "gemm.py").write_text(wrong)
    told = json.loads(npuscope("tune", tmp_path / "gemm.py", "--set", "TILE=64,128", "--json").stdout)
    assert [one["passed"] for one in told["golden"]] == [False, True]
    assert told["best"]["settings"] == {"TILE": "64"}


@pytest.mark.full
def test_killed_and_resumed_it_loses_nothing(tmp_path: Path) -> None:
    results = tmp_path / "tune.jsonl"
    words = [
        "tune",
        GEMM,
        "--set",
        "TILE=16,32,64,128",
        "--set",
        "K=512,1024",
        "--no-golden",
        "--json",
        "--results",
        str(results),
    ]
    # WHEN it is killed as soon as it has kept something
    program = str(Path(sys.executable).with_name("npuscope"))
    running = subprocess.Popen([program, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert becomes(lambda: running.poll() is not None or (results.exists() and b"\n" in results.read_bytes()))
    running.send_signal(signal.SIGKILL)
    running.wait()
    before = results.read_bytes().splitlines()
    # AND run again, THEN what was kept stays as it was and the answer is that of an undisturbed run
    again = json.loads(npuscope(*words).stdout)
    assert results.read_bytes().splitlines()[: len(before)] == before
    whole = json.loads(npuscope(*(word for word in words if word not in ("--results", str(results)))).stdout)
    assert again == whole
