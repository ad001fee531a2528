"""What a program over ranks computes must not depend on whose turn it is; where it does, `check --replay` says so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from command import npuscope
from hypothesis import given
from hypothesis import strategies as st
from tiers import examples

from npuscope.base.errors import NpuscopeError
from npuscope.check.races.replay import RANK_ORDERS
from npuscope.models import FOLDER
from npuscope.tile.distributed.ranks import ranks_by_chance
from npuscope.tile.script.run import run_script
from tests.time.ranks.test_together import PROGRAM

INPUT = "x = np.zeros([RANKS, WORK, 256], np.float32)"
OTHER = "x = np.arange(RANKS * WORK * 256, dtype=np.float32).reshape(RANKS, WORK, 256) / 1e5"
WAIT = "            pld.system.wait(signal=signal, offsets=[src, 0], expected=EXPECTED, cmp=pld.WaitCmp.Ge)\n"
# everybody stores, meets the others and reads theirs
ROUND = PROGRAM[PROGRAM.index("    data = pl.store(") : PROGRAM.index("    return pl.store(mine, [0, 0], out)")]
STORE = ROUND[: ROUND.index("    for peer")]
MEET = ROUND[ROUND.index("    for peer") : ROUND.rindex("    for src")]


def rounds(*parts: tuple[str, int]) -> str:
    """The program with these parts in place of its one round, each with the count that it waits for."""
    return PROGRAM.replace(ROUND, "".join(part.replace("EXPECTED", str(expected)) for part, expected in parts))


KINDS = {
    "right": PROGRAM.replace("EXPECTED", "1"),
    "two rounds": rounds((ROUND, 1), (MEET, 2), (ROUND, 3)),
    "a signal reused too early": rounds((ROUND, 1), (MEET, 1), (ROUND, 1)),
    "stored before others have read": rounds((ROUND, 1), (ROUND, 2)),
    "a missing wait": PROGRAM.replace(WAIT, "            pass\n"),
    "a signal before its data": PROGRAM.replace(
        ROUND, ROUND.replace(STORE, "").replace("    for src", STORE + "    for src", 1)
    ).replace("EXPECTED", "1"),
    "a wait for nothing": PROGRAM.replace("EXPECTED", "0"),
    "a signal to itself": PROGRAM.replace("EXPECTED", "1").replace(
        "notify(signal, peer=peer", "notify(signal, peer=me"
    ),
}


def script(folder: Path, kind: str) -> str:
    file = folder / "everyone.py"
    file.write_text(
        KINDS[kind]
        .replace(INPUT, OTHER)
        .replace("np.zeros_like(x)", "out")
        .replace("\neveryone(", "\nout = np.zeros_like(x)\neveryone(")
    )
    return str(file)


def result(file: str, ranks: int = 3) -> np.ndarray:
    (host,) = [run for run in run_script(file, [str(ranks)], "values").runs if run.recording.place is None]
    return host.named["out"].copy()


@given(st.integers(0, 10**6))
@examples(12)
def test_values_are_the_same_in_every_order_of_ranks(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    for kind in ("right", "two rounds"):
        file = script(tmp_path_factory.mktemp("order"), kind)
        wanted = result(file)
        with ranks_by_chance(seed):
            assert np.array_equal(result(file), wanted)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("right", "two rounds", "a signal to itself")])
def test_a_race_between_ranks_shows_in_some_order(tmp_path: Path, kind: str) -> None:
    file = script(tmp_path, kind)
    wanted, found = result(file), []
    for seed in range(RANK_ORDERS):
        with ranks_by_chance(seed):
            found.append(result(file))
    assert any(not np.array_equal(wanted, one) for one in found)


def test_a_wrong_pairing_is_a_hang_that_names_who_waits(tmp_path: Path) -> None:
    with pytest.raises(NpuscopeError, match="no rank can go on: rank 0 waits for signal"):
        result(script(tmp_path, "a signal to itself"))


def test_check_replays_ranks_in_another_order(tmp_path: Path) -> None:
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    right.mkdir()
    wrong.mkdir()
    fine = npuscope("check", script(right, "right"), "--replay", "--no-price", "--", "3").stdout
    assert fine.count("another order of ranks (seed 0): every output stays the same") == 1
    racing = npuscope("check", script(wrong, "a missing wait"), "--replay", "--no-price", "--", "3")
    lines = Path(script(wrong, "a missing wait")).read_text().splitlines()
    read = next(n for n, line in enumerate(lines, 1) if "remote_load" in line)
    assert f"rank 0 reads data of rank 1 otherwise (meet, line {read})" in racing.stdout
    assert racing.returncode == 1
    assert fine.startswith("Fits on chip and is safe")
    assert racing.stdout.startswith("Fits on chip, and is not safe")
    assert "golden" not in racing.stderr
    assert ": out differs by" in racing.stdout.partition("another order of ranks (seed")[2].splitlines()[0]


def test_a_wrong_number_of_ranks_is_not_said_to_be_never_written(tmp_path: Path) -> None:
    file = tmp_path / "wrong.py"
    file.write_text(
        (FOLDER / "deepseek_v4/expert_parallel.py").read_text().replace("pl.add(x, added", "pl.sub(x, added")
    )
    said = npuscope("run", file)
    assert said.returncode == 1
    assert "actual=" in said.stdout + said.stderr
    assert "never written" not in said.stdout + said.stderr
