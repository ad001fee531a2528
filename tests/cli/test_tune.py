"""`npuscope tune`: the fastest settings of a program, what was dropped, what was checked; killed and resumed."""

from __future__ import annotations

import json
from pathlib import Path

from command import npuscope
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
